"""Room kept for a pod that has waited too long, so that smaller ones do not pass it for ever.

One pod at a time, the first in line, once its patience is over. A GPU (or a node, where it needs several slices or
CPU and memory are what is short) is closed to all others until it fits there. Which one: where the fewest slices
have to end. designs/0006 says why this is enough.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from instaslice.controller.ledger import Ledger
from instaslice.geometry import Model
from instaslice.placement import Demand, Fleet, GpuId, NodeName, Placer, Plan

KIND = "kept"


@dataclass(frozen=True, slots=True)
class Kept:
    """GPUs that are kept for a pod, until when."""

    uid: str
    node: NodeName
    gpus: tuple[GpuId, ...]
    until: float


class Patience:
    """`seconds` is how long the first in line lets others pass, and how long one choice is held before the next."""

    def __init__(self, ledger: Ledger, seconds: float) -> None:
        self.seconds = seconds
        self.kept: Kept | None = None
        self._ledger = ledger
        self._could_hold = lru_cache(maxsize=4096)(self._empty_could_hold)

    def keep(
        self, uid: str, wants: Sequence[str], eligible: Callable[[NodeName], bool], whole: bool, now: float
    ) -> bool:
        """Keep room for a pod; whether there is a place that could ever hold it. `eligible` says of a node whether it
        would admit the pod if it were empty, `whole` whether a node is kept and not one GPU."""
        self.drop()
        found = self._node(wants, eligible) if whole or len(wants) > 1 else self._gpu(wants[0], eligible)
        if found is None:
            return False
        node, gpus = found
        self._close(Kept(uid, node, gpus, now + self.seconds))
        return True

    @contextmanager
    def lifted_for(self, uid: str) -> Iterator[None]:
        """What is kept for this pod is open to it; where it then holds nothing more is kept."""
        kept = self.kept
        if kept is None or kept.uid != uid:
            yield
            return
        self.drop()
        yield
        if uid not in self._ledger.reservations and kept.node in self._ledger.nodes:
            self._close(kept)

    def drop(self) -> None:
        """Keep nothing any more. Safe to repeat."""
        if self.kept is not None:
            kept, self.kept = self.kept, None
            for gpu in kept.gpus:
                self._ledger.reopen(gpu, kept.node, KIND)

    def _close(self, kept: Kept) -> None:
        self.kept = kept
        for gpu in kept.gpus:
            if gpu in self._ledger.nodes[kept.node].gpus:
                words = f"kept for a pod that has waited longer than {self.seconds:.0f} s"
                self._ledger.close(gpu, kept.node, KIND, words)

    def _gpu(self, want: str, eligible: Callable[[NodeName], bool]) -> tuple[NodeName, tuple[GpuId, ...]] | None:
        best: tuple[tuple[int, int], NodeName, GpuId] | None = None
        for node, gpu in self._gpus(eligible):
            model = self._ledger.nodes[node].gpus[gpu]
            if not model.has(want):
                continue
            held = self._ledger.fleet.held(gpu)
            for place in model.profile(want).placements():
                inside = [each for each in held if each.mask & place.mask]
                cost = len(inside), sum(each.size for each in inside)
                if best is None or cost < best[0]:
                    best = cost, node, gpu
        return None if best is None else (best[1], (best[2],))

    def _node(
        self, wants: Sequence[str], eligible: Callable[[NodeName], bool]
    ) -> tuple[NodeName, tuple[GpuId, ...]] | None:
        best: tuple[int, NodeName] | None = None
        for name, record in self._ledger.nodes.items():
            if not eligible(name) or not self.could_hold(name, wants):
                continue
            held = sum(len(self._ledger.fleet.held(gpu)) for gpu in record.gpus)
            if best is None or held < best[0]:
                best = held, name
        return None if best is None else (best[1], tuple(self._ledger.nodes[best[1]].gpus))

    def _gpus(self, eligible: Callable[[NodeName], bool]) -> Iterator[tuple[NodeName, GpuId]]:
        for name, record in self._ledger.nodes.items():
            if eligible(name):
                yield from ((name, gpu) for gpu in record.gpus if gpu not in record.closed)

    def could_hold(self, node: NodeName, wants: Sequence[str]) -> bool:
        """Whether the healthy GPUs of a node would hold these slices if they were empty."""
        record = self._ledger.nodes[node]
        open_gpus = Counter(model for gpu, model in record.gpus.items() if gpu not in record.closed)
        return self._could_hold(frozenset(open_gpus.items()), tuple(sorted(wants)))

    def _empty_could_hold(self, gpus: frozenset[tuple[Model, int]], wants: tuple[str, ...]) -> bool:
        node, empty = NodeName("empty"), Fleet()
        for model, count in gpus:
            for _ in range(count):
                empty.add_gpu(GpuId(str(len(empty))), node, model)
        return isinstance(Placer(empty, self._ledger.placer.policy).place(Demand(wants)), Plan)
