"""What the shell completes a word to: names of pods, nodes, namespaces, contexts, GPU models and local clusters.

Every function is one that click calls as `shell_complete`. A cluster that cannot be asked at once completes nothing: an
error in the middle of a command line helps nobody.
"""

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import click
import yaml

from instaslice.api.instaslice import INSTASLICES
from instaslice.errors import InstasliceError
from instaslice.geometry import models as gpu_models
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import NAMESPACES, PODS, PartialObjectMetadata
from instaslice.kube.resource import Resource
from instaslice.kube.transport import Persistence
from instaslice.kube.workloads import DEPLOYMENTS, JOBS, STATEFUL_SETS
from instaslice.kueue.objects import KUEUE_WORKLOADS

AT_ONCE: Final = Persistence(answer_seconds=2.0, attempts=1)
"""For somebody who has just pressed the tab key."""
WORKLOADS: Final[dict[str, Resource[Any]]] = {
    "pod": PODS,
    "deploy": DEPLOYMENTS,
    "job": JOBS,
    "sts": STATEFUL_SETS,
    "workload": KUEUE_WORKLOADS,
}


def workloads(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """`train`, `pod/train`, `deploy/web`."""
    kind, slash, prefix = incomplete.rpartition("/")
    resource = WORKLOADS.get(kind or "pod")
    if resource is None:
        return []
    found = [f"{kind}{slash}{name}" for name in _names(ctx, resource, prefix)]
    return found if slash else [*found, *(f"{each}/" for each in WORKLOADS if each.startswith(incomplete))]


def nodes(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Those with GPUs of ours."""
    return _names(ctx, INSTASLICES, incomplete)


def namespaces(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _names(ctx, NAMESPACES, incomplete)


def contexts(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Of the kubeconfig."""
    from kubernetes_asyncio.config import ConfigException, list_kube_config_contexts

    file = ctx.params.get("kubeconfig") or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config"
    try:
        listed, _current = list_kube_config_contexts(str(file))
    except (ConfigException, OSError, yaml.YAMLError):
        return []
    return [each["name"] for each in listed if each["name"].startswith(incomplete)]


def models(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [each for each in gpu_models.names() if each.lower().startswith(incomplete.lower())]


def clusters(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Local ones."""
    from instaslice.local.cluster import all_clusters

    return [each.name for each in all_clusters() if each.name.startswith(incomplete)]


def _names(ctx: click.Context, resource: Resource[Any], prefix: str) -> list[str]:
    """Of a kind, in the namespace of the command line or of the context."""
    bare = Resource(
        PartialObjectMetadata, resource.kind, resource.plural, resource.version, resource.group, resource.namespaced
    )

    async def read() -> list[str]:
        file, context = ctx.params.get("kubeconfig"), ctx.params.get("context")
        async with (
            asyncio.timeout(AT_ONCE.answer_seconds),
            await Client.connect(file, context=context, persistence=AT_ONCE) as client,
        ):
            namespace = (ctx.params.get("namespace") or client.namespace) if resource.namespaced else ""
            return [each.metadata.name for each in await client.list(bare, Selector(namespace=namespace))]

    try:
        return sorted(name for name in asyncio.run(read()) if name.startswith(prefix))
    except (InstasliceError, TimeoutError, OSError):
        return []
