"""Who holds what on which GPU: the exact state that policies look at and plans change.

No clock and no network: the controller and the simulator keep one each and record in it what happened. "The first GPU"
means the one with the lowest number. GPUs are numbered in the order in which they are added, so add nodes by name and
GPUs by UUID; the number of one that was removed goes to the next that is added, the lowest first, so that a fleet
whose GPUs come and go stays as small as it ever was.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from instaslice.geometry import Model, Placement, States
from instaslice.placement.demands import GpuId, Grant, NodeName, Share
from instaslice.placement.errors import FleetError, NotFree, NotHeld, UnknownGpu
from instaslice.placement.node_sets import NodeIndex
from instaslice.placement.pools import Pool, SharedPool


@dataclass(slots=True)
class FleetNode:
    """A node's GPUs by number, ascending, and its free memory slices."""

    name: NodeName
    gpus: list[int] = field(default_factory=list)
    free: int = 0


class Fleet:
    """GPUs by node, each cut by MIG or shared by memory, and what is held on each.

    `take` and `release` are inverse and cost the same whatever the size of the fleet. A closed GPU keeps what it
    holds and is not offered.
    """

    def __init__(self) -> None:
        self.nodes: dict[NodeName, FleetNode] = {}
        self.pools: list[Pool] = []
        """MIG pools, the GPUs with least memory first. One whose GPUs are all closed stays."""
        self.shared: list[SharedPool] = []
        self.names: list[GpuId] = []
        self.node_of: list[FleetNode] = []
        self.pool_of: list[Pool | SharedPool] = []
        self.state_of: list[int] = []
        self._number: dict[GpuId, int] = {}
        self._closed: dict[int, int] = {}  # GPU → its state or its free MiB
        self._why_closed: dict[int, dict[str, str]] = {}
        self.partial = False
        """Whether this is one node of a fleet, to try something on."""
        self.index = NodeIndex()
        """The nodes that have GPUs."""
        self.changes = self.index.changes()
        """The nodes on which capacity became free or was taken."""
        self._unused: list[int] = []  # numbers of GPUs that were removed, a heap
        self._gpus_in: Counter[Pool | SharedPool] = Counter()  # closed ones too

    def add_gpu(self, gpu: GpuId, node: NodeName, model: Model) -> None:
        """A GPU in MIG mode, empty. Raises FleetError where the fleet has one of that name."""
        self._refuse_twice(gpu)
        pool = self._pool(model)
        number = self._add(gpu, node, pool)
        pool.enter(number, 0)
        self.node_of[number].free += model.memory_slices

    def add_shared_gpu(self, gpu: GpuId, node: NodeName, memory_mib: int) -> None:
        """A GPU that pods share by memory, empty. Raises FleetError where the fleet has one of that name."""
        self._refuse_twice(gpu)
        pool = self._shared_pool(memory_mib)
        pool.enter(self._add(gpu, node, pool), memory_mib)

    def remove_gpu(self, gpu: GpuId) -> None:
        """Forget a GPU and all that it holds; its node and its pool go with their last GPU."""
        self.close(gpu)
        number = self._number.pop(gpu)
        pool, state = self.pool_of[number], self._closed.pop(number)
        if isinstance(pool, Pool):
            pool.held.subtract(placement.profile for placement in pool.states.held(state))
        self._why_closed.pop(number)
        heappush(self._unused, number)
        self._leave_pool(pool)
        node = self.node_of[number]
        node.gpus.remove(number)
        if not node.gpus:
            del self.nodes[node.name]
            self.index.remove(node.name)

    def close(self, gpu: GpuId, kind: str = "", why: str = "") -> None:
        """Do not offer this GPU for that kind of reason (unhealthy, say). What it holds stays held. Safe to repeat."""
        number = self.number(gpu)
        reasons = self._why_closed.setdefault(number, {})
        if reasons.get(kind) != why:
            # Who waits is told why, and of another reason too.
            self.changes.add(self.node_of[number].name)
        reasons[kind] = why
        if number not in self._closed:
            pool = self.pool_of[number]
            self._closed[number] = pool.leave(number)
            if isinstance(pool, Pool):
                self.node_of[number].free -= pool.states.free[self._closed[number]]

    def open(self, gpu: GpuId, kind: str = "") -> bool:
        """This kind of reason is gone. Whether the GPU is offered again, as no other is left. Safe to repeat."""
        number = self.number(gpu)
        reasons = self._why_closed.get(number, {})
        if reasons.pop(kind, None) is None:
            return False
        self.changes.add(self.node_of[number].name)
        if reasons:
            return False
        del self._why_closed[number]
        pool, state = self.pool_of[number], self._closed.pop(number)
        pool.enter(number, state)
        if isinstance(pool, Pool):
            self.node_of[number].free += pool.states.free[state]
        return True

    def why_closed(self, gpu: GpuId) -> Mapping[str, str]:
        """Kind of reason → why; empty for an open GPU."""
        return self._why_closed.get(self.number(gpu), {})

    def take(self, grant: Grant) -> None:
        """Hold what a grant says. Raises NotFree and changes nothing if it is taken or not legal.

        Works on a closed GPU too: what exists on the hardware is held, whether or not the GPU is offered.
        """
        number = self.number(grant.gpu)
        pool = self.pool_of[number]
        if isinstance(pool, Pool):
            self._shift(number, pool, grant, pool.states.after, NotFree)
            pool.held[str(grant.want)] += 1
        elif not isinstance(grant.want, Share) or not 0 < grant.size <= self._amount(number, pool):
            raise NotFree(f"{grant.want} does not fit GPU {grant.gpu}: {self._amount(number, pool)} MiB are free")
        else:
            self._set_amount(number, pool, self._amount(number, pool) - grant.size)

    def release(self, grant: Grant) -> None:
        """Hold it no longer. Raises NotHeld and changes nothing if it is not held."""
        number = self.number(grant.gpu)
        pool = self.pool_of[number]
        if isinstance(pool, Pool):
            self._shift(number, pool, grant, pool.states.before, NotHeld)
            pool.held[str(grant.want)] -= 1
        elif not isinstance(grant.want, Share) or not 0 < grant.size <= pool.memory_mib - self._amount(number, pool):
            raise NotHeld(f"GPU {grant.gpu} does not hold {grant.want}")
        else:
            self._set_amount(number, pool, self._amount(number, pool) + grant.size)

    def held(self, gpu: GpuId) -> tuple[Placement, ...]:
        """What is placed on a GPU in MIG mode; nothing for a shared one."""
        number = self.number(gpu)
        pool = self.pool_of[number]
        return pool.states.held(self.state(number)) if isinstance(pool, Pool) else ()

    def number(self, gpu: GpuId) -> int:
        found = self._number.get(gpu)
        if found is None:
            raise UnknownGpu(f"the fleet has no GPU {gpu}")
        return found

    def where(self, gpu: GpuId) -> NodeName | None:
        """The node of a GPU; None of one that the fleet does not have."""
        number = self._number.get(gpu)
        return None if number is None else self.node_of[number].name

    def state(self, number: int) -> int:
        """The state of a GPU in MIG mode, open or closed."""
        state = self.state_of[number]
        return state if state >= 0 else self._closed[number]

    def closed(self) -> Iterator[tuple[int, int]]:
        """The closed GPUs by number, each with its state, or with its free MiB where it is shared."""
        return iter(self._closed.items())

    def is_open(self, number: int) -> bool:
        return number not in self._closed

    def mig_gpus(self, node: FleetNode) -> Iterator[int]:
        """The open GPUs of a node that are in MIG mode, by number."""
        return (gpu for gpu in node.gpus if self.state_of[gpu] >= 0)

    def open_models(self, name: NodeName) -> list[Model]:
        """The models of a node's open GPUs that are in MIG mode; none of a node that has no GPUs."""
        node = self.nodes.get(name)
        pools = [self.pool_of[gpu] for gpu in self.mig_gpus(node)] if node is not None else []
        return [pool.model for pool in pools if isinstance(pool, Pool)]

    def full(self, name: NodeName) -> bool:
        """Whether no open GPU of a node has room for another slice; a shared one has until its memory is used up."""
        node = self.nodes.get(name)
        return node is not None and not any(map(self._has_room, node.gpus))

    def _has_room(self, number: int) -> bool:
        pool = self.pool_of[number]
        if isinstance(pool, SharedPool):
            return self.is_open(number) and pool.free(number) > 0
        state = self.state_of[number]
        return state >= 0 and max(pool.states.after[state], default=-1) >= 0

    def copy_of(self, node: FleetNode) -> "Fleet":
        """A fleet with only this node and its open GPUs, to try something on."""
        copy = Fleet()
        copy.partial = True
        for number in node.gpus:
            pool = self.pool_of[number]
            if number in self._closed:
                continue
            if isinstance(pool, Pool):
                state = self.state_of[number]
                twin = copy._pool(pool.model)
                twin.enter(copy._add(self.names[number], node.name, twin), state)
                copy.nodes[node.name].free += twin.states.free[state]
            else:
                shared = copy._shared_pool(pool.memory_mib)
                shared.enter(copy._add(self.names[number], node.name, shared), pool.free(number))
        return copy

    def __len__(self) -> int:
        return len(self._number)

    def _pool(self, model: Model) -> Pool:
        for pool in self.pools:
            if pool.model is model or pool.states is States.of(model):
                return pool
        pool = Pool(model, self.state_of)
        self.pools.append(pool)
        self.pools.sort(key=lambda each: each.model.memory_gb)
        return pool

    def _shared_pool(self, memory_mib: int) -> SharedPool:
        for pool in self.shared:
            if pool.memory_mib == memory_mib:
                return pool
        pool = SharedPool(memory_mib)
        self.shared.append(pool)
        self.shared.sort(key=lambda each: each.memory_mib)
        return pool

    def _refuse_twice(self, gpu: GpuId) -> None:
        if gpu in self._number:
            raise FleetError(f"the fleet has a GPU {gpu} already")

    def _add(self, gpu: GpuId, name: NodeName, pool: Pool | SharedPool) -> int:
        node = self.nodes.setdefault(name, FleetNode(name))
        self.index.add(name)
        self.changes.add(name)
        if self._unused:
            number = heappop(self._unused)
            self.names[number], self.node_of[number], self.pool_of[number] = gpu, node, pool
        else:
            number = len(self.names)
            self.names.append(gpu)
            self.node_of.append(node)
            self.pool_of.append(pool)
            self.state_of.append(-1)
        self._number[gpu] = number
        self._gpus_in[pool] += 1
        insort(node.gpus, number)
        return number

    def _leave_pool(self, pool: Pool | SharedPool) -> None:
        self._gpus_in[pool] -= 1
        if self._gpus_in[pool]:
            return
        del self._gpus_in[pool]
        if isinstance(pool, Pool):
            self.pools.remove(pool)
        else:
            self.shared.remove(pool)

    def _shift(self, number: int, pool: Pool, grant: Grant, table: list[list[int]], error: type[FleetError]) -> None:
        """Move a GPU to the state that `table` (after or before) leads to."""
        states = pool.states
        k = states.placement(grant.want, grant.start) if isinstance(grant.want, str) else None
        state = self.state_of[number]
        is_open = state >= 0
        if not is_open:
            state = self._closed[number]
        to = -1 if k is None else table[state][k]
        if to < 0:
            holds = ", ".join(map(str, states.held(state))) or "nothing"
            raise error(f"{grant.want} at {grant.start} on GPU {grant.gpu}, which holds {holds}")
        if is_open:
            pool.leave(number)
            pool.enter(number, to)
            node = self.node_of[number]
            node.free += states.free[to] - states.free[state]
            self.changes.add(node.name)
        else:
            self._closed[number] = to

    def _amount(self, number: int, pool: SharedPool) -> int:
        return self._closed[number] if number in self._closed else pool.free(number)

    def _set_amount(self, number: int, pool: SharedPool, mib: int) -> None:
        if number in self._closed:
            self._closed[number] = mib
        else:
            pool.leave(number)
            pool.enter(number, mib)
            self.changes.add(self.node_of[number].name)
