"""Emulated GPU nodes: Node objects whose kubelet kwok emulates.

Their labels are those that NVIDIA's feature discovery sets on a real node; slices come from our agent.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from instaslice.api import names
from instaslice.api.nvidia_labels import CAPABLE, product
from instaslice.geometry.models import Model

CPU = 64
MEMORY = "512Gi"
STORAGE = "1Ti"
PODS = 250
EMULATED_SELECTOR = f"{names.EMULATED},type=kwok"
"""Selects fully emulated nodes, not those with a real kubelet and emulated GPUs."""


def name(index: int) -> str:
    return f"gpu-{index}"


def manifest(index: int, gpus: int, model: Model, kubernetes: str) -> dict[str, Any]:
    """The Node object of an emulated node, with its initial status."""
    own = name(index)
    resources = {"cpu": str(CPU), "memory": MEMORY, "ephemeral-storage": STORAGE, "pods": str(PODS)}
    return {
        "metadata": {
            "name": own,
            "labels": {
                "type": "kwok",
                "kubernetes.io/hostname": own,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **gpu_labels(gpus, model),
            },
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "nodeInfo": _info(kubernetes),
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": own}],
        },
    }


def gpu_labels(gpus: int, model: Model) -> dict[str, str]:
    """The labels that describe a node's GPUs, and that they are emulated."""
    return {
        names.EMULATED: model.name,
        "nvidia.com/gpu.present": "true",
        names.GPU_COUNT: str(gpus),
        "nvidia.com/gpu.product": product(model),
        CAPABLE: "true",
    }


def _info(kubernetes: str) -> dict[str, str]:
    known = {
        "kubeletVersion": f"v{kubernetes}",
        "containerRuntimeVersion": "kwok://emulated",
        "operatingSystem": "linux",
        "architecture": "amd64",
        "osImage": "emulated",
    }
    required = ("machineID", "systemUUID", "bootID", "kernelVersion", "kubeProxyVersion")
    return {**dict.fromkeys(required, ""), **known}


def surplus(present: Iterable[str], wanted: int) -> Iterator[str]:
    """The emulated nodes that exist and are not wanted."""
    keep = {name(index) for index in range(wanted)}
    return (each for each in present if each not in keep)
