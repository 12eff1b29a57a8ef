"""All objects of a cluster, of every kind that the API server knows: for a comparison of before and after."""

import json

from instaslice.kube.errors import KubeError, NotFound

MOVING = {"events", "leases", "endpoints", "endpointslices"}
"""Kinds of which only what is not ours changes by itself: they are compared by name, and Events not at all."""
HEARTBEATS = "kube-node-lease"
"""The Lease of a node comes some time after the node."""
OF_SERVER = ("resourceVersion", "managedFields", "generation", "uid", "creationTimestamp")


async def everything(client):
    """(path of the kind, namespace, name) → what users wrote in it, for all but Events."""
    found = {}
    for path, kind in [each async for each in kinds(client)]:
        if kind == "events":
            continue
        try:
            items = json.loads(await client.raw("GET", path))["items"]
        except NotFound:
            continue  # its definition was removed meanwhile
        for each in items:
            if each["metadata"].get("namespace") == HEARTBEATS:
                continue
            metadata = {key: value for key, value in each.pop("metadata").items() if key not in OF_SERVER}
            each.pop("status", None)
            content = {} if kind in MOVING else {**each, "metadata": metadata}
            found[path, metadata.get("namespace", ""), metadata["name"]] = json.dumps(content, sort_keys=True)
    return found


async def kinds(client):
    """The path at which all objects of a kind are listed, and its plural."""
    groups = json.loads(await client.raw("GET", "/apis"))["groups"]
    for path in ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)]:
        try:
            resources = json.loads(await client.raw("GET", path))["resources"]
        except KubeError:
            continue  # of a definition that is being removed
        for each in resources:
            if "list" in each["verbs"] and "/" not in each["name"]:
                yield f"{path}/{each['name']}", each["name"]


def difference(before, after):
    """One line for each object that is new, gone or changed."""
    return [
        f"{'new' if key not in before else 'gone' if key not in after else 'changed'}: {' '.join(filter(None, key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
