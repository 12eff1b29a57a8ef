"""Fits several slices onto the GPUs of one node, if there is any way to do so.

Exact, and fast because slices of one sort are equal and so are GPUs of one kind: it searches counts, not arrangements.
"""

from collections.abc import Iterable, Iterator, Sequence

from instaslice.geometry import Kinds
from instaslice.placement.demands import Grant, Share, Want
from instaslice.placement.fleet import Fleet, FleetNode
from instaslice.placement.pools import SharedPool

GpuKind = tuple[Kinds, int] | tuple[int, int]
"""What matters of a GPU: its geometry and kind of state, or its size and free MiB."""
_Counts = tuple[int, ...]
"""How many slices of each sort."""
_Step = tuple[int, int, int]
"""A slice on a GPU: its sort, start and size."""
_Chain = tuple["_Chain | None", int, list[_Step]]
"""What was put on the GPUs before, a GPU by number, and what was put on it."""


def pack(fleet: Fleet, node: FleetNode, wants: Sequence[Want]) -> list[Grant] | None:
    """Some way, if there is one; None otherwise. Goes GPU by GPU and tracks what could be left of the demand.

    What is left is a count for each sort, and only the smallest counts are kept: more on one GPU never hurts the rest.
    """
    sorts = list(dict.fromkeys(wants))
    left: dict[_Counts, _Chain | None] = {tuple(map(wants.count, sorts)): None}
    loads: dict[GpuKind, dict[_Counts, list[_Step]]] = {}
    for number, kind in gpu_kinds(fleet, node):
        if kind not in loads:
            loads[kind] = _loads(kind, sorts, tuple(map(wants.count, sorts)))
        after: dict[_Counts, _Chain | None] = {}
        for counts, chain in left.items():
            for load, steps in loads[kind].items():
                rest = tuple(max(0, a - b) for a, b in zip(counts, load, strict=True))
                after.setdefault(rest, (chain, number, steps))
        left = {counts: after[counts] for counts in _pareto(after, smallest=True)}
    for counts, chain in left.items():
        if not any(counts):
            return _unwind(fleet, node, chain, sorts, wants)
    return None


def _loads(kind: GpuKind, sorts: Sequence[Want], most: _Counts) -> dict[_Counts, list[_Step]]:
    """The largest loads that one GPU can take, each with one way to place it."""
    found: dict[_Counts, list[_Step]] = {(0,) * len(sorts): []}
    seen = {(next(iter(found)), kind)}
    at = list(seen)
    steps: dict[tuple[_Counts, GpuKind], list[_Step]] = {at[0]: []}
    for counts, now in at:  # grows while it is walked
        for sort, want in enumerate(sorts):
            if counts[sort] == most[sort]:
                continue
            more = (*counts[:sort], counts[sort] + 1, *counts[sort + 1 :])
            for after, start, size in _ways(now, want):
                if (more, after) not in seen:
                    seen.add((more, after))
                    at.append((more, after))
                    steps[more, after] = [*steps[counts, now], (sort, start, size)]
                    found.setdefault(more, steps[more, after])
    return {counts: found[counts] for counts in _pareto(found, smallest=False)}


def _pareto(every: Iterable[_Counts], smallest: bool) -> list[_Counts]:
    """The smallest counts, which no other undercuts in every sort, or the largest."""
    kept: list[_Counts] = []
    for counts in sorted(every, key=sum, reverse=not smallest):
        if not any(all(a <= b if smallest else a >= b for a, b in zip(k, counts, strict=True)) for k in kept):
            kept.append(counts)
    return kept


def _unwind(
    fleet: Fleet, node: FleetNode, chain: _Chain | None, sorts: Sequence[Want], wants: Sequence[Want]
) -> list[Grant]:
    """The grants of a chain, one for each want; what a load has too much of is left out."""
    ready: dict[Want, list[Grant]] = {want: [] for want in sorts}
    while chain is not None:
        chain, number, steps = chain
        for sort, start, size in steps:
            ready[sorts[sort]].append(Grant(node.name, fleet.names[number], sorts[sort], start, size))
    return [ready[want].pop() for want in wants]


def gpu_kinds(fleet: Fleet, node: FleetNode) -> list[tuple[int, GpuKind]]:
    """The open GPUs of a node, by number, and what matters of each."""
    kinds: list[tuple[int, GpuKind]] = []
    for number in filter(fleet.is_open, node.gpus):
        pool = fleet.pool_of[number]
        if isinstance(pool, SharedPool):
            kinds.append((number, (pool.memory_mib, pool.free(number))))
        else:
            kinds.append((number, (pool.kinds, pool.kinds.of[fleet.state_of[number]])))
    return kinds


def _ways(kind: GpuKind, want: Want) -> Iterator[tuple[GpuKind, int, int]]:
    """The kinds that taking one more slice leads to, each with the slice's start and size."""
    of, state = kind
    if isinstance(of, int):
        if isinstance(want, Share) and want.of(of) <= state:
            yield (of, state - want.of(of)), 0, want.of(of)
    elif isinstance(want, str):
        profile = of.profile(want)
        for k in () if profile is None else of.choices[profile][state]:
            yield (of, of.after[state][k]), of.placements[k].start, of.placements[k].size
