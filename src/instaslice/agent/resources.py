"""What a node advertises: for each profile the most that its GPUs could ever hold, and their memory by labels.

The numbers do not change as slices come and go, so that no pod waits for a node status; the ledger prevents conflicts.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from instaslice.api import names
from instaslice.api.node_resources import total
from instaslice.geometry import Model
from instaslice.kube.core import NodeStatus


def advertised(gpus: Iterable[Model]) -> dict[str, str]:
    """Resource name → quantity, for the GPUs of one node."""
    return {resource: str(quantity) for resource, quantity in total(gpus).items()}


def correction(status: NodeStatus, wanted: Mapping[str, str]) -> dict[str, Any]:
    """The merge patch that gives capacity and allocatable the wanted values; empty where they have them."""
    changes: dict[str, dict[str, str | None]] = {}
    for field, current in (("capacity", status.capacity), ("allocatable", status.allocatable)):
        change: dict[str, str | None] = {name: value for name, value in wanted.items() if current.get(name) != value}
        # Of GPUs that the node had before.
        change |= {name: None for name in current if _ours(name) and name not in wanted}
        if change:
            changes[field] = change
    return {"status": changes} if changes else {}


def _ours(resource: str) -> bool:
    return resource == names.MEMORY or resource.startswith(names.RESOURCE)
