"""All rules over one world, and looking again until a cluster is settled.

`examine` is pure. A Doctor remembers what it saw before, because how long something has been under way stands in no
object.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from instaslice.api.instaslice import AllocationState
from instaslice.doctor import machines, pods, slots
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.readable import readable
from instaslice.doctor.world import Held, World, look
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock, SystemClock

PATIENCE = 60.0
"""Seconds that a slice may take to be made or destroyed without anybody saying why."""
BETWEEN_LOOKS = 0.5

Rule = Callable[[World], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    readable,
    slots.no_overlap,
    slots.legal_layout,
    slots.slice_exists,
    slots.slice_owned,
    pods.pod_exists,
    pods.uuid_matches,
    pods.uuid_once,
    pods.pod_has_slices,
    pods.pod_remembered,
    pods.right_node,
    machines.node_suffices,
    machines.capacity_true,
    machines.hardware_there,
)

Motion = tuple[str, str, AllocationState]
"""Node, allocation id, state: something that is under way."""


def examine(world: World, since: Mapping[Motion, datetime] | None = None, patience: float = PATIENCE) -> list[Finding]:
    """Everything that is wrong in a world, sorted. `since` says how long motions have been seen to last."""
    found = [finding for rule in RULES for finding in rule(world)]
    found += _moves_on(world, since or {}, timedelta(seconds=patience))
    return sorted(set(found))


def under_way(world: World) -> dict[Motion, Held]:
    """What is being made or destroyed, and nobody has said why it takes long."""
    found: dict[Motion, Held] = {}
    for held in world.held:
        a = held.allocation
        explained = a.state is AllocationState.DELETING and held.made is not None and held.made.reason
        if a.state in (AllocationState.CREATING, AllocationState.DELETING) and not explained:
            found[held.node, a.id, a.state] = held
    return found


def _moves_on(world: World, since: Mapping[Motion, datetime], patience: timedelta) -> Iterator[Finding]:
    for motion, held in under_way(world).items():
        began = since.get(motion)
        if began is None or world.now - began < patience:
            continue
        lasted = (world.now - began).total_seconds()
        words = f"{held} has been {held.allocation.state} for more than {lasted:.0f} s and nobody says why"
        yield Finding(
            invariant=Invariant.MOVES_ON,
            object=f"instaslice {held.node}",
            words=f"{words}; does its agent run?",
        )


class Doctor:
    """Looks at one cluster again and again."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._since: dict[Motion, datetime] = {}

    @property
    def moving(self) -> int:
        """How many slices were being made or destroyed at the last look."""
        return len(self._since)

    def examine(self, world: World) -> list[Finding]:
        self._since = {motion: self._since.get(motion, world.now) for motion in under_way(world)}
        return examine(world, self._since, self._patience)


async def check(client: Client, clock: Clock | None = None) -> list[Finding]:
    """What is wrong at this moment, passing states included."""
    return examine(await look(client, clock or SystemClock()))


async def settled(
    client: Client,
    timeout: float,
    *,
    clock: Clock | None = None,
    between: float = BETWEEN_LOOKS,
    told: Callable[[list[Finding], int], None] = lambda _found, _moving: None,
) -> list[Finding]:
    """Look again until nothing is wrong and nothing is under way; what is still wrong when the time is over.

    Then a finding that may pass counts if it stood in the last two looks: where pods come and go all the time,
    something is always passing. `told` hears of each look: what was found and how many slices are in motion.
    """
    clock = clock or SystemClock()
    # What has not moved since the first look is stuck when the last one comes; one look tells nothing of that.
    doctor = Doctor(patience=min(PATIENCE, timeout * 0.8) if timeout else PATIENCE)
    over = clock.monotonic() + timeout
    before: list[Finding] = []
    while True:
        found = doctor.examine(await look(client, clock))
        told(found, doctor.moving)
        if not found and not doctor.moving:
            return []
        if clock.monotonic() >= over:
            return [each for each in found if not each.passing or each in before or not timeout]
        before = found
        await clock.sleep(between)
