"""States that are equivalent from now on, merged into one kind: all that a choice among GPUs needs to know.

Two states are of one kind when as many memory slices are taken and the same placements are legal now and after any
more. Which profiles hold the taken slices no longer matters, so there are far fewer: 380 for an A100's 2319 states.
"""

from typing import Final

from instaslice.geometry.profiles import Placement, Profile


class Kinds:
    """The kinds of a geometry, with the tables of its states. `of[s]` is the kind of state s; kind 0 is the empty GPU.

    `after[c][k]` is the kind that placing k leads to, ILLEGAL (-1) where that is impossible; `choices[p][c]` are the
    legal placements of profile p by ascending start.
    """

    def __init__(
        self,
        slices: int,
        profiles: tuple[Profile, ...],
        placements: tuple[Placement, ...],
        used: list[int],
        after: list[list[int]],
        choices: list[list[tuple[int, ...]]],
    ) -> None:
        self.slices: Final = slices
        self.profiles: Final = profiles
        self.placements: Final = placements
        self._index = {profile.name: p for p, profile in enumerate(profiles)}
        self._most: dict[int, list[int]] = {}
        self._fillable: list[int] | None = None
        self.of: Final = _partition(used, after)
        examples = {kind: state for state, kind in reversed(list(enumerate(self.of)))}
        states = [examples[kind] for kind in range(len(examples))]
        self.used: Final = [used[s] for s in states]
        self.free: Final = [slices - each for each in self.used]
        self.after: Final = [[self.of[to] if to >= 0 else to for to in after[s]] for s in states]
        self.choices: Final = [[row[s] for s in states] for row in choices]
        self.fullest_first: Final = sorted(range(len(states)), key=self.used.__getitem__, reverse=True)

    def __len__(self) -> int:
        return len(self.used)

    def profile(self, name: str) -> int | None:
        """The index of a profile, None where this geometry has none of that name."""
        return self._index.get(name)

    def most(self, profile: int) -> list[int]:
        """For each kind, the most slices of a profile that one such GPU can still take: `most(p)[0]` is what an empty
        GPU holds."""
        if profile not in self._most:
            most = self._most[profile] = [0] * len(self)
            for kind in self.fullest_first:
                row = self.after[kind]
                most[kind] = max((1 + most[row[k]] for k in self.choices[profile][kind]), default=0)
        return self._most[profile]

    @property
    def fillable(self) -> list[int]:
        """For each kind, the most memory slices that further slices of any profiles can still take: what is free beyond
        that is of no use until something ends."""
        if self._fillable is None:
            found = [0] * len(self)
            for kind in self.fullest_first:
                leads_to = {to for to in self.after[kind] if to >= 0}
                found[kind] = max((self.used[to] - self.used[kind] + found[to] for to in leads_to), default=0)
            self._fillable = found
        return self._fillable


def _partition(used: list[int], after: list[list[int]]) -> list[int]:
    """The kind of each state. Every step fills the GPU, so from the fullest back each state is met after all that
    it leads to, and one pass is enough."""
    found: dict[tuple[int, tuple[int, ...]], int] = {}
    kind = [-1] * len(used)
    for s in sorted(range(len(used)), key=used.__getitem__, reverse=True):
        future = tuple(kind[to] if to >= 0 else -1 for to in after[s])
        kind[s] = found.setdefault((used[s], future), len(found))
    last = len(found) - 1
    return [last - each for each in kind]  # the empty GPU was found last
