"""What the values of the chart do, and that each flag of a process has one."""

import json

import click
import pytest
import yaml
from helm import CHART, NAMESPACE, Helm, find
from rendered import CERT_MANAGER, EMULATED, PROCESSES, WITH_CERT_MANAGER, arguments, pod_of

from instaslice.cli.main import instaslice
from instaslice.geometry import models

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
  staticMigLabels: true, keepQuotas: true, autoscalingHints: 4,
  admissionCheck: true, admissionHold: 30, rate: 100, extraArgs: [--more]}
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


@pytest.mark.parametrize("drain, grace", [("null", 30), ("0", 30), ("60", 85)])
def test_a_webhook_has_time_to_end_after_its_drain(drain, grace):
    documents = Helm().template(f"webhook.drain={drain}")
    assert pod_of(documents, "webhook")["terminationGracePeriodSeconds"] == grace


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
    for pod in pods:
        env = pod["containers"][0]["env"]
        assert [each for each in env if each["name"].startswith("KUBERNETES_")] == wanted
    ports = find(documents, "NetworkPolicy", "instaslice")["spec"]["egress"][0]["ports"]
    assert 7443 in [each["port"] for each in ports]


@pytest.mark.parametrize(
    "host, resolved", [("api.example", True), ("10.0.0.1", False), ("fd00::1", False), ("", False)]
)
def test_pods_may_resolve_the_name_of_the_api_server(host, resolved):
    (rule,) = find(Helm().template(f"apiServer.host={host}"), "NetworkPolicy", "instaslice")["spec"]["egress"]
    assert [each["protocol"] for each in rule["ports"] if each["port"] == 53] == (["UDP", "TCP"] if resolved else [])


def test_pods_name_a_priority_class_only_if_there_is_one():
    none = Helm().template("priorityClass.create=false", "priorityClass.name=")
    other = Helm().template("priorityClass.create=false", "priorityClass.name=high")
    for documents, name in ((none, None), (other, "high")):
        assert "PriorityClass" not in {each["kind"] for each in documents}
        assert {pod_of(documents, each).get("priorityClassName") for each in PROCESSES} == {name}


def test_a_digest_takes_precedence_over_a_tag():
    digest = "sha256:" + "a" * 64
    documents = Helm().template("image.repository=host/x", "image.tag=v1", f"image.digest={digest}")
    assert {pod_of(documents, each)["containers"][0]["image"] for each in PROCESSES} == {f"host/x@{digest}"}


def smallest(documents):
    (container,) = find(documents, "Job", "instaslice-test")["spec"]["template"]["spec"]["containers"]
    (resource,) = container["resources"]["limits"]
    return resource.removeprefix("nvidia.com/mig-")


@pytest.mark.parametrize(
    "settings, profile",
    [
        pytest.param([], "1g.5gb", id="nothing is known: that of an A100"),
        pytest.param([EMULATED], "1g.5gb", id="the emulated model"),
        pytest.param([EMULATED, "agent.emulated.model=H200-141GB"], "1g.18gb", id="another emulated model"),
        pytest.param([EMULATED, "agent.emulated.model=H200"], "1g.18gb", id="a model by its short name"),
        pytest.param(["webhook.models={B200,A30}"], "1g.23gb", id="the first model of the cluster"),
        pytest.param(["webhook.models=null"], "1g.5gb", id="no models"),
        pytest.param(["test.profile=1g.5gb+me"], "1g.5gb.me", id="a profile that is named"),
        pytest.param([EMULATED, "test.profile=1g.5gb.me"], "1g.5gb.me", id="a profile as a resource"),
    ],
)
def test_the_test_asks_for_a_profile_that_the_gpus_have(settings, profile):
    assert smallest(Helm().template(*settings)) == profile


@pytest.mark.parametrize("model", [each.name for each in models.known() if each.memory_slices])
def test_each_model_has_what_the_test_asks_for(model):
    documents = Helm().template(EMULATED, f"agent.emulated.model={model}")
    assert models.named(model).has(smallest(documents))


def test_the_pod_of_the_test_has_the_credentials_of_the_image():
    job = find(Helm().template("image.pullSecrets={one,two}"), "Job", "instaslice-test")
    assert job["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


def test_what_the_schema_lets_be_null_renders():
    def optional(schema, path=""):
        for name, inner in schema.get("properties", {}).items():
            if name not in schema.get("required", ()):
                yield f"{path}{name}"
            yield from optional(inner, f"{path}{name}.")

    nulls = sorted(set(optional(json.loads((CHART / "values.schema.json").read_text()))) - {"global"})
    assert "controller.nodeSelector" in nulls
    text = yaml.safe_dump(Helm().template(*(f"{each}=null" for each in nulls)))
    assert "<no value>" not in text and "<nil>" not in text


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
