"""The samples, applied as they are: every pod gets its slices, and the doctor finds nothing."""

from pathlib import Path

import pytest
import yaml
from stage import STORY

from instaslice.api import names
from instaslice.api.pods import mig_uuids, needed_slices
from instaslice.doctor import wait_until_settled
from instaslice.kube.core import PODS, PartialObjectMetadata
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource

ROOT = Path(__file__).parents[3]
SAMPLES = sorted((ROOT / "samples").glob("*.yaml"))
RESOURCES = {
    "Pod": PODS,
    "Service": Resource(PartialObjectMetadata, "Service", "services"),
    "Deployment": Resource(PartialObjectMetadata, "Deployment", "deployments", group="apps"),
    "StatefulSet": Resource(PartialObjectMetadata, "StatefulSet", "statefulsets", group="apps"),
    "Job": Resource(PartialObjectMetadata, "Job", "jobs", group="batch"),
}
WORKLOADS = ("Deployment", "StatefulSet", "Job")
SETTLES_WITHIN = 60.0


def pod_spec(document):
    """That of a document's pods."""
    spec = document["spec"]
    return spec if document["kind"] == "Pod" else spec["template"]["spec"]


def predictor(service):
    """The pod that KServe makes of an InferenceService: what its CRD would accept, only KServe knows."""
    model = dict(service["spec"]["predictor"]["model"])
    model.pop("modelFormat")
    container = {"name": "kserve-container", "image": "none", **model}
    return {"kind": "Pod", "metadata": {"name": "predictor"}, "spec": {"containers": [container]}}


def documents(file):
    found = list(yaml.safe_load_all(file.read_text()))
    return [predictor(each) if each["kind"] == "InferenceService" else each for each in found]


def expected(document):
    """How many pods a document makes."""
    if document["kind"] == "Job":
        return document["spec"]["completions"]
    return document["spec"].get("replicas", 1)


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.stem)
async def test_every_pod_of_a_sample_gets_its_slices(stage, client, file):
    await stage.some_nodes(2, gpus=1)
    made = documents(file)
    pods = 0
    for each in made:
        each["metadata"]["namespace"] = stage.namespace
        if each["kind"] != "Service":
            pods += expected(each)
            pod_spec(each)["nodeSelector"] = {STORY: stage.namespace}
        body = {"metadata": each["metadata"], "spec": each["spec"]}
        if each["kind"] == "Job":  # what runs to its end does so at once on an emulated node that is told to
            each["spec"]["template"]["metadata"] = {"annotations": {"local.gpu.das.com/run-for": "0.1s"}}
        await client.create(RESOURCES[each["kind"]], body)

    def served():
        found = [pod for pod in stage.pods if pod.status.phase in ("Running", "Succeeded")]
        return found if len(found) == pods else None

    for pod in await stage.until(f"{pods} pods with slices", served):
        needed = needed_slices(pod)
        assert needed
        assert len(mig_uuids(pod)) == len(needed)
        assert names.REQUESTED in pod.metadata.annotations
    assert await wait_until_settled(client, SETTLES_WITHIN) == []
    for each in made:
        if each["kind"] in WORKLOADS:
            await client.delete(RESOURCES[each["kind"]], Key(stage.namespace, each["metadata"]["name"]))


@pytest.mark.parametrize("name", ["notebook", "vllm", "kserve-predictor", "kserve-inferenceservice"])
def test_it_asks_for_more_memory_than_its_slice_has(name):
    (spec,) = [pod_spec(each) for each in documents(ROOT / "samples" / f"{name}.yaml") if each["kind"] != "Service"]
    resources = spec["containers"][0]["resources"]
    (profile,) = [each for each in resources["limits"] if each.startswith(names.NVIDIA_RESOURCE)]
    assert int(resources["requests"]["memory"].removesuffix("Gi")) > int(profile.partition(".")[2].split(".")[-1][:-2])


def test_the_page_lists_the_samples():
    page = (ROOT / "docs" / "samples.md").read_text()
    assert [each.name for each in SAMPLES if f"(../samples/{each.name})" not in page] == []


def test_the_predictor_is_what_kserve_would_make():
    service = documents(ROOT / "samples" / "kserve-inferenceservice.yaml")[0]["spec"]["containers"][0]
    plain = pod_spec(documents(ROOT / "samples" / "kserve-predictor.yaml")[0])["containers"][0]
    assert (service["args"], service["resources"]) == (plain["args"], plain["resources"])
