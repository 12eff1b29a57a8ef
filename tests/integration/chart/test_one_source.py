"""What the chart installs is what Python says: RBAC, registration, policies, definition."""

import base64
import importlib.util
import itertools
import subprocess
import tomllib

import pytest
import yaml
from helm import CHART, NAMESPACE, Helm, find
from rendered import CERT_MANAGER, EMULATED, PROCESSES, ROOT, WITH_CERT_MANAGER, arguments, expected, granted, pod_of

from instaslice.api import crd, names, roles
from instaslice.geometry import models
from instaslice.webhook import manifests, policy

FLAGS = {
    "taint_nodes": "controller.taintNodes=true",
    "static_mig_labels": "controller.staticMigLabels=true",
    "keep_quotas": "controller.keepQuotas=true",
    "autoscaling_hints": "controller.autoscalingHints=3",
    "admission_check": "controller.admissionCheck=true",
}


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_files_are_those_that_python_writes():
    for path, text in script("write_chart").files().items():
        assert path.read_text() == text, f"{path}: `make generate` writes it again"


def test_a_gpu_is_known_by_the_label_of_nvidias_feature_discovery():
    products = script("write_chart").known_models()["products"]
    assert products["NVIDIA-A100-SXM4-40GB"] == products["A100-SXM4-40GB"] == "A100-40GB"
    assert {models.named(model).name for model in products.values()} <= set(models.names())


def test_the_reference_of_the_values_is_current():
    page = script("write_values")
    assert page.PAGE.read_text() == page.page(), "`make generate` writes it again"


COMBINATIONS = [[*each] for size in (0, 1, len(FLAGS)) for each in itertools.combinations(FLAGS, size)]


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


def test_cert_managers_authority_outlives_what_it_signs_and_keeps_its_key():
    documents = Helm().template(*CERT_MANAGER, flags=WITH_CERT_MANAGER)
    authority, issued = (find(documents, "Certificate", f"instaslice-{name}")["spec"] for name in ("ca", "webhook"))
    assert "duration" not in issued, "cert-manager's own 90 days"
    assert int(authority["duration"].removesuffix("h")) / 24 > 10 * 90
    assert authority["privateKey"] == {"rotationPolicy": "Never"}


def test_each_process_runs_as_its_own_account(plain):
    for component in PROCESSES:
        account = pod_of(plain, component)["serviceAccountName"]
        assert account == f"instaslice-{component}"
        assert find(plain, "ServiceAccount", account)["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize("namespaces", [[], ["team-a", "team-b"]], ids=["everywhere", "in two namespaces"])
def test_registration_and_policies_are_those_of_python_for_the_controllers_account(namespaces):
    limited = (f"webhook.namespaces={{{','.join(namespaces)}}}", "test.namespace=team-a")
    documents = Helm().template(*(limited if namespaces else (EMULATED,)))
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


DIGEST = f"sha256:{'0a' * 32}"


def deploy(image, *variables):
    return subprocess.run(
        ["make", "-n", "deploy", f"IMG={image}", *variables], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "image",
    [
        "",
        "reg.io/instaslice",
        "reg.io:5000/instaslice",
        "reg.io/instaslice@sha256:ab",
        f"@{DIGEST}",
        f"a:b:c@{DIGEST}",
        "a b:1",
        "a:1 b",
    ],
)
def test_an_image_without_a_tag_or_digest_is_not_deployed(image):
    done = deploy(image)
    assert done.returncode == 2
    assert f"IMG={image}: say which image, with its tag or digest" in done.stderr
    assert done.stdout.count("--set") == 0


@pytest.mark.parametrize("repository", ["instaslice", "reg.io:5000/a/instaslice"])
def test_make_deploys_the_image_that_is_named(repository):
    done = deploy(f"{repository}:v1")
    assert f"--set image.repository={repository} --set-string image.tag=v1 --set image.digest= " in done.stdout


@pytest.mark.parametrize("repository", ["instaslice", "reg.io:5000/a/instaslice"])
@pytest.mark.parametrize("tag", ["", "v1"])
def test_make_deploys_the_digest_that_is_named(repository, tag):
    done = deploy(f"{repository}{tag and ':'}{tag}@{DIGEST}")
    assert (
        f"--set image.repository={repository} --set-string image.tag={tag} --set image.digest={DIGEST} " in done.stdout
    )


def test_the_icon_is_that_of_the_file():
    kind, _, content = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(content) == (CHART / "icon.svg").read_bytes()


def test_helm_shows_the_readme():
    assert Helm().run("show", "readme", str(CHART)).lstrip().startswith("# InstaSlice")


@pytest.mark.parametrize("arguments", ["--set agent.gpus=0", "--reset-values"])
def test_make_deploy_keeps_values_unless_it_is_told_otherwise(arguments):
    done = deploy("instaslice:v1", f"ARGS={arguments}")
    assert "--reset-then-reuse-values" in done.stdout
    # Before the user's own, so that these win.
    assert done.stdout.index("--set image.digest=") < done.stdout.index(arguments)


def test_the_version_is_that_of_the_package():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["appVersion"], chart["version"]) == (package, package)
