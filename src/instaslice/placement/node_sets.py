"""Cached sets of nodes, updated only for nodes that changed: which nodes admit this pod, which have room for 3g.20gb.

A predicate is evaluated once for each node, and again only for nodes that changed since. The results are bits, so that
an AND finds the nodes for which several predicates hold, whatever the number of GPUs or callers.
"""

from collections.abc import Callable
from typing import Final

from instaslice.placement.demands import NodeName
from instaslice.placement.pools import bits

_REMEMBERED: Final = 4096
"""Changes that are remembered. A set that has not read for longer evaluates every node again."""


class NodeIndex:
    """A bit for each node. The bit of a removed node is reused."""

    def __init__(self) -> None:
        self.all = 0
        """The bits of all nodes."""
        self._bits: dict[NodeName, int] = {}
        self._names: list[NodeName] = []
        self._unused: list[int] = []
        self._changes: list[Changes] = []

    def changes(self) -> "Changes":
        """A new log of changes to these nodes."""
        self._changes.append(Changes(self))
        return self._changes[-1]

    def bit(self, name: NodeName) -> int | None:
        """The number of its bit; None where the node is not known."""
        return self._bits.get(name)

    def name(self, bit: int) -> NodeName:
        return self._names[bit]

    def add(self, name: NodeName) -> None:
        """Safe to repeat."""
        if name in self._bits:
            return
        if self._unused:
            bit = self._unused.pop()
            self._names[bit] = name
        else:
            bit = len(self._names)
            self._names.append(name)
        self._bits[name] = bit
        self.all |= 1 << bit

    def remove(self, name: NodeName) -> None:
        """Safe to repeat."""
        if name not in self._bits:
            return
        # What is known of this bit is not true of the next node that gets it.
        for changes in self._changes:
            changes.add(name)
        bit = self._bits.pop(name)
        self.all &= ~(1 << bit)
        self._unused.append(bit)


class Changes:
    """A log of changed nodes; each NodeSet knows how far it has read. Created by NodeIndex."""

    def __init__(self, index: NodeIndex) -> None:
        self.index = index
        self._bits: list[int] = []
        self._start = 0
        """How many changes were dropped."""

    @property
    def end(self) -> int:
        return self._start + len(self._bits)

    def add(self, name: NodeName) -> None:
        bit = self.index.bit(name)
        if bit is None:
            return
        if len(self._bits) >= _REMEMBERED:
            self._start += len(self._bits)
            self._bits.clear()
        self._bits.append(bit)

    def since(self, position: int) -> int | None:
        """The nodes that have changed since, as a mask; None if those changes were dropped."""
        if position < self._start:
            return None
        mask = 0
        for bit in self._bits[position - self._start :]:
            mask |= 1 << bit
        return mask


class NodeSet:
    """The nodes for which `holds` is true. It is evaluated lazily, and again only after a node appears in `changes`."""

    __slots__ = ("__weakref__", "_changes", "_holds", "_known", "_mask", "_read")

    def __init__(self, changes: Changes, holds: Callable[[NodeName], bool]) -> None:
        self._changes = changes
        self._holds = holds
        self._known = self._mask = 0
        self._read = changes.end

    def among(self, nodes: int) -> int:
        """The nodes of this mask for which it holds."""
        self._catch_up()
        if unknown := nodes & ~self._known:
            name = self._changes.index.name
            for bit in bits(unknown):
                if self._holds(name(bit)):
                    self._mask |= 1 << bit
            self._known |= unknown
        return self._mask & nodes

    def __contains__(self, name: NodeName) -> bool:
        bit = self._changes.index.bit(name)
        return bit is not None and bool(self.among(1 << bit))

    def _catch_up(self) -> None:
        end = self._changes.end
        if self._read == end:
            return
        changed = self._changes.since(self._read)
        self._read = end
        self._known = 0 if changed is None else self._known & ~changed
        self._mask &= self._known
