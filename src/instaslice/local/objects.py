"""What a local cluster puts into its API server: roles for its own parts, and the emulated nodes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from instaslice.geometry.models import Model
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import NODES, Node
from instaslice.kube.meta import Key, Object, ObjectMeta
from instaslice.kube.resource import Resource
from instaslice.local import nodes
from instaslice.local.errors import NotStarted
from instaslice.local.plane import CLIENTS

MANAGER = "instaslice-local"
PATIENCE = 120.0
"""Seconds for all nodes to become Ready."""
AT_ONCE = 20
"""Nodes that are created side by side."""


def _everything(group: str, *resources: str, verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": verbs.split()}


KWOK_ROLE = [
    _everything("", "nodes", "pods", verbs="get list watch patch update delete"),
    _everything("", "nodes/status", "pods/status", verbs="patch update"),
    _everything("", "events", verbs="create patch update"),
    _everything("coordination.k8s.io", "leases", verbs="get list watch create patch update"),
]
