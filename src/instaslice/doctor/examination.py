"""All rules over one state, repeated until a cluster has settled.

`examine` is pure. A Doctor remembers earlier states, because no object says how long a transition has taken.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from instaslice.api.instaslice import AllocationState
from instaslice.doctor import gpu_rules, node_rules, pod_rules
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.observed_cluster import HeldAllocation, ObservedCluster
from instaslice.doctor.readable import readable
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock, SystemClock

PATIENCE = 60.0
"""Seconds that creating or destroying a slice may take without a reason given."""
INTERVAL = 0.5

Rule = Callable[[ObservedCluster], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    readable,
    gpu_rules.no_overlap,
    gpu_rules.legal_layout,
    gpu_rules.slice_exists,
    gpu_rules.slice_owned,
    pod_rules.pod_exists,
    pod_rules.uuid_matches,
    pod_rules.uuid_once,
    pod_rules.pod_has_slices,
    pod_rules.pod_remembered,
    pod_rules.right_node,
    node_rules.node_suffices,
    node_rules.capacity_true,
    node_rules.hardware_there,
)

Transition = tuple[str, str, AllocationState]
"""Node, allocation id, `creating` or `deleting`."""


def examine(
    cluster: ObservedCluster, since: Mapping[Transition, datetime] | None = None, patience: float = PATIENCE
) -> list[Finding]:
    """Everything that is wrong, sorted. `since` says when each transition was first seen."""
    found = [finding for rule in RULES for finding in rule(cluster)]
    found += _stuck(cluster, since or {}, timedelta(seconds=patience))
    return sorted(set(found))


def transitions(cluster: ObservedCluster) -> dict[Transition, HeldAllocation]:
    """Slices that are being created or destroyed, unless a reason says why it takes long."""
    found: dict[Transition, HeldAllocation] = {}
    running = {pod.metadata.uid for pod in cluster.running}
    for held in cluster.allocations:
        a = held.allocation
        if held.deleting:
            if held.prepared is None or not held.prepared.reason:
                found[held.node, a.id, AllocationState.DELETING] = held
        elif not held.created and a.pod.uid not in running:
            found[held.node, a.id, AllocationState.CREATING] = held
    return found


def _stuck(cluster: ObservedCluster, since: Mapping[Transition, datetime], patience: timedelta) -> Iterator[Finding]:
    for transition, held in transitions(cluster).items():
        lasted = cluster.now - since.get(transition, cluster.now)
        # The entry of a slice that is gone stays until the controller has something else to write, for some seconds.
        allowed = max(patience, timedelta(seconds=PATIENCE)) if held.slice_deleted else patience
        if transition in since and lasted >= allowed:
            state, seconds = transition[2], lasted.total_seconds()
            message = f"{held} has been {state} for more than {seconds:.0f} s without a reason; does its agent run?"
            yield Finding(Invariant.MOVES_ON, f"instaslice {held.node}", message)


class Doctor:
    """Examines one cluster repeatedly."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._since: dict[Transition, datetime] = {}
        self.moving = 0
        """How many slices were being created or destroyed at the last examination. One that is gone does not count,
        though the controller prunes its entry only with its next write."""

    def examine(self, cluster: ObservedCluster) -> list[Finding]:
        now = transitions(cluster)
        self.moving = sum(not held.slice_deleted for held in now.values())
        self._since = {each: self._since.get(each, cluster.now) for each in now}
        return examine(cluster, self._since, self._patience)


async def check(client: Client, clock: Clock | None = None) -> list[Finding]:
    """What is wrong at this moment, transient findings included."""
    return examine(await ObservedCluster.read(client, clock or SystemClock()))


async def wait_until_settled(
    client: Client,
    timeout: float,
    *,
    clock: Clock | None = None,
    interval: float = INTERVAL,
    on_progress: Callable[[list[Finding], int], None] = lambda _found, _moving: None,
) -> list[Finding]:
    """Examine repeatedly until nothing is wrong and no slice is in transition; returns what is wrong at the timeout.

    A transient finding then counts only if the last two examinations have it: where pods are created and deleted all
    the time, there is always some transient finding. `on_progress` gets the findings and the number of slices in
    transition.
    """
    clock = clock or SystemClock()
    # What has not changed between the first examination and the last is stuck. A single one cannot tell.
    doctor = Doctor(patience=min(PATIENCE, timeout * 0.8) if timeout else PATIENCE)
    deadline = clock.monotonic() + timeout
    before: list[Finding] = []
    while True:
        found = doctor.examine(await ObservedCluster.read(client, clock))
        on_progress(found, doctor.moving)
        if not found and not doctor.moving:
            return []
        if clock.monotonic() >= deadline:
            return [each for each in found if not each.transient or each in before or not timeout]
        before = found
        await clock.sleep(interval)
