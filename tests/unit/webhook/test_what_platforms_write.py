"""Pods as notebooks, model servers and batch systems write them: what the webhook makes of each."""

import json

import pytest
from slice_pods import container, mutated, pod

from instaslice.api import names

NO_GPU = {"cpu": "2", "memory": "4Gi", "nvidia.com/mig-1g.5gb": "0"}
HUGGING_FACE = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}
SMALL = {"cpu": "200m", "memory": "256Mi"}

JUPYTERHUB_WITHOUT_GPU = pod(
    container(
        "notebook",
        limits=NO_GPU,
        requests={**NO_GPU, "cpu": "500m"},
        env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}, {"name": "JUPYTERHUB_USER", "value": "ann"}],
    ),
    init=[container("block-cloud-metadata", securityContext={"privileged": True})],
    automountServiceAccountToken=False,
    tolerations=[{"key": "hub.jupyter.org/dedicated", "operator": "Equal", "value": "user", "effect": "NoSchedule"}],
)
JUPYTERHUB = pod(
    container("notebook", limits={"nvidia.com/mig-1g.5gb": "1"}, requests={"nvidia.com/mig-1g.5gb": "1"}),
    tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
)
KSERVE = pod(
    container(
        "kserve-container",
        limits={"cpu": "4", "nvidia.com/mig-3g.20gb": "1"},
        requests={"cpu": "1", "nvidia.com/mig-3g.20gb": "1"},
    ),
    container("queue-proxy", requests={"cpu": "25m"}, env=[{"name": "SERVING_POD", "value": "x"}]),
    init=[container("storage-initializer", limits={"cpu": "1", "memory": "1Gi"}, requests={"cpu": "100m"})],
)
VLLM = pod(
    container(
        "vllm",
        limits={"nvidia.com/mig-3g.20gb": "1"},
        env=[HUGGING_FACE, {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
        args=["--model", "meta-llama/Llama-3.2-1B", "--gpu-memory-utilization", "0.9"],
        volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}],
    ),
    runtimeClassName="nvidia",
    volumes=[{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}],
)
RAY_HEAD = pod(
    container(
        "ray-head",
        limits={"cpu": "2", "nvidia.com/mig-1g.5gb": "0"},
        env=[{"name": "CUDA_VISIBLE_DEVICES", "value": ""}],
    ),
)
RAY_WORKER = pod(
    container("ray-worker", limits={"cpu": "8", "nvidia.com/mig-2g.10gb": "2"}),
    init=[container("wait-gcs-ready", limits=SMALL, requests=SMALL)],
)


@pytest.mark.parametrize(
    "document, record",
    [
        pytest.param(JUPYTERHUB, {"notebook": {"nvidia.com/mig-1g.5gb": 1}}, id="a notebook"),
        pytest.param(KSERVE, {"kserve-container": {"nvidia.com/mig-3g.20gb": 1}}, id="a predictor of KServe"),
        pytest.param(VLLM, {"vllm": {"nvidia.com/mig-3g.20gb": 1}}, id="vLLM"),
        pytest.param(RAY_WORKER, {"ray-worker": {"nvidia.com/mig-2g.10gb": 2}}, id="a worker of Ray"),
    ],
)
def test_what_asks_for_slices_is_gated_and_keeps_all_else(document, record):
    after = mutated(document)
    assert json.loads(after["metadata"]["annotations"][names.REQUESTED]) == record
    assert after["spec"]["schedulingGates"] == [{"name": names.GATE}]
    kept = ("runtimeClassName", "volumes", "automountServiceAccountToken")
    assert {field: after["spec"].get(field) for field in kept} == {field: document["spec"].get(field) for field in kept}
    for field in ("containers", "initContainers"):
        for before, now in zip(document["spec"].get(field, ()), after["spec"].get(field, ()), strict=True):
            assert {**now, "resources": None} == {**before, "resources": None}
            if before["name"] not in record:
                assert now == before


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(JUPYTERHUB_WITHOUT_GPU, id="a notebook without a GPU"),
        pytest.param(RAY_HEAD, id="a head of Ray, which needs none"),
    ],
)
def test_what_asks_for_none_is_a_pod_like_any_other(document):
    after = mutated(document)
    assert after["metadata"] == document["metadata"]
    assert {**after["spec"], "containers": None} == {**document["spec"], "containers": None}
    assert "/mig-" not in json.dumps(after)
