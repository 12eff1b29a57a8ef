"""Write what the chart installs and Python knows: the definition, RBAC, the webhook's registration and the policies.

Run by `make generate`. `instaslice up` applies the same documents from Python; the templates read these files and fill
in the namespace, which stands in them as `${namespace}`, and the namespaces that the webhook is limited to.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from instaslice.api import crd, names, roles
from instaslice.api.roles import Role
from instaslice.webhook import agent_policy, manifests, policy

FILES = Path(__file__).parent.parent / "charts" / "instaslice" / "files"
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
    """`everywhere`, or `limited` to some namespaces."""
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

    return {"everywhere": documents([]), "limited": documents([LIMITED_TO])}


def files() -> dict[Path, str]:
    """Path → content of every file that is generated."""
    contents: Mapping[str, Any] = {"crd.yaml": crd.definition(), "rbac.yaml": rbac(), "admission.yaml": admission()}
    return {FILES / name: HEAD + _yaml(content) for name, content in contents.items()}


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
