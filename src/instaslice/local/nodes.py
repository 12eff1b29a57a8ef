"""Emulated GPU nodes: Node objects whose kubelet kwok plays.

What they show of their GPUs is what a real node shows by NVIDIA's feature discovery; slices come from our agent.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from instaslice.api import names
from instaslice.geometry.models import Model

CPU = 64
MEMORY = "512Gi"
STORAGE = "1Ti"
PODS = 250
EMULATED_SELECTOR = f"{names.EMULATED},type=kwok"
"""Selects the nodes that are emulated as a whole, and not those with a real kubelet and emulated GPUs."""


def name(index: int) -> str:
    return f"gpu-{index}"


def manifest(index: int, gpus: int, model: Model, kubernetes: str) -> dict[str, Any]:
    """The Node object of an emulated node, with the status that it starts with."""
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
    """What a node shows of its GPUs, and that they are emulated."""
    return {
        names.EMULATED: model.name,
        "nvidia.com/gpu.present": "true",
        names.GPU_COUNT: str(gpus),
        "nvidia.com/gpu.product": product(model),
        "nvidia.com/mig.capable": "true",
    }


def product(model: Model) -> str:
    """The product's name as NVIDIA's feature discovery writes it into a label."""
    told = model.products[0] if model.products else model.name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", told)[:63].strip("-._")


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
    """The emulated nodes that are there and should not be."""
    keep = {name(index) for index in range(wanted)}
    return (each for each in present if each not in keep)
