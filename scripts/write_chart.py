"""Write what the chart installs and Python knows: the definition, RBAC, the webhook's registration and the policies;
and the GPU models and placement policies that its values may name.

Run by `make generate`. `instaslice up` applies the same documents from Python; the templates read these files and fill
in the namespace, which stands in them as `${namespace}`, and the namespaces that the webhook is limited to.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from instaslice.api import crd, names, roles
from instaslice.api.roles import Role
from instaslice.geometry import models
from instaslice.placement import policies
from instaslice.webhook import agent_policy, manifests, policy, uninstall_policy

CHART = Path(__file__).parent.parent / "charts" / "instaslice"
FILES = CHART / "files"
SCHEMA = CHART / "values.schema.json"
NAMESPACE = "${namespace}"
LIMITED_TO = "${namespaces}"
AGENT = "instaslice-agent"
HEAD = "# Generated from src/instaslice by `make generate`; change it there.\n"

FLAGS = {
    "taint_nodes": "taintNodes",
    "static_mig_labels": "staticMigLabels",
    "keep_quotas": "keepQuotas",
    "autoscaling_hints": "autoscalingHints",
    "admission_check": "admissionCheck",
}
"""Flag of the controller → its value in the chart."""


def rbac() -> dict[str, Any]:
    """`always`, and under the name of a value what is granted with it."""
    return {
        "always": [
            *_documents(names.CONTROLLER, roles.CONTROLLER),
            *_documents(AGENT, roles.AGENT),
            *_documents(names.WEBHOOK, roles.WEBHOOK),
        ],
        "metricsAuth": [
            *(
                document
                for account in (names.CONTROLLER, AGENT, names.WEBHOOK)
                for document in _documents(account, roles.METRICS_AUTH, "metrics")
            ),
            roles.METRICS_READER,
        ],
        "ownCertificates": _documents(names.WEBHOOK, roles.certificates(), "certificates"),
        **{
            value: _documents(names.CONTROLLER, roles.CONTROLLER_FLAGS[flag], flag.replace("_", "-"))
            for flag, value in FLAGS.items()
        },
    }


def admission() -> dict[str, Any]:
    """`everywhere`, or `limited` to some namespaces; `uninstall` is what refuses that."""
    trusted = [_user(names.CONTROLLER)]
    address = manifests.in_service(NAMESPACE)

    def documents(namespaces: list[str]) -> list[dict[str, Any]]:
        return [
            manifests.configuration(address, own=NAMESPACE, namespaces=namespaces),
            *policy.policies(trusted, own=NAMESPACE, namespaces=namespaces),
            *policy.bindings(),
            agent_policy.policy(_user(AGENT)),
            agent_policy.binding(),
        ]

    uninstall = [uninstall_policy.policy(NAMESPACE), uninstall_policy.binding()]
    return {"everywhere": documents([]), "limited": documents([LIMITED_TO]), "uninstall": uninstall}


def known_models() -> dict[str, Any]:
    """What the templates ask about GPU models.

    `profiles`: model → its profiles, of which the first is the smallest without attributes. `names`: short name →
    model. `products`: value of the label `nvidia.com/gpu.product` → model.
    """
    named = {short: model.name for short, model in models.short_names().items()}
    # Older ones of NVIDIA's feature discovery leave NVIDIA's name out.
    labels = {
        label: model.name
        for model in models.known()
        for product in model.products
        for label in (product.replace(" ", "-"), product.removeprefix("NVIDIA ").replace(" ", "-"))
    }
    profiles = {
        model.name: sorted((each.name for each in model.profiles), key=lambda name: "+" in name)
        for model in models.known()
    }
    return {"profiles": profiles, "names": named, "products": labels}


def schema() -> str:
    """The values' schema, with the models and policies that there are."""
    found = json.loads(SCHEMA.read_text())
    placeable = [model.name for model in models.known() if model.memory_slices]
    short = models.short_names()
    found["$defs"]["model"]["enum"] = [*models.names(), *short]
    found["$defs"]["emulatedModel"]["enum"] = [*placeable, *(each for each, of in short.items() if of.memory_slices)]
    found["properties"]["controller"]["properties"]["policy"]["enum"] = [*policies.names(), None]
    return json.dumps(found, indent=2) + "\n"


def files() -> dict[Path, str]:
    """Path → content of every file that is generated."""
    contents: Mapping[str, Any] = {
        "crd.yaml": crd.definition(),
        "rbac.yaml": rbac(),
        "admission.yaml": admission(),
        "models.yaml": known_models(),
    }
    return {SCHEMA: schema(), **{FILES / name: HEAD + _yaml(content) for name, content in contents.items()}}


def _documents(account: str, role: Role, suffix: str = "") -> list[dict[str, Any]]:
    subject = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": account}
    return roles.documents(f"{account}-{suffix}" if suffix else account, role, subject, namespace=NAMESPACE)


def _user(account: str) -> str:
    return f"system:serviceaccount:{NAMESPACE}:{account}"


class _Plain(yaml.SafeDumper):
    """Writes everything out: an anchor would stand where a struct is used twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(content: Any) -> str:
    return yaml.dump(content, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


def main() -> None:
    FILES.mkdir(parents=True, exist_ok=True)
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
