"""Pods as a user writes them, the webhook's patch applied to them, and the JSON patch steps that takes."""

import copy

import manifests
import msgspec

from instaslice.api.largest_node import LargestNode
from instaslice.webhook.mutation import TOLERATION, mutate
from instaslice.webhook.review import AdmissionPod

__all__ = ["TOLERATION", "container", "mutated", "patched", "pod"]

LARGEST = LargestNode()


def container(name="main", limits=None, requests=None, env=(), **more):
    """`env`: names of variables, or whole entries."""
    if env:
        more["env"] = [{"name": each, "value": "x"} if isinstance(each, str) else each for each in env]
    return manifests.container(name, limits=limits, requests=requests, **more)


def pod(*containers, init=(), annotations=None, **spec):
    if init:
        spec["initContainers"] = list(init)
    meta = {"namespace": "team-a", "labels": {"app": "train"}, "annotations": annotations}
    return manifests.pod("train", **meta, containers=list(containers), restartPolicy="Never", **spec)


def mutated(document, largest=LARGEST):
    """The pod after the webhook. Raises Refused."""
    patch = mutate(msgspec.convert(document, AdmissionPod), largest)
    return patched(document, msgspec.to_builtins(patch))


def patched(document, patch):
    """RFC 6902, as far as the webhook uses it: add and remove."""
    result = copy.deepcopy(document)
    for step in patch:
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        target = result
        for part in path:
            target = target[int(part)] if isinstance(target, list) else target[part]
        match step["op"], target:
            case "add", list():
                target.insert(len(target) if last == "-" else int(last), step["value"])
            case "add", dict():
                target[last] = step["value"]
            case "remove", dict():
                del target[last]
    return result
