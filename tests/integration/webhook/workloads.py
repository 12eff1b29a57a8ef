"""Pods with slices and those who make them, and the roles of ordinary users."""

import asyncio
import contextlib

import manifests
import msgspec

from instaslice.api import names
from instaslice.kube.client import Selector
from instaslice.kube.core import NAMESPACES, PODS, PartialObjectMetadata
from instaslice.kube.errors import Forbidden
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.local.objects import BINDINGS as CLUSTER_ROLE_BINDINGS
from instaslice.local.objects import RBAC, rule
from instaslice.local.objects import ROLES as CLUSTER_ROLES

SLICE = {"nvidia.com/mig-1g.5gb": "1"}
WORKLOADS = {
    "Deployment": Resource(PartialObjectMetadata, "Deployment", "deployments", group="apps"),
    "StatefulSet": Resource(PartialObjectMetadata, "StatefulSet", "statefulsets", group="apps"),
    "Job": Resource(PartialObjectMetadata, "Job", "jobs", group="batch"),
}
BOUND = Resource(PartialObjectMetadata, "Binding", "bindings")
ROLES = Resource(PartialObjectMetadata, "Role", "roles", group=RBAC)
ROLE_BINDINGS = Resource(PartialObjectMetadata, "RoleBinding", "rolebindings", group=RBAC)


def pod(namespace, name, limits=None, **more):
    """The rest as in `manifests.pod`."""
    return manifests.pod(name, namespace=namespace, limits=limits, **more)


def workload(kind, namespace, limits):
    """A Deployment, StatefulSet or Job of one pod, named after its kind."""
    labels = {"app": kind.lower()}
    template = {"metadata": {"labels": labels}, "spec": manifests.pod("any", limits=limits)["spec"]}
    told = {"template": template, "selector": {"matchLabels": labels}}
    if kind == "StatefulSet":
        told["serviceName"] = "none"
    if kind == "Job":
        del told["selector"]
        template["spec"]["restartPolicy"] = "Never"
    return {"metadata": {"namespace": namespace, "name": kind.lower()}, "spec": told}


async def create(client, document, *, dry_run=False):
    """Create a pod and return all of it."""
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **document})
    path = PODS.path(document["metadata"]["namespace"])
    return msgspec.json.decode(await client.raw("POST", path, body=body, params={"dryRun": "All"} if dry_run else None))


async def bind(client, key, node, *, annotations=None, legacy=False):
    """Bind a pod to a node, as a scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    meta = {"namespace": key.namespace, "name": key.name, "annotations": annotations or {}}
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target})
    path = BOUND.path(key.namespace) if legacy else PODS.path(*key, "binding")
    await client.raw("POST", path, body=body)


async def first_pod(client, namespace, app):
    """The pod that a workload makes, once it has."""
    async with asyncio.timeout(60):
        while not (found := await client.list(PODS, Selector(namespace=namespace, labels=f"app={app}"))):
            await asyncio.sleep(0.1)
    return found[0]


POD_RULES = [
    rule("", "pods pods/status", "get list watch create update patch delete"),
    rule("", "pods/ephemeralcontainers pods/resize", "get update patch"),
    rule("", "pods/binding bindings", "create"),
]


async def allow(client, namespace, who, rules, *, cluster_rules=()):
    """Let a user do this in a namespace, and that in the whole cluster."""
    meta, anywhere = {"namespace": namespace, "name": who}, {"name": who}
    subjects = [{"kind": "User", "apiGroup": RBAC, "name": who}]
    role = {"apiGroup": RBAC, "kind": "Role", "name": who}
    await client.create(ROLES, {"metadata": meta, "rules": rules})
    await client.create(ROLE_BINDINGS, {"metadata": meta, "subjects": subjects, "roleRef": role})
    if cluster_rules:
        await client.create(CLUSTER_ROLES, {"metadata": anywhere, "rules": cluster_rules})
        bound = {"metadata": anywhere, "subjects": subjects, "roleRef": {**role, "kind": "ClusterRole"}}
        await client.create(CLUSTER_ROLE_BINDINGS, bound)


async def opt_out(client, namespace):
    """Have a namespace opted out, and return the first pod that was let through as it is.

    The API server judges by a copy of the namespace that follows a moment later.
    """
    labels = {"metadata": {"labels": {names.OPT_OUT: names.OPTED_OUT}}}
    await client.merge(NAMESPACES, Key("", namespace), labels)
    for attempt in range(100):
        # Refused where the policy knows already what the webhook's configuration does not yet.
        with contextlib.suppress(Forbidden):
            made = await client.create(PODS, pod(namespace, f"opted-out-{attempt}", SLICE))
            if not made.spec.scheduling_gates:
                return made
        await asyncio.sleep(0.05)
    raise AssertionError(f"namespace {namespace} is not opted out")
