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
        pytest.param(["image.tag=v1@sha256:ab"], "image/tag", id="a tag with a digest"),
        pytest.param(["priorityClass.value=1000000001"], "priorityClass/value", id="a priority of Kubernetes' own"),
        pytest.param(["priorityClass.value=-2147483649"], "priorityClass/value", id="a priority below all"),
        pytest.param(["test.namespace=Team A"], "test/namespace", id="no name of a namespace"),
        pytest.param(["metrics.namespaces={Monitoring}"], "metrics/namespaces/0", id="no name of a namespace either"),
        pytest.param(["agent.driver.library=libnvidia-ml.so.1"], "agent/driver/library", id="a relative library"),
        pytest.param(["agent.driver.runtimeClassName=NVIDIA"], "agent/driver/runtimeClassName", id="no name"),
        pytest.param(["controller.taintNodes=perhaps"], "controller/taintNodes", id="neither true nor false"),
        pytest.param(["webhook.port=99999"], "webhook/port", id="no such port"),
        pytest.param(["agent.kubeletDir=kubelet"], "agent/kubeletDir", id="a relative folder"),
        pytest.param(["image.digest=abc"], "image/digest", id="no digest"),
        pytest.param([r"agent.stateDir=/a\, name: x"], "agent/stateDir", id="a folder that is more YAML"),
        pytest.param([r"agent.driverSpecs={/a\, name: x}"], "agent/driverSpecs/0", id="a file that is more YAML"),
        pytest.param(["agent.maxSurge="], "agent/maxSurge", id="no surge"),
        pytest.param(["agent.maxSurge=0%"], "agent/maxSurge", id="a surge of none"),
        pytest.param(["test.profile=small"], "test/profile", id="no profile"),
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


@pytest.mark.parametrize(
    "setting",
    [
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
