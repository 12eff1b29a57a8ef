"""An agent without a cluster: a clock that moves by hand, GPUs that die at a chosen step, allocations by few words."""

import asyncio
import contextlib

from fake_clock import FakeClock
from injected_faults import InjectedFaults

from instaslice.agent.gpu_worker import OrphanPolicy, WorkerContext
from instaslice.agent.node import NodeAgent
from instaslice.api.instaslice import EMPTY_STATUS, Allocation, AllocationState, Instaslice, InstasliceSpec, PodRef
from instaslice.drivers import DriverError, Unhealthy, UnhealthyReason, UnresponsiveGpu
from instaslice.drivers.emulated import EmulatedDriver
from instaslice.drivers.executor import GpuExecutor
from instaslice.geometry import models
from instaslice.kube.meta import ObjectMeta

A100 = models.named("A100-40GB")


class Killed(BaseException):
    """The process ends here."""


class MortalDriver(EmulatedDriver):
    """Hardware that outlives the agent, which is killed when `dies_in` more steps of it have begun. The GPUs at the
    indexes in `hushed` have not answered when they were looked for."""

    dies_in = None
    hushed = ()

    def __init__(self, node, models):
        super().__init__(node, models, faults=InjectedFaults())

    def discover(self):
        return tuple(gpu for gpu in super().discover() if gpu.index not in self.hushed)

    def unresponsive(self):
        return tuple(
            UnresponsiveGpu(index, Unhealthy(f"GPU {index}: it does not answer", UnhealthyReason.HUNG))
            for index in self.hushed
        )

    def slices(self, gpu):
        if gpu not in {each.uuid for each in self.discover()}:
            raise DriverError(f"GPU {gpu} is not in this node")
        return super().slices(gpu)

    def _pause(self, step, size):
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.dies_in = None
                raise Killed


class Bench:
    """One node whose agent is advanced by hand. `written` is what the API server would hold."""

    def __init__(self, gpus=1, **orphan_policy):
        self.driver = MortalDriver("node", [A100] * gpus)
        self.gpus = [gpu.uuid for gpu in self.driver.discover()]
        self.clock = FakeClock()
        self.orphan_policy = OrphanPolicy(**orphan_policy)
        self.written = EMPTY_STATUS
        self.spec = ()
        self.generation = 1
        self.failures = []
        self.users = {}
        """(gpu, profile, start) → who uses it, as the kubelet and the pods tell."""
        self.restart()

    def restart(self):
        """A new process, which knows what was written and nothing else."""
        context = WorkerContext(
            driver=self.driver,
            executor=GpuExecutor(),
            clock=self.clock,
            orphan_policy=self.orphan_policy,
            spawn=_spawn,
            changed=lambda: None,
            failed=self.failures.append,
            in_use=lambda orphans: self.in_use(orphans),
        )
        self.agent = NodeAgent(context, self.written)

    async def in_use(self, orphans):
        places = {each: (each.gpu, each.placement.profile, each.placement.start) for each in orphans}
        return {each: self.users[place] for each, place in places.items() if place in self.users}

    def write(self, *allocations):
        self.spec, self.generation = allocations, self.generation + 1

    def take(self):
        meta = ObjectMeta(name="node", uid="u", generation=self.generation)
        self.agent.set_allocations(Instaslice(metadata=meta, spec=InstasliceSpec(allocations=tuple(self.spec))))

    def work(self, *, report=True):
        """Take in the spec and do what is due; `report` False is an agent that is killed before it could write."""
        self.take()
        self.agent.advance()
        if report:
            self.written = self.agent.status()
        return self.states()

    def states(self):
        return {each.id: each.state.value for each in self.written.slices}

    def there(self, gpu=0):
        """What is on the hardware: (profile, start), with a mark on what is half made."""
        return [
            (each.placement.profile, each.placement.start, *(() if each.whole else ("half",)))
            for each in self.driver.slices(self.gpus[gpu])
        ]

    def wants(self, name, profile="1g.5gb", start=0, state="creating", gpu=0):
        return Allocation(
            id=name,
            pod=PodRef(namespace="a", name="b", uid="c"),
            container="main",
            profile=profile,
            gpu=self.gpus[gpu],
            start=start,
            size=A100.profile(profile).size,
            state=AllocationState(state),
        )


def _spawn(work):
    """A task where a loop runs; elsewhere as far as the work goes without waiting."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with contextlib.suppress(StopIteration):
            work.send(None)
        return None
    return asyncio.ensure_future(work)
