"""What the chart makes of its values, as Helm renders it without a cluster."""

import importlib
import importlib.util
import itertools
import json
import tomllib
from pathlib import Path

import click
import pytest
import yaml
from helm import CHART, NAMESPACE, Helm, HelmFailed, find

from instaslice.api import crd, names, roles
from instaslice.cli.main import instaslice
from instaslice.geometry import models
from instaslice.placement import policies
from instaslice.webhook import manifests, policy

ROOT = Path(__file__).parents[3]
EMULATED = "agent.emulated.enabled=true"
CERT_MANAGER = ("certManager.enabled=true",)
WITH_CERT_MANAGER = ("--api-versions=cert-manager.io/v1",)
FLAGS = {
    "taint_nodes": "controller.taintNodes=true",
    "static_mig_labels": "controller.staticMigLabels=true",
    "keep_quotas": "controller.keepQuotas=true",
    "autoscaling_hints": "controller.autoscalingHints=3",
}
PROCESSES = {"controller": "Deployment", "webhook": "Deployment", "agent": "DaemonSet"}


@pytest.fixture(scope="module")
def plain():
    return Helm().template()


def pod_of(documents, component):
    return find(documents, PROCESSES[component], f"instaslice-{component}")["spec"]["template"]["spec"]


def arguments(documents, component):
    return pod_of(documents, component)["containers"][0]["args"]


# One source ----------------------------------------------------------------------------------------------------------


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_files_are_those_that_python_writes():
    for path, text in script("write_chart").files().items():
        assert path.read_text() == text, f"{path}: `make generate` writes it again"


def test_the_reference_of_the_values_is_current():
    page = script("write_values")
    assert page.PAGE.read_text() == page.page(), "`make generate` writes it again"


def granted(documents, account):
    """All rules that a ServiceAccount is bound to, with the namespace that they are for."""
    found = []
    for binding in documents:
        if not binding["kind"].endswith("Binding") or "roleRef" not in binding:
            continue
        if not any(each["name"] == account and each["namespace"] == NAMESPACE for each in binding["subjects"]):
            continue
        namespace = binding["metadata"].get("namespace")
        role = find(documents, binding["roleRef"]["kind"], binding["roleRef"]["name"], namespace)
        found += [canonical(namespace or "", each) for each in role["rules"]]
    return set(found)


def canonical(namespace, rule):
    return namespace, json.dumps(rule, sort_keys=True)


def expected(role):
    parts = [("", role.cluster), (NAMESPACE, role.own), (names.PLACEHOLDERS, role.placeholders)]
    return {canonical(where, each) for where, rules in parts for each in rules}


COMBINATIONS = [[*each] for size in (0, 1, 4) for each in itertools.combinations(FLAGS, size)]


@pytest.mark.parametrize("flags", COMBINATIONS, ids=lambda flags: " and ".join(flags) or "no flags")
def test_the_controller_is_granted_what_its_flags_need(flags):
    documents = Helm().template(*(FLAGS[flag] for flag in flags))
    assert granted(documents, "instaslice-controller") == expected(roles.controller(**dict.fromkeys(flags, True)))


def test_agent_and_webhook_are_granted_what_they_need(plain):
    assert granted(plain, "instaslice-agent") == expected(roles.agent())
    assert granted(plain, "instaslice-webhook") == expected(roles.webhook())


def test_with_cert_manager_the_webhook_may_touch_no_secret_and_no_configuration():
    documents = Helm().template(*CERT_MANAGER, flags=WITH_CERT_MANAGER)
    assert granted(documents, "instaslice-webhook") == expected(roles.WEBHOOK)


def test_cert_manager_issues_what_the_webhook_serves_and_the_api_server_trusts():
    documents = Helm().template(*CERT_MANAGER, flags=WITH_CERT_MANAGER)
    registered = find(documents, "MutatingWebhookConfiguration", names.WEBHOOK)
    namespace, certificate = registered["metadata"]["annotations"]["cert-manager.io/inject-ca-from"].split("/")
    issued = find(documents, "Certificate", certificate, namespace)["spec"]
    service = registered["webhooks"][0]["clientConfig"]["service"]
    assert issued["dnsNames"] == [f"{service['name']}.{service['namespace']}.svc"]
    (volume,) = (each for each in pod_of(documents, "webhook")["volumes"] if each["name"] == "certificates")
    assert volume["secret"]["secretName"] == issued["secretName"]
    assert find(documents, "Issuer", issued["issuerRef"]["name"])["spec"]["ca"]
    assert "--cert-dir=/etc/instaslice/certificates" in arguments(documents, "webhook")


def test_each_process_runs_as_its_own_account(plain):
    for component in PROCESSES:
        account = pod_of(plain, component)["serviceAccountName"]
        assert account == f"instaslice-{component}"
        assert find(plain, "ServiceAccount", account)["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize("namespaces", [[], ["team-a", "team-b"]], ids=["everywhere", "in two namespaces"])
def test_registration_and_policies_are_those_of_python_for_the_controllers_account(namespaces):
    documents = Helm().template(f"webhook.namespaces={{{','.join(namespaces)}}}" if namespaces else EMULATED)
    trusted = [f"system:serviceaccount:{NAMESPACE}:{names.CONTROLLER}"]
    wanted = [
        manifests.configuration(manifests.in_service(), namespaces=namespaces),
        *policy.policies(trusted, namespaces=namespaces),
        *policy.bindings(),
    ]
    for each in wanted:
        there = find(documents, each["kind"], each["metadata"]["name"])
        assert {key: there[key] for key in each if key != "metadata"} == {
            key: value for key, value in each.items() if key != "metadata"
        }


def test_the_release_may_be_in_another_namespace():
    text = yaml.safe_dump(Helm(namespace="gpus").template())
    assert NAMESPACE not in text
    assert "system:serviceaccount:gpus:instaslice-controller" in text
    assert "${" not in text


@pytest.mark.parametrize(
    "settings, annotations",
    [
        pytest.param([], {"helm.sh/resource-policy": "keep"}, id="it outlives the release"),
        pytest.param(["crds.keep=false"], None, id="it goes with the release"),
    ],
)
def test_the_definition_is_that_of_python(settings, annotations):
    there = find(Helm().template(*settings), "CustomResourceDefinition", crd.NAME)
    assert there["spec"] == crd.definition()["spec"]
    assert there["metadata"].get("annotations") == annotations


def test_the_definition_may_be_left_to_others():
    assert "CustomResourceDefinition" not in {each["kind"] for each in Helm().template("crds.install=false")}


def test_the_version_is_that_of_the_package():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["appVersion"], chart["version"]) == (package, package)


# Values --------------------------------------------------------------------------------------------------------------

NO_VALUE = {
    "kubeconfig": "a pod has its ServiceAccount",
    "help": "is no setting",
    "identity": "the name of the pod is unique",
    "host": "a pod listens on all its addresses",
    "configuration": "the chart names it",
    "service": "the chart names it",
    "nodes": "each agent serves the node that it runs on",
}
"""Flags that no value sets, and why."""
EVERY_VALUE = """
controller: {policy: first-fit, patience: 0, createTimeout: 1, bindTimeout: 2, nodeTimeout: 3, taintNodes: true,
  staticMigLabels: true, keepQuotas: true, autoscalingHints: 4, rate: 100, extraArgs: [--more]}
webhook: {port: 8443, models: [H200, A30], maxGpus: 8, checkEvery: 5, drain: 0, serveAs: [x.y], extraArgs: [--more]}
agent: {gpus: "0,1", enableMig: true, keepForeign: true, grace: 0, deadline: 5, rate: 10, driverSpecs: [/a/b],
  dcgmJobMappingDir: /jobs, extraArgs: [--more]}
metrics: {auth: true, certificateSecret: tls}
logs: {format: json, level: debug}
"""


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """The arguments of each process with all of its values set; an agent has two kinds of GPUs, and a webhook two kinds
    of certificates."""
    file = tmp_path_factory.mktemp("values") / "values.yaml"
    file.write_text(EVERY_VALUE)
    real = Helm().template(flags=(f"--values={file}",))
    emulated = Helm().template(EMULATED, "agent.emulated.latency=h200", "agent.emulated.count=2")
    issued = Helm().template(*CERT_MANAGER, flags=WITH_CERT_MANAGER)
    return {
        "controller": arguments(real, "controller"),
        "webhook": [*arguments(real, "webhook"), *arguments(issued, "webhook")],
        "agent": [*arguments(real, "agent"), *arguments(emulated, "agent")],
    }


@pytest.mark.parametrize("process", PROCESSES)
def test_every_flag_of_a_process_is_set_by_a_value(everything, process):
    given = {each.partition("=")[0] for each in everything[process]}
    command = instaslice.get_command(click.Context(instaslice), process)
    flags = {each.opts[-1] for each in command.params if each.name not in NO_VALUE}
    assert flags - given == set()
    assert "--more" in given


def test_values_arrive_as_they_are_written(everything):
    assert {"--patience=0", "--taint-nodes", "--autoscaling-hints=4", "--rate=100"} <= set(everything["controller"])
    assert {"--model=H200", "--model=A30", "--drain=0"} <= set(everything["webhook"])
    assert {"--gpus=0,1", "--grace=0", "--latency=h200", "--count=2", "--emulated"} <= set(everything["agent"])


@pytest.mark.parametrize("process", PROCESSES)
def test_the_commands_take_the_arguments_of_the_chart(process):
    """Click reads them all, defaults of the chart included."""
    command = instaslice.get_command(click.Context(instaslice), process)
    for documents in (Helm().template(), Helm().template(EMULATED)):
        _, *flags = arguments(documents, process)
        command.make_context(process, [each.replace("$(NODE_NAME)", "a-node") for each in flags])


def test_a_process_decides_what_no_value_says(plain):
    flags = [f"--namespace={NAMESPACE}", "--autoscaling-hints=0", "--observe=:9510"]
    assert arguments(plain, "controller") == ["controller", *flags]


def test_the_address_of_the_api_server_reaches_every_pod():
    documents = Helm().template("apiServer.host=10.0.0.1", "apiServer.port=7443")
    wanted = [{"name": "KUBERNETES_SERVICE_HOST", "value": "10.0.0.1"}]
    wanted += [{"name": "KUBERNETES_SERVICE_PORT", "value": "7443"}]
    pods = [pod_of(documents, component) for component in PROCESSES]
    pods.append(find(documents, "Job", "instaslice-uninstall")["spec"]["template"]["spec"])
    for pod in pods:
        env = pod["containers"][0]["env"]
        assert [each for each in env if each["name"].startswith("KUBERNETES_")] == wanted
    ports = find(documents, "NetworkPolicy", "instaslice")["spec"]["egress"][0]["ports"]
    assert 7443 in [each["port"] for each in ports]


def test_a_digest_takes_precedence_over_a_tag():
    digest = "sha256:" + "a" * 64
    documents = Helm().template("image.repository=host/x", "image.tag=v1", f"image.digest={digest}")
    assert {pod_of(documents, each)["containers"][0]["image"] for each in PROCESSES} == {f"host/x@{digest}"}


def test_the_schema_names_the_policies_and_models_that_there_are():
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    assert schema["controller"]["properties"]["policy"]["enum"] == [*policies.names(), None]
    known = schema["agent"]["properties"]["emulated"]["properties"]["model"]["enum"]
    assert known == [each.name for each in models.known() if each.memory_slices]


def test_the_schema_knows_every_value_and_the_values_show_every_key_of_the_schema():
    def keys(schema, path=""):
        for name, inner in schema.get("properties", {}).items():
            yield f"{path}{name}"
            yield from keys(inner, f"{path}{name}.")

    def shown(values, path=""):
        for name, inner in values.items():
            yield f"{path}{name}"
            if isinstance(inner, dict):
                yield from shown(inner, f"{path}{name}.")

    schema = set(keys(json.loads((CHART / "values.schema.json").read_text()))) - {"global"}
    values = set(shown(yaml.safe_load((CHART / "values.yaml").read_text())))
    assert schema - values == set()
    free = (".resources.", ".nodeSelector.", ".labels.")  # objects of Kubernetes
    assert {each for each in values - schema if not any(part in each for part in free)} == set()


# Pods ----------------------------------------------------------------------------------------------------------------


def pods(documents):
    """Name → the spec of every pod that the chart makes."""
    for each in documents:
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], each["spec"]
        elif "template" in each.get("spec", {}):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


@pytest.mark.parametrize("settings", [[], [EMULATED], ["controller.autoscalingHints=1"]], ids=" ".join)
def test_no_container_may_more_than_it_needs(settings):
    made = dict(pods(Helm().template(*settings)))
    agent = made.pop("instaslice-agent")
    assert len(made) == 4
    for spec in made.values():
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert not spec.get("hostPID") and not spec.get("hostNetwork")
        assert not [each for each in spec.get("volumes", ()) if "hostPath" in each]
    for spec in (*made.values(), agent):
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        if spec is not agent or EMULATED in settings:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert "privileged" not in container["securityContext"]
        else:
            assert container["securityContext"]["privileged"] is True


def test_the_agent_reaches_only_what_it_serves(plain):
    paths = [each["hostPath"]["path"] for each in pod_of(plain, "agent")["volumes"] if "hostPath" in each]
    assert paths == [
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet/pod-resources",
        "/var/run/cdi",
        "/var/lib/instaslice",
        "/dev",
        "/proc",
        "/etc/cdi",
    ]
    emulated = pod_of(Helm().template(EMULATED), "agent")["volumes"]
    assert [each["hostPath"]["path"] for each in emulated if "hostPath" in each] == paths[:4]


def test_specifications_in_one_folder_are_mounted_once():
    documents = Helm().template("agent.driverSpecs={/var/run/cdi/nvidia.yaml,/opt/a.yaml,/opt/b.yaml}")
    mounts = [each["mountPath"] for each in pod_of(documents, "agent")["containers"][0]["volumeMounts"]]
    assert sorted(set(mounts)) == sorted(mounts)
    assert "/opt" in mounts


def test_where_the_agent_runs(plain):
    assert pod_of(plain, "agent")["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert pod_of(Helm().template(EMULATED), "agent")["nodeSelector"] == {"kubernetes.io/os": "linux"}
    chosen = Helm().template(r"agent.nodeSelector.example\.com/gpus=mig")
    assert pod_of(chosen, "agent")["nodeSelector"] == {"example.com/gpus": "mig"}


def test_selectors_select_the_pods_and_no_others(plain):
    labels = {}
    for each in plain:
        if "template" in each.get("spec", {}):
            labels[each["metadata"]["name"]] = each["spec"]["template"]["metadata"]["labels"]

    def selected(selector):
        return {name for name, has in labels.items() if selector.items() <= has.items()}

    for name in ("controller", "webhook"):
        budget = find(plain, "PodDisruptionBudget", f"instaslice-{name}")["spec"]
        assert selected(budget["selector"]["matchLabels"]) == {f"instaslice-{name}"}
        (spread, _) = pod_of(plain, name)["topologySpreadConstraints"]
        assert selected(spread["labelSelector"]["matchLabels"]) == {f"instaslice-{name}"}
    service = find(plain, "Service", "instaslice-webhook")
    assert selected(service["spec"]["selector"]) == {"instaslice-webhook"}
    policy_of_webhook = find(plain, "NetworkPolicy", "instaslice-webhook")["spec"]
    assert selected(policy_of_webhook["podSelector"]["matchLabels"]) == {"instaslice-webhook"}
    # The Job of the uninstall too: it asks the API server.
    assert selected(find(plain, "NetworkPolicy", "instaslice")["spec"]["podSelector"]["matchLabels"]) == set(labels)


# Metrics -------------------------------------------------------------------------------------------------------------

PROMETHEUS = ("--api-versions=monitoring.coreos.com/v1",)
MONITORED = ("metrics.serviceMonitor.enabled=true", "metrics.rules.enabled=true", "metrics.dashboard.enabled=true")


def port_of(documents, component):
    (container,) = pod_of(documents, component)["containers"]
    return {each["name"]: each["containerPort"] for each in container["ports"]}["observe"], container


@pytest.mark.parametrize("component", PROCESSES)
@pytest.mark.parametrize(
    "settings, scheme",
    [
        pytest.param([], "HTTP", id="plain"),
        pytest.param(["metrics.auth=true"], "HTTPS", id="with TokenReview"),
        pytest.param(["metrics.certificateSecret=tls"], "HTTPS", id="with a certificate"),
    ],
)
def test_probes_ask_where_the_process_serves(component, settings, scheme):
    documents = Helm().template(*settings)
    port, container = port_of(documents, component)
    assert f"--observe=:{port}" in container["args"]
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "observe", "scheme": scheme}


def test_who_reads_metrics_needs_a_right_only_where_it_is_asked_for(plain):
    documents = Helm().template("metrics.auth=true")
    for account, role in (
        ("instaslice-agent", roles.agent()),
        ("instaslice-webhook", roles.webhook()),
        ("instaslice-controller", roles.controller()),
    ):
        assert granted(documents, account) == expected(role) | expected(roles.METRICS_AUTH)
    name = roles.METRICS_READER["metadata"]["name"]
    assert find(documents, "ClusterRole", name)["rules"] == roles.METRICS_READER["rules"]
    assert name not in {each["metadata"]["name"] for each in plain}


def test_what_prometheus_and_grafana_get():
    documents = Helm().template(*MONITORED, flags=PROMETHEUS)
    monitor = find(documents, "ServiceMonitor", "instaslice")["spec"]
    service = find(documents, "Service", "instaslice-metrics")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in [each["name"] for each in service["spec"]["ports"]]
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    assert find(documents, "PrometheusRule", "instaslice")["spec"] == alerts
    board = find(documents, "ConfigMap", "instaslice-dashboard")
    assert json.loads(board["data"]["instaslice.json"]) == json.loads((CHART / "files" / "dashboard.json").read_text())
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_only_monitoring_reaches_the_ports_of_metrics(plain):
    rule = find(plain, "NetworkPolicy", "instaslice-metrics")["spec"]["ingress"][0]
    (expression,) = rule["from"][0]["namespaceSelector"]["matchExpressions"]
    assert (expression["values"], rule["ports"]) == (["monitoring"], [{"protocol": "TCP", "port": "observe"}])


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, message",
    [
        pytest.param(["controller.polcy=best-fit"], "polcy", id="a value that does not exist"),
        pytest.param(["controller.policy=random"], "controller/policy", id="a policy that does not exist"),
        pytest.param(["controller.replicas=0"], "controller/replicas", id="no controller"),
        pytest.param(["agent.emulated.model=A1000"], "agent/emulated/model", id="a model that nobody knows"),
        pytest.param(["agent.emulated.count=65"], "agent/emulated/count", id="more GPUs than a node has"),
        pytest.param(["controller.taintNodes=perhaps"], "controller/taintNodes", id="neither true nor false"),
        pytest.param(["webhook.port=99999"], "webhook/port", id="no such port"),
        pytest.param(["agent.kubeletDir=kubelet"], "agent/kubeletDir", id="a relative folder"),
        pytest.param(["image.digest=abc"], "image/digest", id="no digest"),
        pytest.param(["test.profile=small"], "test/profile", id="no profile"),
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
            [f"test.namespace={NAMESPACE}"], "since it is InstaSlice's own; name another", id="a test in our namespace"
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(HelmFailed) as refused:
        Helm().template(*settings)
    assert message in str(refused.value)


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
