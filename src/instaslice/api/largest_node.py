"""What the largest possible node holds: a pod that needs more would wait indefinitely.

Pure. It finds what is impossible, not what fits: the controller knows the nodes, this does not.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Final

from instaslice.api import names
from instaslice.api.errors import Rejected
from instaslice.geometry import MemoryAsk, Model, Profile, ProfileName, UnknownProfile
from instaslice.geometry.errors import nearest
from instaslice.geometry.models import known

MAX_GPUS: Final = 16
"""GPUs of the largest machine that is sold with a GPU that can be cut."""
MAX_SUGGESTIONS: Final = 4
"""Profiles that a message suggests."""

Share = Callable[[Profile, Model], Fraction]


@dataclass(frozen=True)
class LargestNode:
    """`gpus` GPUs, each of any of these models. By default all known models, 16 GPUs."""

    models: tuple[Model, ...] = field(default_factory=known)
    gpus: int = MAX_GPUS

    @cached_property
    def _having(self) -> dict[str, list[tuple[Profile, Model]]]:
        """Profile → where it exists."""
        having: dict[str, list[tuple[Profile, Model]]] = {}
        for model in self.models:
            for profile in model.profiles:
                having.setdefault(profile.name, []).append((profile, model))
        return having

    def has(self, name: ProfileName) -> bool:
        return str(name) in self._having

    def nearest(self, text: str) -> list[str]:
        """The profiles that a user may have meant, best first: right but for one number, then by how far it is off."""
        try:
            wanted = ProfileName.parse(text)
        except UnknownProfile:
            return nearest(text, self._published)[:MAX_SUGGESTIONS]

        def distance(name: str) -> tuple[int, int, int, bool]:
            there = ProfileName.parse(name)
            gb, compute = abs(there.gb - wanted.gb), abs(there.compute - wanted.compute)
            return (gb > 0) + (compute > 0), gb, compute, there.extra != wanted.extra

        return sorted(self._published, key=distance)[:MAX_SUGGESTIONS]

    @cached_property
    def _published(self) -> list[str]:
        """A model whose memory is not published has profiles named 0gb: nobody means those."""
        return [name for name in self._having if ProfileName.parse(name).gb]

    def _options(self, wanted: ProfileName | MemoryAsk) -> list[tuple[Profile, Model]]:
        """The profiles that would do, each on the models that have it. Raises Rejected where none would."""
        if isinstance(wanted, ProfileName):
            return self._having[str(wanted)]
        found = [each for name, having in self._having.items() if wanted.met_by(name) for each in having]
        if not found:
            raise Rejected(
                f"{names.MEMORY}: no slice of a known GPU has {wanted.described}; ask for less ({self._largest}), or "
                "for several slices by several containers"
            )
        return found

    @cached_property
    def _largest(self) -> str:
        """The profile with the most memory, and with the most compute slices of those."""
        every = [each for having in self._having.values() for each in having]
        profile, model = max(every, key=lambda each: (each[0].gb, each[0].compute))
        return f"the largest is {profile.name} of {model.name}"

    def check_fits(self, wanted: Mapping[ProfileName | MemoryAsk, int]) -> None:
        """Raises Rejected where no node could hold these slices at the same time."""
        for name, count in wanted.items():
            profile, model = max(self._options(name), key=lambda each: each[0].limit)
            if count > profile.limit * self.gpus:
                raise Rejected(
                    f"{count} slices {name} at the same time are more than any node can hold "
                    f"({profile.limit} on one {model.name}, {self.gpus} GPUs in the largest node)"
                )
        # Two bounds, as either can be what is short: 4 × 1g.10gb fill the memory of an A100, 7 × 1g.5gb its compute.
        gpus = max(math.ceil(self._least(wanted, share)) for share in (_memory, _compute))
        if gpus > self.gpus:
            listed = ", ".join(f"{count} × {name}" for name, count in wanted.items())
            raise Rejected(f"{listed} need at least {gpus} GPUs of one node; the largest node has {self.gpus}")

    def _least(self, wanted: Mapping[ProfileName | MemoryAsk, int], share: Share) -> Fraction:
        """The GPUs that these slices take at least, each on the model that is best for it."""
        best = {name: min(share(profile, model) for profile, model in self._options(name)) for name in wanted}
        return sum((best[name] * count for name, count in wanted.items()), start=Fraction(0))


def _memory(profile: Profile, model: Model) -> Fraction:
    # Where nobody has published the placements, nothing is known to be impossible.
    return Fraction(profile.size, model.memory_slices) if model.memory_slices else Fraction(0)


def _compute(profile: Profile, model: Model) -> Fraction:
    return Fraction(profile.compute, model.compute_slices)
