"""The placeholder of a waiting pod, which makes a node autoscaler add a node: a pod that kube-scheduler cannot place.

Pure. designs/0007-autoscaling-hint.md has the reasons.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from instaslice.api import names
from instaslice.controller.requests import effective
from instaslice.kube.core import Affinity, Pod
from instaslice.kube.meta import key_of

PRIORITY: Mapping[str, Any] = {
    "metadata": {"name": names.PLACEHOLDER_PRIORITY},
    "description": "Pods that tell node autoscalers of pods waiting for a slice. They never run.",
    # Below the default of 0; above -10, below which Cluster Autoscaler ignores a pod.
    "value": -1,
    "preemptionPolicy": "Never",
}

_encoder = msgspec.json.Encoder(order="sorted")


def placeholder(pod: Pod, namespace: str, memory: int = 0) -> dict[str, Any]:
    """The manifest of the placeholder of a waiting pod, equal (its name too) for pods that request the same.

    `memory` is all the GPU memory that an empty node of the wanted shape advertises. No node with a slice in use has
    that much left, whatever else is free there.
    """
    requests = dict(effective(pod))
    del requests["pods"]
    if memory > requests.get(names.MEMORY, 0):
        requests[names.MEMORY] = memory
    spec = {
        "containers": [{"name": "never-runs", "image": "never-runs", "resources": _resources(requests), **_HARMLESS}],
        **_node_constraints(pod),
        "priorityClassName": names.PLACEHOLDER_PRIORITY,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    digest = hashlib.sha256(_encoder.encode(spec)).hexdigest()[:16]
    return {
        "metadata": {
            "namespace": namespace,
            "name": f"waiting-{digest}",
            "labels": {names.PLACEHOLDER: "true"},
            "annotations": {
                names.WAITING: str(key_of(pod)),
                # If it is bound while no controller runs, it must not keep the autoscaler from removing the node.
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
            },
        },
        "spec": spec,
    }


_HARMLESS = {
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
}
"""Satisfies the strictest Pod Security Standard, whatever the namespace enforces."""


def _resources(amounts: Mapping[str, int]) -> dict[str, dict[str, str]]:
    texts = {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}
    # Devices and huge pages cannot be overcommitted: the API server requires equal limits.
    limits = {name: text for name, text in texts.items() if "/" in name or name.startswith("hugepages-")}
    return {"requests": texts, "limits": limits}


def _node_constraints(pod: Pod) -> dict[str, Any]:
    """The constraints of the pod on its node: such a node has to be added."""
    # Not on other pods: its pod affinity would select pods of the placeholder's namespace.
    near = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    wanted = {
        "nodeSelector": pod.spec.node_selector,
        "affinity": Affinity(node_affinity=near) if near is not None else None,
        "tolerations": pod.spec.tolerations,
    }
    return {field: msgspec.to_builtins(value) for field, value in wanted.items() if value}
