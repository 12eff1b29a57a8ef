"""Node labels of a static MIG layout, as NVIDIA's feature discovery writes them with the strategy `mixed`.

People who planned MIG layouts select nodes by them. A node whose slices are made on request has no layout, but it can
say the same of what it could hold. The names and the form of the values are those of the labels' documentation, in
github.com/NVIDIA/k8s-device-plugin.
"""

import re
from collections.abc import Sequence
from typing import Final

from instaslice.api import names
from instaslice.api.node_resources import total
from instaslice.geometry import Model, Profile, ProfileName, models

PREFIXES: Final = ("nvidia.com/mig.", names.NVIDIA_RESOURCE)
CAPABLE: Final = "nvidia.com/mig.capable"
STRATEGY: Final = "nvidia.com/mig.strategy"
CONFIG: Final = "nvidia.com/mig.config"
"""The layout that NVIDIA's MIG manager is to make. Never written by us: it would repartition the GPUs."""


def of_static_layout(label: str) -> bool:
    return label.startswith(PREFIXES)


def static_layout(gpus: Sequence[Model]) -> dict[str, str]:
    """The labels of a node with these GPUs. `count` is the most of a profile that they could ever hold, as a node
    advertises it; what a profile is like is said of the first GPU that has it.

    Left out: `memory` and `multiprocessors`, which differ between drivers and which no status holds.
    """
    counts = total(gpus)
    labels = {CAPABLE: "true", STRATEGY: "mixed"} if counts else {}
    for gpu in gpus:
        for profile in gpu.profiles:
            name = ProfileName.parse(profile.name)
            prefix = f"{names.NVIDIA_RESOURCE}{name.resource.removeprefix('mig-')}"
            count = counts.get(names.resource_name(name), 0)
            if count and f"{prefix}.count" not in labels:
                labels |= {f"{prefix}.{what}": value for what, value in _of_profile(gpu, profile, count).items()}
    return labels


def product(model: Model) -> str:
    """The product of a GPU as a label's value. A driver names the product; an emulated GPU has one of our names."""
    products = next((each.products for each in models.known() if each.name == model.name), ())
    return _value(products[0] if products else model.name)


def _of_profile(gpu: Model, profile: Profile, count: int) -> dict[str, str]:
    engines = profile.engines
    numbers = {
        "count": count,
        "replicas": 1,
        "slices.gi": profile.compute,
        "slices.ci": profile.compute,
        "engines.copy": engines.copy,
        "engines.decoder": engines.decoders,
        "engines.encoder": engines.encoders,
        "engines.jpeg": engines.jpeg,
        "engines.ofa": engines.ofa,
    }
    named = _value(f"{product(gpu)}-MIG-{profile.name.replace('+', '.')}")
    return {"product": named, **{what: str(number) for what, number in numbers.items()}}


def _value(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:63].strip("-._")
