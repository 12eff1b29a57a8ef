"""Every way in which one GPU can be cut, and what leads from one to the next.

A state is a set of placements that do not overlap and that the GPU's compute slices and media engines allow. States
are few (2319 on an A100), so they are enumerated once for a geometry and named by integers; a policy then works on
tables. State 0 is the empty GPU.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from instaslice.geometry.errors import TooManyLayouts
from instaslice.geometry.kinds import Kinds
from instaslice.geometry.models import Model
from instaslice.geometry.profiles import Engines, Placement, Profile

MOST_ENTRIES: Final = 1_000_000
"""Of a table of a geometry, which has one for each placement in each layout; those that are known have a seventh of it
at most."""
ILLEGAL: Final = -1
"""Where a table has no state to lead to."""

Layout = tuple[int, ...]
"""A state written out: indexes into `States.placements`, ascending."""


class States:
    """The states of one geometry with their tables. Use `States.of`: models of the same geometry share one.

    `after[s][k]` is the state that placing k in s leads to, `before[s][k]` the one that removing k leads to, both
    ILLEGAL where that is impossible; k indexes `placements`. `choices[p][s]` are the placements of profile p that
    are legal in s, by ascending start; p indexes `profiles`. `kinds` merges states that are alike from now on.
    """

    def __init__(self, model: Model) -> None:
        """Raises TooManyLayouts: a geometry may come from an object that anybody can write."""
        layouts, placements = _layouts(model), sum(len(profile.starts) for profile in model.profiles)
        if layouts * placements > MOST_ENTRIES:
            raise TooManyLayouts(
                f"its {placements} placements can lie in {layouts:.0e} ways on one GPU, more than can be looked through"
            )
        self.slices: Final = model.memory_slices
        self.profiles: Final = model.profiles
        self.placements: Final = tuple(k for profile in model.profiles for k in profile.placements())
        self.masks: Final = tuple(k.mask for k in self.placements)
        self._owner = tuple(i for i, profile in enumerate(model.profiles) for _ in profile.starts)
        self._compute = model.compute_slices
        self._engines = model.engines.media
        self.layouts: Final[list[Layout]] = []
        self.after: Final[list[list[int]]] = []
        self.before: Final[list[list[int]]] = []
        self._ids: dict[Layout, int] = {}
        self._enumerate()
        self.used: Final = [sum(self.placements[k].size for k in layout) for layout in self.layouts]
        self.free: Final = [self.slices - used for used in self.used]
        self.choices: Final = [
            [tuple(k for k, owner in enumerate(self._owner) if owner == p and row[k] >= 0) for row in self.after]
            for p in range(len(self.profiles))
        ]
        self.kinds: Final = Kinds(self.slices, self.profiles, self.placements, self.used, self.after, self.choices)
        self._where = {(k.profile, k.start): i for i, k in enumerate(self.placements)}

    @staticmethod
    def of(model: Model) -> "States":
        """The states of a model, computed once for each geometry, whatever the model is called."""
        return _states(_Geometry(model))

    def __len__(self) -> int:
        return len(self.layouts)

    def profile(self, name: str) -> int | None:
        """The index of a profile, None where this geometry has none of that name."""
        return self.kinds.profile(name)

    def placement(self, profile: str, start: int) -> int | None:
        """The index of a placement, None where the profile may not start there."""
        return self._where.get((profile, start))

    def state(self, placements: Iterable[int]) -> int:
        """The state that holds exactly these placements, ILLEGAL where no GPU can."""
        return self._ids.get(tuple(sorted(placements)), ILLEGAL)

    def held(self, state: int) -> tuple[Placement, ...]:
        """The placements in a state."""
        return tuple(self.placements[k] for k in self.layouts[state])

    def mask(self, state: int) -> int:
        """The memory slices taken in a state, as bits."""
        return sum(self.masks[k] for k in self.layouts[state])

    def largest_fit(self, state: int) -> Profile | None:
        """The largest profile that can still be placed, by memory, then by compute; None where nothing fits."""
        fitting = [profile for p, profile in enumerate(self.profiles) if self.choices[p][state]]
        return max(fitting, key=lambda each: (each.size, each.compute, -len(each.name)), default=None)

    def unusable(self, state: int) -> int:
        """How many free memory slices no further slices can reach, however they are placed."""
        return self.free[state] - self.kinds.fillable[self.kinds.of[state]]

    def maximal(self) -> list[int]:
        """The states into which nothing more can be placed."""
        return [s for s, row in enumerate(self.after) if max(row, default=ILLEGAL) == ILLEGAL]

    def most_label_gb(self) -> int:
        """The largest sum of profile labels that one GPU can hold at once (H200: 143, two more than it has)."""
        return max(sum(self.profiles[self._owner[k]].gb for k in layout) for layout in self.layouts)

    def most_slices(self) -> int:
        """The most slices that one GPU can hold at once, of any profiles."""
        return max(map(len, self.layouts))

    def _enumerate(self) -> None:
        count = len(self.placements)
        self._add(())
        for s, layout in enumerate(self.layouts):  # grows while it is walked: breadth first from the empty GPU
            taken, compute, media, counts = self._usage(layout)
            for k in range(count):
                if taken & self.masks[k]:
                    continue
                profile = self.profiles[self._owner[k]]
                if counts[self._owner[k]] >= profile.limit or compute + profile.compute > self._compute:
                    continue
                if any(a + b > c for a, b, c in zip(media, profile.engines.media, self._engines, strict=True)):
                    continue
                larger = tuple(sorted((*layout, k)))
                to = self._ids.get(larger)
                if to is None:
                    to = self._add(larger)
                self.after[s][k] = to
                self.before[to][k] = s

    def _add(self, layout: Layout) -> int:
        self._ids[layout] = len(self.layouts)
        self.layouts.append(layout)
        self.after.append([ILLEGAL] * len(self.placements))
        self.before.append([ILLEGAL] * len(self.placements))
        return len(self.layouts) - 1

    def _usage(self, layout: Layout) -> tuple[int, int, list[int], list[int]]:
        taken = compute = 0
        media = [0, 0, 0, 0]
        counts = [0] * len(self.profiles)
        for k in layout:
            profile = self.profiles[self._owner[k]]
            taken |= self.masks[k]
            compute += profile.compute
            media = [a + b for a, b in zip(media, profile.engines.media, strict=True)]
            counts[self._owner[k]] += 1
        return taken, compute, media, counts


def _layouts(model: Model) -> int:
    """The ways in which placements can lie beside each other: no fewer than there are states, and counted at once."""
    ways = [1]  # by how many memory slices of the GPU may be used
    placements = [placement for profile in model.profiles for placement in profile.placements()]
    for end in range(1, max((each.start + each.size for each in placements), default=0) + 1):
        ways.append(ways[-1] + sum(ways[each.start] for each in placements if each.start + each.size == end))
    return ways[-1]


class _Geometry:
    """A model seen only by what decides its states, so that it can be the key of a cache."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.key: tuple[int, int, Engines, tuple[object, ...]] = (
            model.memory_slices,
            model.compute_slices,
            model.engines,
            tuple(map(_profile_key, model.profiles)),
        )

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Geometry) and self.key == other.key


def _profile_key(profile: Profile) -> tuple[object, ...]:
    return (profile.name, profile.compute, profile.size, profile.starts, profile.limit, profile.gb, profile.engines)


@lru_cache(maxsize=64)
def _states(geometry: _Geometry) -> States:
    return States(geometry.model)
