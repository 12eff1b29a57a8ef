"""What tests of the rendered chart share: its processes, and what its accounts are granted."""

import json
from pathlib import Path

from helm import NAMESPACE, find

from instaslice.api import names

ROOT = Path(__file__).parents[3]
EMULATED = "agent.emulated.enabled=true"
CERT_MANAGER = ("certManager.enabled=true",)
WITH_CERT_MANAGER = ("--api-versions=cert-manager.io/v1",)
PROCESSES = {"controller": "Deployment", "webhook": "Deployment", "agent": "DaemonSet"}


def pod_of(documents, component):
    return find(documents, PROCESSES[component], f"instaslice-{component}")["spec"]["template"]["spec"]


def arguments(documents, component):
    return pod_of(documents, component)["containers"][0]["args"]


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
    parts.append(("default", role.default))
    return {canonical(where, each) for where, rules in parts for each in rules}
