"""What the chart refuses because of what is in a cluster already: rendered by Helm with a real API server to ask."""

from contextlib import suppress

import pytest
from helm import CHART, Helm, HelmFailed
from rendered import EMULATED
from waiting import until

from instaslice.api.names import WEBHOOK
from instaslice.kube.client import Selector
from instaslice.kube.core import NAMESPACES, NODES, PODS, PartialObjectMetadata
from instaslice.kube.errors import AlreadyExists, NotFound
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.local.objects import BINDINGS, ROLES
from instaslice.local.pki import Authority
from instaslice.webhook.manifests import CONFIGURATIONS

DAEMON_SETS = Resource(PartialObjectMetadata, "DaemonSet", "daemonsets", group="apps")
RUNTIME_CLASSES = Resource(
    PartialObjectMetadata, "RuntimeClass", "runtimeclasses", group="node.k8s.io", namespaced=False
)
ASK = ("--dry-run=server", "--take-ownership")
"""Other tests of this cluster have put things of ours into it, the definition for one."""
DEVICE_PLUGIN = "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"
MIG_MANAGER = "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.12.1"


@pytest.fixture
async def helm(cluster, client, namespace):
    """The chart, as it would be installed into the namespace of the test. The cluster has NVIDIA's RuntimeClass."""
    with suppress(AlreadyExists):
        await client.create(RUNTIME_CLASSES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    yield Helm(cluster.kubeconfig, namespace=namespace)
    await client.delete(RUNTIME_CLASSES, Key("", "nvidia"))


@pytest.fixture
async def nvidia(client, namespace):
    """Runs a DaemonSet of NVIDIA's on nodes with these labels: `await nvidia(image, labels)`."""
    labels = {"app": "nvidia"}

    async def run(image, node_labels):
        spec = {"nodeSelector": node_labels, "containers": [{"name": "main", "image": image}]}
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {"selector": {"matchLabels": labels}, "template": template}
        await client.create(DAEMON_SETS, {"metadata": {"namespace": namespace, "name": "nvidia"}, "spec": body})
        await until(bound, 60)

    async def bound():
        found = await client.list(PODS, Selector(namespace=namespace, labels="app=nvidia"))
        return found and all(each.spec.node_name for each in found)

    yield run
    with suppress(NotFound):
        await client.delete(DAEMON_SETS, Key(namespace, "nvidia"))


@pytest.mark.parametrize(
    "image, what",
    [
        pytest.param(DEVICE_PLUGIN, "NVIDIA's device plugin", id="device plugin"),
        pytest.param(MIG_MANAGER, "NVIDIA's MIG manager", id="MIG manager"),
    ],
)
async def test_what_partitions_or_hands_out_the_same_gpus_is_refused(helm, nvidia, image, what):
    helm.template(flags=ASK)
    await nvidia(image, {"nvidia.com/gpu.present": "true"})
    with pytest.raises(HelmFailed, match=rf"{what} runs on node gpu-\d \(DaemonSet {helm.namespace}/nvidia\)"):
        helm.template(flags=ASK)
    # The administrator knows better; other nodes; no real GPUs.
    helm.template("guards.nvidia=false", flags=ASK)
    helm.template("agent.nodeSelector.pool=mig", flags=ASK)
    helm.template("agent.emulated.enabled=true", flags=ASK)


async def test_nvidias_plugin_may_stay_on_other_nodes(helm, nvidia):
    await nvidia(DEVICE_PLUGIN, {"kubernetes.io/hostname": "gpu-0"})
    helm.template(r"agent.nodeSelector.kubernetes\.io/hostname=gpu-1", flags=ASK)
    with pytest.raises(HelmFailed, match="runs on node gpu-0"):
        helm.template(r"agent.nodeSelector.kubernetes\.io/hostname=gpu-0", flags=ASK)


async def test_other_daemon_sets_are_nobodys_business(helm, nvidia):
    await nvidia("nvcr.io/nvidia/k8s/dcgm-exporter:4.2.0", {"nvidia.com/gpu.present": "true"})
    helm.template(flags=ASK)


async def test_a_cluster_without_the_runtime_class_is_refused(helm):
    absent = "agent.driver.runtimeClassName=absent"
    with pytest.raises(HelmFailed, match="This cluster has no RuntimeClass absent"):
        helm.template(absent, flags=ASK)
    helm.template(absent, "guards.runtimeClass=false", flags=ASK)
    helm.template(absent, "agent.emulated.enabled=true", flags=ASK)
    helm.template("agent.driver.runtimeClassName=", flags=ASK)


def notes(helm, *settings):
    flags = [f"--set={each}" for each in settings]
    printed = helm.run("install", "instaslice", str(CHART), "--dry-run=server", "--take-ownership", *flags)
    return printed.partition("\nNOTES:\n")[2]


async def test_who_installs_is_told_that_no_node_has_the_labels(helm):
    said = notes(helm, "agent.nodeSelector.pool=mig", "agent.nodeSelector.zone=a")
    assert "no node has the labels pool=mig and zone=a" in said
    assert "kubectl label node NODE pool=mig zone=a" in said
    for settings in ([], ["agent.emulated.enabled=true"]):
        assert "DESIRED" not in notes(helm, *settings)


async def test_the_test_asks_for_what_the_labelled_gpus_have(helm, client):
    node = Key("", "gpu-0")
    label = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    before = (await client.get(NODES, node)).metadata.labels["nvidia.com/gpu.product"]
    assert "a slice (1g.5gb;" in notes(helm)
    await client.merge(NODES, node, {"metadata": {"labels": label}})
    try:
        assert "a slice (1g.18gb;" in notes(helm)
    finally:
        await client.merge(NODES, node, {"metadata": {"labels": {"nvidia.com/gpu.product": before}}})


async def test_a_secret_that_the_test_needs_is_missed(helm):
    assert "in the namespace default, which has no Secret registry" in notes(helm, "image.pullSecrets={registry}")


async def test_das_is_refused(helm, client, namespace):
    hook = {
        "name": "instaslice.redhat.com",
        "clientConfig": {"url": "https://127.0.0.1:1/mutate"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
    }
    await client.create(CONFIGURATIONS, {"metadata": {"name": f"das-{namespace}"}, "webhooks": [hook]})
    try:
        with pytest.raises(HelmFailed, match=rf"MutatingWebhookConfiguration das-{namespace} belongs to DAS"):
            helm.template(flags=ASK)
        helm.template("guards.das=false", flags=ASK)
    finally:
        await client.delete(CONFIGURATIONS, Key("", f"das-{namespace}"))


@pytest.mark.parametrize(
    "annotations, service, found",
    [
        pytest.param({"release-name": "first"}, None, "release first", id="another release in our namespace"),
        pytest.param(
            {"release-name": "instaslice", "release-namespace": "gpus"},
            "gpus",
            "release instaslice in the namespace gpus",
            id="a release of the same name elsewhere",
        ),
        pytest.param({}, "gpus", "in the namespace gpus", id="one without Helm elsewhere"),
        pytest.param({"release-name": "instaslice", "release-namespace": "OURS"}, "OURS", "", id="an upgrade"),
        pytest.param({}, "OURS", "", id="one without Helm in our namespace"),
        pytest.param({}, None, "", id="one that no Service stands for"),
    ],
)
async def test_a_second_installation_is_refused(helm, client, namespace, annotations, service, found):
    annotations = {f"meta.helm.sh/{key}": value.replace("OURS", namespace) for key, value in annotations.items()}
    url = {"url": "https://127.0.0.1:1/mutate"}
    reference = {"service": {"name": WEBHOOK, "namespace": (service or "").replace("OURS", namespace)}}
    hook = {
        "name": "pods.instaslice.test",
        "clientConfig": reference if service else url,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
    }
    await client.create(CONFIGURATIONS, {"metadata": {"name": WEBHOOK, "annotations": annotations}, "webhooks": [hook]})
    try:
        if not found:
            helm.template(flags=ASK)
            return
        with pytest.raises(HelmFailed, match=rf"This cluster has an InstaSlice already: .*{found}"):
            helm.template(flags=ASK)
    finally:
        await client.delete(CONFIGURATIONS, Key("", WEBHOOK))


@pytest.mark.parametrize("level", ["baseline", "restricted", "privileged"])
async def test_a_namespace_whose_pod_security_forbids_the_agent_is_refused(helm, client, namespace, level):
    labels = {"pod-security.kubernetes.io/enforce": level}
    await client.merge(NAMESPACES, Key("", namespace), {"metadata": {"labels": labels}})
    if level == "privileged":
        helm.template(flags=ASK)
        return
    with pytest.raises(HelmFailed, match=rf"enforces the Pod Security level {level}") as refused:
        helm.template(flags=ASK)
    assert f"kubectl label namespace {namespace} {'pod-security.kubernetes.io/enforce'}=privileged" in str(
        refused.value
    )
    helm.template("guards.podSecurity=false", flags=ASK)


async def test_who_may_not_install_is_told_what_is_missing(cluster, client, namespace, tmp_path):
    """Of a user who may read everything and write nothing."""
    authority = Authority(cluster.plane().layout.pki)
    pair = authority.issue(f"reader-{namespace}", f"reader-{namespace}")
    file = authority.kubeconfig(tmp_path / "reader", server=cluster.plane().server, client=pair, name="reader")
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"reader-{namespace}"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"reader-{namespace}"}
    await client.create(ROLES, {"metadata": {"name": f"reader-{namespace}"}, "rules": rules})
    binding = {"metadata": {"name": f"reader-{namespace}"}, "subjects": [user], "roleRef": reference}
    await client.create(BINDINGS, binding)
    try:

        def message():
            with pytest.raises(HelmFailed) as refused:
                Helm(file, namespace=namespace).run(
                    "install", "instaslice", str(Helm.chart), "--timeout=5s", "--take-ownership", f"--set={EMULATED}"
                )
            return str(refused.value)

        # Until the authorizer has heard of the role it may not even read.
        await until(lambda: "cannot create resource" in message(), 30)
        assert f"reader-{namespace}" in message()
    finally:
        await client.delete(BINDINGS, Key("", f"reader-{namespace}"))
        await client.delete(ROLES, Key("", f"reader-{namespace}"))
