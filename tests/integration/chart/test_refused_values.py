"""What the chart refuses by its values alone."""

import pytest
from helm import CHART, NAMESPACE, Helm, HelmFailed
from rendered import EMULATED


@pytest.mark.parametrize(
    "settings, message",
    [
        pytest.param(["controller.polcy=best-fit"], "polcy", id="a value that does not exist"),
        pytest.param(["controller.policy=random"], "controller/policy", id="a policy that does not exist"),
        pytest.param(["controller.replicas=0"], "controller/replicas", id="no controller"),
        pytest.param(["agent.emulated.model=A1000"], "agent/emulated/model", id="a model that nobody knows"),
        pytest.param(["agent.emulated.count=17"], "agent/emulated/count", id="more GPUs than a node has"),
        pytest.param(["webhook.models={A30,A1000}"], "webhook/models/1", id="a model of the cluster that nobody knows"),
        pytest.param(["priorityClass.value=1000000001"], "priorityClass/value", id="a priority of Kubernetes' own"),
        pytest.param(["priorityClass.value=-2147483649"], "priorityClass/value", id="a priority below all"),
        pytest.param(["controller.taintNodes=perhaps"], "controller/taintNodes", id="neither true nor false"),
        pytest.param(["webhook.port=99999"], "webhook/port", id="no such port"),
        pytest.param(["metrics=null"], "missing property 'metrics'", id="a section that is null"),
        pytest.param(["agent.emulated=null"], "missing property 'emulated'", id="a section within one that is null"),
        pytest.param(["metrics.certificateSecret=null"], "missing property 'certificateSecret'", id="a null name"),
        pytest.param(["webhook.namespaces=null"], "missing property 'namespaces'", id="a null list that is needed"),
    ],
)
def test_the_schema_refuses(settings, message):
    with pytest.raises(HelmFailed, match="values don't meet the specifications of the schema") as refused:
        Helm().template(*settings)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "settings, message",
    [
        pytest.param(
            [EMULATED, "agent.gpus=0"], "agent.emulated.enabled is for nodes without GPUs", id="emulated GPUs by index"
        ),
        pytest.param([EMULATED, "agent.enableMig=true"], "are for real ones", id="MIG mode of emulated GPUs"),
        pytest.param(
            ["agent.driver.library=/usr/lib/libnvidia-ml.so.1"],
            "agent.driver.library and agent.driver.runtimeClassName both bring",
            id="the library twice",
        ),
        pytest.param(
            ["agent.driver.library=/usr/lib", "agent.driver.runtimeClassName="],
            "agent.driver.library=/usr/lib: give the path of libnvidia-ml.so.1",
            id="a folder as library",
        ),
        pytest.param(
            ["webhook.port=9511"], "webhook.port=9511: the webhook serves its metrics", id="the port of metrics"
        ),
        pytest.param(
            ["priorityClass.create=false"],
            "nobody creates the PriorityClass instaslice",
            id="a class that is not there",
        ),
        pytest.param(["agent.driverSpecs={/tmp/x.yaml}"], "would have the folder /tmp twice", id="/tmp twice"),
        pytest.param(["agent.stateDir=/var/run/cdi/"], "would have the folder /var/run/cdi twice", id="a folder twice"),
        pytest.param(["priorityClass.name="], "priorityClass.create needs priorityClass.name", id="a nameless class"),
        pytest.param(
            ["certManager.enabled=true"], "this cluster has no cert-manager.io/v1", id="no cert-manager in the cluster"
        ),
        pytest.param(
            ["metrics.rules.enabled=true"], "this cluster has no monitoring.coreos.com/v1", id="no Prometheus Operator"
        ),
        pytest.param(
            ["webhook.namespaces={kube-system}"], "pods in kube-system never get slices", id="slices for the system"
        ),
        pytest.param(
            ["webhook.namespaces={team-a,team-b}"],
            "`helm test` could not pass; name one of these: team-a, team-b",
            id="a test where pods get no slices",
        ),
        pytest.param(
            [f"test.namespace={NAMESPACE}"],
            f"test.namespace={NAMESPACE}: pods there never get slices",
            id="a test in our namespace",
        ),
        pytest.param(
            ["test.namespace=kube-system"], "name a namespace of your users", id="a test in Kubernetes' namespace"
        ),
        pytest.param(
            [EMULATED, "agent.emulated.model=H200", "test.profile=1g.5gb"],
            "test.profile=1g.5gb: H200-141GB has no such profile; take one of 1g.18gb, 1g.35gb",
            id="a profile that the emulated model has not",
        ),
        pytest.param(
            ["webhook.models={H200,A30}", "test.profile=1g.5gb"],
            "H200-141GB, A30 has no such profile",
            id="a profile that no model of the cluster has",
        ),
        pytest.param(
            [EMULATED, "agent.emulated.model=H200", "webhook.models={A30}"],
            "agent.emulated.model=H200 is not among webhook.models (A30)",
            id="an emulated model whose pods are refused",
        ),
        pytest.param(
            ["apiServer.host=https://10.0.0.1"], "apiServer.host=https://10.0.0.1: give the name", id="a host by scheme"
        ),
        pytest.param(["apiServer.host=10.0.0.1:6443"], "the port is apiServer.port", id="a host with a port"),
        pytest.param(["apiServer.host=[fd00::1]"], "or brackets", id="a host in brackets"),
        pytest.param(["apiServer.host=api.example/x"], "without https://, port, path", id="a host with a path"),
        pytest.param(
            ["image.repository=reg.io:5000/a/instaslice:v1"],
            "holds a tag; give it by itself: --set image.repository=reg.io:5000/a/instaslice --set-string image.tag=v1",
            id="a tag in the repository",
        ),
        pytest.param(
            ["image.repository=reg.io/instaslice:v1@sha256:ab"],
            "--set image.repository=reg.io/instaslice --set image.digest=sha256:ab",
            id="a digest in the repository",
        ),
        pytest.param(["image.repository=https://reg.io/a"], "leave out the https://", id="a repository by scheme"),
        pytest.param(["image.repository=reg.io/InstaSlice"], "is no name of an image", id="capitals in a repository"),
        pytest.param(
            ["priorityClass.name=system-node-critical"], "are reserved for Kubernetes", id="a class of Kubernetes"
        ),
        pytest.param(
            [r"agent.podLabels.app\.kubernetes\.io/name=x"],
            "agent.podLabels: the chart sets app.kubernetes.io/name itself",
            id="a label that selects our pods",
        ),
        pytest.param(
            ["metrics.serviceMonitor.tlsConfig.serverName=x"],
            "metrics.serviceMonitor.tlsConfig: the metrics are served without TLS",
            id="how to check a certificate that nobody has",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(HelmFailed) as refused:
        Helm().template(*settings)
    assert message in str(refused.value)


DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    "setting, expected",
    [
        pytest.param("image.tag=v1@sha256:ab", "a tag: letters and digits", id="a tag with a digest"),
        pytest.param("image.digest=abc", "sha256: and 64 digits", id="no digest"),
        pytest.param(f"image.digest={DIGEST}0", "sha256: and 64 digits", id="a digest that is too long"),
        pytest.param("test.namespace=Team A", "the name of a namespace", id="no name of a namespace"),
        pytest.param("metrics.namespaces={Monitoring}", "the name of a namespace", id="nor one of Prometheus"),
        pytest.param("webhook.namespaces={team_a}", "the name of a namespace", id="nor one of users"),
        pytest.param("agent.driver.library=libnvidia-ml.so.1", "a whole path on the node", id="a relative library"),
        pytest.param("agent.driver.runtimeClassName=NVIDIA", "a name of Kubernetes", id="no name of a class"),
        pytest.param("priorityClass.name=High One", "a name of Kubernetes", id="no name of a priority"),
        pytest.param("agent.kubeletDir=kubelet", "a whole path on the node", id="a relative folder"),
        pytest.param("agent.cdiDir=", "a whole path on the node", id="no folder"),
        pytest.param("agent.dcgmJobMappingDir=dcgm", "a whole path on the node", id="a relative folder for dcgm"),
        pytest.param(r"agent.stateDir=/a\, name: x", "a whole path on the node", id="a folder that is more YAML"),
        pytest.param(r"agent.driverSpecs={/a\, name: x}", "a whole path on the node", id="a file that is more YAML"),
        pytest.param("agent.maxSurge=", "a number of nodes, or a share", id="no surge"),
        pytest.param("agent.maxSurge=0%", "a number of nodes, or a share", id="a surge of none"),
        pytest.param("agent.maxSurge=101%", "a number of nodes, or a share", id="a surge beyond all"),
        pytest.param("metrics.serviceMonitor.interval=30 s", "a number with its unit", id="an interval with a space"),
        pytest.param("test.profile=small", "a profile alone", id="no profile"),
        pytest.param("test.profile=nvidia.com/mig-1g.5gb", "a profile alone", id="the name of a resource"),
    ],
)
def test_a_value_of_another_form_is_named_with_what_was_expected_and_an_example(setting, expected):
    with pytest.raises(HelmFailed) as refused:
        Helm().template(setting)
    name, _, value = setting.partition("=")
    value = value.strip("{}").replace("\\,", ",")
    assert f"{name}={value}: expected {expected}" in str(refused.value)
    assert ". Example: " in str(refused.value)


@pytest.mark.parametrize("gpus", ["0-3", r"0\,x", "all", "GPU-xyz", "0;1", "0 1", "GPU", r"0\,1\,-"])
def test_a_selection_of_gpus_that_is_no_list_of_indexes_uuids_and_models_is_refused(gpus):
    with pytest.raises(HelmFailed) as refused:
        Helm().template(f"agent.gpus={gpus}")
    message = "expected indexes, UUIDs or models of GPUs, each by itself with a comma between them (no range"
    assert message in str(refused.value)


def test_a_slice_is_no_gpu_for_the_agent():
    with pytest.raises(HelmFailed, match="MIG-5f3c is a slice of a GPU; name the whole GPU"):
        Helm().template(r"agent.gpus=0\,MIG-5f3c")


@pytest.mark.parametrize(
    "setting",
    [
        "agent.gpus=",
        "agent.gpus=0",
        "agent.gpus=15",
        r"agent.gpus=0\,1\, 2\,",
        "agent.gpus=GPU-5f3c0e1a-0b1c-2d3e-4f50-617283940a1b",
        r"agent.gpus=gpu-5f\,H200\,NVIDIA A100-SXM4-40GB",
        "agent.maxSurge=1",
        "agent.maxSurge=100%",
        "test.profile=1g.5gb.me",
        "test.profile=1g.10gb+me",
        f"image.digest={DIGEST}",
        "metrics.serviceMonitor.interval=500ms",
        "image.repository=reg.io:5000/a/instaslice",
        "image.repository=localhost:5000/instaslice",
        "image.repository=instaslice",
        "image.repository=ghcr.io/a-b/c_d/e.f",
        "apiServer.host=api.example-1.com",
        "apiServer.host=fd00::1",
        "priorityClass.value=-5",
        "agent.emulated.count=16",
    ],
)
def test_what_looks_alike_is_taken(setting):
    Helm().template(setting)


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
def test_a_namespace_of_others_is_refused(namespace):
    with pytest.raises(HelmFailed, match=f"InstaSlice does not go into the namespace {namespace}"):
        Helm(namespace=namespace).template()


def test_an_old_kubernetes_is_refused():
    with pytest.raises(HelmFailed, match=r"kubeVersion: >=1\.30\.0-0 .*incompatible with Kubernetes v1\.29"):
        Helm().template(flags=("--kube-version=1.29.9",))
    Helm().template(flags=("--kube-version=1.30.0-gke.1",))


def test_helm_finds_nothing_to_complain_of():
    assert "0 chart(s) failed" in Helm().run("lint", "--strict", str(CHART))
