"""What stands for a waiting pod before a node autoscaler: a pod that kube-scheduler cannot place.

Pure. designs/0007-autoscaling-hint.md says why it looks as it does.
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
    # Below every pod that says nothing, above -10, under which Cluster Autoscaler takes a pod for expendable and adds
    # no node for it.
    "value": -1,
    "preemptionPolicy": "Never",
}

_encoder = msgspec.json.Encoder(order="sorted")


def placeholder(pod: Pod, namespace: str, memory: int = 0) -> dict[str, Any]:
    """The manifest of the placeholder of a waiting pod; pods that ask for the same get the same, name and all.

    `memory` is all the GPU memory that an empty node of the wanted shape advertises: asked for as a whole, no node on
    which a slice is in use has it, however much of other resources it has left.
    """
    requests = dict(effective(pod))
    del requests["pods"]
    if memory > requests.get(names.MEMORY, 0):
        requests[names.MEMORY] = memory
    spec = {
        "containers": [{"name": "never-runs", "image": "never-runs", "resources": _resources(requests), **_HARMLESS}],
        **_whither(pod),
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
                # Should one be bound while nobody is there to remove it, it must not keep its node from going.
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
"""What the strictest pod security standard asks for, whatever our namespace enforces."""


def _resources(amounts: Mapping[str, int]) -> dict[str, dict[str, str]]:
    texts = {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}
    # Devices and huge pages cannot be overcommitted: the API server wants them in limits, and the same there.
    limits = {name: text for name, text in texts.items() if "/" in name or name.startswith("hugepages-")}
    return {"requests": texts, "limits": limits}


def _whither(pod: Pod) -> dict[str, Any]:
    """The nodes that the pod would be let in to: those are the nodes to add."""
    # Towards other pods it stands as it is: what the pod wants of them would be asked for our namespace.
    near = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    wanted = {
        "nodeSelector": pod.spec.node_selector,
        "affinity": Affinity(node_affinity=near) if near is not None else None,
        "tolerations": pod.spec.tolerations,
    }
    return {field: msgspec.to_builtins(value) for field, value in wanted.items() if value}
