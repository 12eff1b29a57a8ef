"""What our pods may do on their node, where they run, and what selects them."""

import re
import shlex

import pytest
import yaml
from helm import CHART, Helm, find
from rendered import EMULATED, ROOT, pod_of


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
    assert sorted(made) == ["instaslice-controller", "instaslice-test", "instaslice-webhook"]
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


def test_replicas_that_are_not_ready_block_no_drain(plain):
    budgets = [each["spec"] for each in plain if each["kind"] == "PodDisruptionBudget"]
    assert [each["unhealthyPodEvictionPolicy"] for each in budgets] == ["AlwaysAllow", "AlwaysAllow"]


def test_what_the_docs_render_for_kubectl_has_no_hooks(plain):
    page = (ROOT / "docs/install.md").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^\$ (helm template .*) \| kubectl", page, re.MULTILINE)
    (_, _, name, _, _, namespace, *flags) = shlex.split(command)
    text = Helm(namespace=namespace).run("template", name, str(CHART), *flags)
    rendered = [each for each in yaml.safe_load_all(text) if each]
    assert {"Namespace", "DaemonSet"} <= {each["kind"] for each in rendered}

    def hooks(documents):
        named = [each for each in documents if "helm.sh/hook" in each["metadata"].get("annotations", {})]
        return [each["metadata"]["name"] for each in named]

    assert sorted(hooks(plain)) == ["instaslice-test", "instaslice-uninstall"]
    assert hooks(rendered) == []


def test_selectors_select_the_pods_and_no_others(plain):
    labels = {}
    for each in plain:
        # That of `helm test` runs in another namespace.
        if "template" in each.get("spec", {}) and each["kind"] != "Job":
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
    assert selected(find(plain, "NetworkPolicy", "instaslice")["spec"]["podSelector"]["matchLabels"]) == set(labels)
