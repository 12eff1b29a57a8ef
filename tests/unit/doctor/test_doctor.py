"""One broken world for each invariant, each found; and legal worlds, in which nothing is found."""

import msgspec
import pytest
from fake_clock import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st
from small_worlds import A100, CAPACITY, NOW, allocation, instaslice, made, node, pod, uuid, world

from instaslice.api.instaslice import AllocationState, Health, PreparedSlice, SliceState
from instaslice.api.names import GATE
from instaslice.doctor import Doctor, Invariant, ObservedCluster, examine, wait_until_settled
from instaslice.geometry import States
from instaslice.kube.core import NodeSelectorTerm

GI_ONE = allocation("a", "1g.5gb", 0)
BESIDE = allocation("b", "1g.5gb", 1)
A = pod("a", "1g.5gb", on="gpu-0", given=[uuid(GI_ONE)])
WAITING = pod("a", "1g.5gb", gates=[GATE], condition="False")
FOREIGN = PreparedSlice(id="MIG-x", gpu="GPU-0", profile="1g.5gb", start=0, size=1, state=SliceState.FOREIGN)


def changed(struct, **fields):
    return msgspec.structs.replace(struct, **fields)


def with_a(*, promised=GI_ONE, pod=A, **more):
    return world([pod], [instaslice(promised, **more)])


def two(second):
    """Pod a as it should be, pod b with this allocation."""
    b = pod("b", second.profile, on="gpu-0", given=[uuid(second)])
    return world([A, b], [instaslice(GI_ONE, second)])


TEN = allocation("a", "1g.10gb", 0, asked_gb=8)


def by_memory(gb, held, *profiles):
    """A pod that asks for so much memory, and for these profiles, and holds this."""
    asking = pod("a", *profiles, by_memory=gb, on="gpu-0", given=[uuid(each) for each in held])
    return world([asking], [instaslice(*held)])


CERTAIN, PASSING = False, True

BROKEN = [
    pytest.param(two(allocation("b", "2g.10gb", 0)), Invariant.NO_OVERLAP, CERTAIN, id="two on one place"),
    pytest.param(
        with_a(slices=[made(GI_ONE), FOREIGN]), Invariant.NO_OVERLAP, CERTAIN, id="a foreign slice where a pod runs"
    ),
    pytest.param(
        world(
            [WAITING],
            [instaslice(changed(GI_ONE, state=AllocationState.CREATING), slices=[FOREIGN])],
        ),
        Invariant.NO_OVERLAP,
        PASSING,
        id="a foreign slice where one is about to be made",
    ),
    pytest.param(two(allocation("b", "1g.5gb", 7)), Invariant.LEGAL_LAYOUT, CERTAIN, id="no such start"),
    pytest.param(
        with_a(promised=allocation("a", "1g.5gb", 0, size=2)), Invariant.LEGAL_LAYOUT, CERTAIN, id="a wrong size"
    ),
    pytest.param(
        world(
            [pod(name, "1g.5gb+me", on="gpu-0", given=[f"MIG-GPU-0-1g.5gb+me-{at}"]) for at, name in enumerate("ab")],
            [instaslice(allocation("a", "1g.5gb+me", 0), allocation("b", "1g.5gb+me", 1))],
        ),
        Invariant.LEGAL_LAYOUT,
        CERTAIN,
        id="beside each other, but the GPU has the media engines once",
    ),
    pytest.param(world([], [instaslice(GI_ONE)]), Invariant.POD_EXISTS, PASSING, id="a pod that is gone"),
    pytest.param(
        with_a(pod=changed(WAITING, metadata=changed(WAITING.metadata, uid="another"))),
        Invariant.POD_EXISTS,
        PASSING,
        id="another pod of the same name",
    ),
    pytest.param(
        with_a(pod=pod("a", "1g.5gb", on="gpu-0", phase="Succeeded")),
        Invariant.POD_EXISTS,
        PASSING,
        id="a pod that ended",
    ),
    pytest.param(with_a(slices=[]), Invariant.SLICE_EXISTS, CERTAIN, id="a pod runs and there is no slice"),
    pytest.param(
        with_a(promised=changed(GI_ONE, state=AllocationState.CREATING), slices=[]),
        Invariant.SLICE_EXISTS,
        CERTAIN,
        id="past the gate before the slice is there",
    ),
    pytest.param(
        with_a(slices=[made(GI_ONE, start=1)]), Invariant.SLICE_EXISTS, CERTAIN, id="the slice is at another place"
    ),
    pytest.param(
        with_a(slices=[made(GI_ONE, SliceState.FAILED, reason="slice lost: reboot")]),
        Invariant.SLICE_EXISTS,
        PASSING,
        id="a slice that the agent says is lost",
    ),
    pytest.param(
        world([], [instaslice(slices=[made(GI_ONE)])]), Invariant.SLICE_OWNED, CERTAIN, id="a slice of no allocation"
    ),
    pytest.param(
        world([], [instaslice(slices=[made(GI_ONE)], observed=4)]),
        Invariant.SLICE_OWNED,
        PASSING,
        id="a slice whose agent has not heard that it must go",
    ),
    pytest.param(
        with_a(pod=pod("a", "1g.5gb", on="gpu-0", given=["MIG-other"])),
        Invariant.UUID_MATCHES,
        CERTAIN,
        id="the annotation names another slice",
    ),
    pytest.param(
        with_a(pod=pod("a", "1g.5gb", on="gpu-0")), Invariant.UUID_MATCHES, CERTAIN, id="the annotation is missing"
    ),
    pytest.param(
        world(
            [A, pod("b", "1g.5gb", on="gpu-0", given=[uuid(GI_ONE)])],
            [instaslice(GI_ONE, BESIDE, slices=[made(GI_ONE), made(BESIDE, mig_uuid=uuid(GI_ONE))])],
        ),
        Invariant.UUID_ONCE,
        CERTAIN,
        id="one slice for two pods",
    ),
    pytest.param(
        world([], [instaslice(slices=[FOREIGN, changed(FOREIGN, id="other", start=1)])]),
        None,
        CERTAIN,
        id="slices without a UUID are not alike",
    ),
    pytest.param(
        world(
            [],
            [
                instaslice(
                    slices=[changed(FOREIGN, mig_uuid="MIG-x"), changed(FOREIGN, id="y", start=1, mig_uuid="MIG-x")]
                )
            ],
        ),
        Invariant.UUID_ONCE,
        CERTAIN,
        id="one UUID for two slices",
    ),
    pytest.param(world([A]), Invariant.POD_HAS_SLICES, CERTAIN, id="a pod runs without an allocation"),
    pytest.param(
        with_a(pod=pod("a", "1g.5gb", "1g.5gb", on="gpu-0", given=[uuid(GI_ONE)])),
        Invariant.POD_HAS_SLICES,
        CERTAIN,
        id="two asked for, one held",
    ),
    pytest.param(by_memory(8, [TEN]), None, None, id="8 GB asked for, a 1g.10gb held"),
    pytest.param(by_memory(11, [TEN]), Invariant.POD_HAS_SLICES, CERTAIN, id="less memory than asked for"),
    pytest.param(
        by_memory(8, [changed(TEN, asked_gb=0)]),
        Invariant.POD_HAS_SLICES,
        CERTAIN,
        id="memory asked for, a slice held that the kubelet knows by its profile",
    ),
    pytest.param(by_memory(8, [changed(TEN, container="x")]), Invariant.POD_HAS_SLICES, CERTAIN, id="of another one"),
    pytest.param(
        by_memory(8, [changed(TEN, start=2), changed(GI_ONE, id="uid-a-x-1")], "1g.5gb"),
        None,
        None,
        id="by memory and by profile",
    ),
    pytest.param(
        by_memory(5, [changed(GI_ONE, asked_gb=5)], "1g.5gb"),
        Invariant.POD_HAS_SLICES,
        CERTAIN,
        id="one slice does not do for both",
    ),
    pytest.param(
        with_a(promised=changed(GI_ONE, state=AllocationState.DELETING)),
        Invariant.POD_HAS_SLICES,
        CERTAIN,
        id="a slice is taken away while its pod runs",
    ),
    pytest.param(
        world([A], nodes=[node(ready=False)]), Invariant.POD_HAS_SLICES, PASSING, id="a pod on a node that is lost"
    ),
    pytest.param(
        world([changed(A, metadata=changed(A.metadata, deletion_timestamp=NOW))]),
        Invariant.POD_HAS_SLICES,
        PASSING,
        id="a pod that is being deleted and has given up its slice",
    ),
    pytest.param(world([A], []), Invariant.POD_HAS_SLICES, PASSING, id="the object of its node is gone"),
    pytest.param(
        world([pod("a", "1g.5gb", on="gpu-0")]),
        Invariant.POD_HAS_SLICES,
        CERTAIN,
        id="past its gate and given nothing",
    ),
    pytest.param(
        world([A], [instaslice(GI_ONE, slices=[])], [node(ready=False)]),
        Invariant.SLICE_EXISTS,
        PASSING,
        id="no slice on a node that is lost",
    ),
    pytest.param(
        world([], [instaslice(slices=[made(GI_ONE, SliceState.DELETING)])]),
        Invariant.SLICE_OWNED,
        PASSING,
        id="a slice of no allocation that is being destroyed",
    ),
    pytest.param(
        world([A], [instaslice(slices=[made(GI_ONE, SliceState.FOREIGN, id=uuid(GI_ONE), mig_uuid=uuid(GI_ONE))])]),
        Invariant.POD_HAS_SLICES,
        PASSING,
        id="the object was made anew and the controller promises again what the pod holds",
    ),
    pytest.param(
        world([pod("a", "1g.5gb", gates=[GATE])]), Invariant.POD_REMEMBERED, CERTAIN, id="a gated pod says nothing"
    ),
    pytest.param(
        world([pod("a", "1g.5gb", gates=[GATE], condition="True")]),
        Invariant.POD_REMEMBERED,
        PASSING,
        id="ready and still gated",
    ),
    pytest.param(
        world([changed(A, spec=changed(A.spec, node_name="gpu-1"))], [instaslice(GI_ONE)]),
        Invariant.RIGHT_NODE,
        CERTAIN,
        id="a pod on another node than its slice",
    ),
    pytest.param(
        with_a(pod=pod("a", "1g.5gb", phase="Pending", given=[uuid(GI_ONE)])),
        Invariant.RIGHT_NODE,
        CERTAIN,
        id="past the gate and free to go anywhere",
    ),
    pytest.param(
        world(
            [pod("a", "1g.5gb", "1g.5gb", gates=[GATE], condition="False")],
            [
                instaslice(changed(GI_ONE, state=AllocationState.CREATED)),
                instaslice(
                    allocation("a", "1g.5gb", 1, gpu="GPU-2", number=1, state=AllocationState.CREATED),
                    name="gpu-1",
                    gpus=["GPU-2", "GPU-3"],
                ),
            ],
            [node(), node("gpu-1")],
        ),
        Invariant.RIGHT_NODE,
        CERTAIN,
        id="one pod, two nodes",
    ),
    pytest.param(
        world(
            [pod("a", "1g.5gb", pinned="gpu-0", phase="Pending", given=[uuid(GI_ONE)])],
            [instaslice(changed(GI_ONE, cpu=65_000))],
        ),
        Invariant.NODE_SUFFICES,
        CERTAIN,
        id="more CPU promised than the node has",
    ),
    pytest.param(
        world(
            [pod("a", "1g.5gb", pinned="gpu-0", phase="Pending", given=[uuid(GI_ONE)]), pod("c", on="gpu-0", cpu="60")],
            [instaslice(changed(GI_ONE, cpu=5_000))],
        ),
        Invariant.NODE_SUFFICES,
        PASSING,
        id="another pod took the CPU that was promised",
    ),
    pytest.param(
        world(nodes=[node(**{"gpu.das.com/mig-1g.5gb": "7"})]), Invariant.CAPACITY_TRUE, PASSING, id="half the capacity"
    ),
    pytest.param(
        world(nodes=[node(**{"gpu.das.com/mem": None})]), Invariant.CAPACITY_TRUE, PASSING, id="memory not advertised"
    ),
    pytest.param(
        world([], [instaslice(name="gone")]), Invariant.HARDWARE_THERE, PASSING, id="the node of the object is gone"
    ),
    pytest.param(
        world([], [instaslice(changed(GI_ONE, state=AllocationState.DELETING), gpus=["GPU-1", "GPU-2"])]),
        Invariant.HARDWARE_THERE,
        PASSING,
        id="an allocation on a GPU that was pulled",
    ),
]


@pytest.mark.parametrize("broken, invariant, passing", BROKEN)
def test_what_is_wrong_is_found_and_nothing_else(broken, invariant, passing):
    found = examine(broken)
    assert {(each.invariant, each.transient) for each in found} == ({(invariant, passing)} if invariant else set())


@pytest.mark.parametrize("state", [AllocationState.CREATING, AllocationState.DELETING])
def test_a_slice_that_does_not_move_on_is_found_by_looking_twice(state):
    promised = changed(GI_ONE, state=state)
    waiting = [WAITING] if state is AllocationState.CREATING else []
    here = world(waiting, [instaslice(promised, slices=[])])
    doctor = Doctor(patience=60)
    assert doctor.examine(here) == []
    assert doctor.moving == 1
    assert doctor.examine(changed_time(here, 59)) == []
    (found,) = doctor.examine(changed_time(here, 61))
    assert found.invariant is Invariant.MOVES_ON


def test_nobody_waits_for_the_entry_of_a_slice_that_is_gone():
    promised = changed(GI_ONE, state=AllocationState.DELETING)
    doctor = Doctor(patience=60)
    assert doctor.examine(world([], [instaslice(promised, slices=[made(promised, SliceState.DELETED)])])) == []
    assert doctor.moving == 0


def test_a_slice_in_use_may_stay_as_long_as_it_says_so():
    promised = changed(GI_ONE, state=AllocationState.DELETING)
    held = made(promised, SliceState.DELETING, reason="in use by process 17")
    doctor = Doctor(patience=60)
    assert doctor.examine(world([], [instaslice(promised, slices=[held])])) == []
    assert doctor.examine(changed_time(world([], [instaslice(promised, slices=[held])]), 600)) == []


def changed_time(here, seconds):
    return world(here.pods, here.instaslices, here.nodes, NOW.fromtimestamp(NOW.timestamp() + seconds, NOW.tzinfo))


def with_health(thing, health):
    gpus = tuple(changed(gpu, health=health) for gpu in thing.status.gpus)
    return changed(thing, status=changed(thing.status, gpus=gpus))


NOTHING = {name: "0" for name in CAPACITY if name.startswith("gpu.das.com/")}

LEGAL = [
    pytest.param(world([pod("a", "1g.5gb", gates=[GATE], age=5)]), id="a young pod that nobody has looked at"),
    pytest.param(world([WAITING]), id="a pod that says why it waits"),
    pytest.param(world([pod("a", "1g.5gb", gates=[GATE, "kueue.x-k8s.io/admission"])]), id="a pod that Kueue holds"),
    pytest.param(world([pod("a", on="gpu-0")]), id="a pod without slices"),
    pytest.param(
        with_a(
            pod=WAITING,
            promised=changed(GI_ONE, state=AllocationState.CREATING),
            slices=[],
        ),
        id="a slice about to be made",
    ),
    pytest.param(
        world([], [instaslice(slices=[made(GI_ONE, SliceState.DELETED)])]), id="an entry that the agent drops next time"
    ),
    pytest.param(world([], [instaslice(slices=[FOREIGN])]), id="a foreign slice that is called so"),
    pytest.param(two(BESIDE), id="two pods side by side"),
    pytest.param(
        world([], [with_health(instaslice(), Health.UNHEALTHY)], [node(**NOTHING)]),
        id="a device plugin leaves sick GPUs out",
    ),
    pytest.param(
        world([], [with_health(instaslice(), Health.UNHEALTHY)]), id="an emulated node advertises sick GPUs too"
    ),
    pytest.param(
        world(
            [pod("a", "1g.5gb", "1g.5gb", on="gpu-0", given=[uuid(BESIDE), uuid(GI_ONE)])],
            [instaslice(GI_ONE, allocation("a", "1g.5gb", 1, number=1))],
        ),
        id="two slices, named in another order",
    ),
    pytest.param(
        world(
            [],
            [
                instaslice(
                    slices=[
                        changed(FOREIGN, mig_uuid="MIG-x"),
                        made(BESIDE, SliceState.DELETED, id="old", mig_uuid="MIG-x"),
                    ]
                )
            ],
        ),
        id="a UUID that comes again once its slice is gone",
    ),
    pytest.param(
        world([pod("a", "1g.5gb", gates=[GATE], deleted=True)]), id="a gated pod that was deleted says nothing more"
    ),
    pytest.param(
        world([pod("a", on="gpu-0", cpu="200", phase="Succeeded"), A], [instaslice(GI_ONE)]),
        id="a pod that has ended uses no CPU",
    ),
    pytest.param(
        world([pod("other", on="gpu-0", cpu="200")]), id="a node that others have overcommitted is not for us to judge"
    ),
    pytest.param(
        world(
            [A],
            [
                instaslice(
                    GI_ONE,
                    allocation("old", "1g.5gb", 0, state=AllocationState.DELETING),
                    slices=[made(GI_ONE), made(allocation("old", "1g.5gb", 0), SliceState.DELETED)],
                )
            ],
        ),
        id="a place that came free and was given on in one write",
    ),
]


@pytest.mark.parametrize("legal", LEGAL)
def test_what_is_right_is_not_found(legal):
    assert examine(legal) == []


@st.composite
def legal_worlds(draw):
    """Any layouts of two GPUs, every slice held by a pod in any state that a pod may be in."""
    states = States.of(A100)
    pods, promised, reports = [], [], []
    for gpu in ("GPU-0", "GPU-1"):
        layout = states.held(draw(st.integers(0, len(states) - 1)))
        for placement in layout:
            name = f"p{len(promised)}"
            stage = draw(st.sampled_from(["creating", "created", "lazy", "running", "deleting", "deleted"]))
            each = allocation(name, placement.profile, placement.start, gpu=gpu)
            waits = pod(name, placement.profile, gates=[GATE], condition="False")
            runs = pod(name, placement.profile, on="gpu-0", given=[uuid(each)])
            match stage:
                case "creating":
                    each, here, report = changed(each, state=AllocationState.CREATING), waits, None
                case "created":
                    each, here, report = changed(each, state=AllocationState.CREATING), waits, made(each)
                case "lazy":
                    each, here, report = changed(each, state=AllocationState.CREATED), runs, made(each)
                case "running":
                    here, report = runs, made(each)
                case "deleting":
                    each, here, report = changed(each, state=AllocationState.DELETING), None, made(each)
                case _:
                    each, here, report = (
                        changed(each, state=AllocationState.DELETING),
                        None,
                        made(each, SliceState.DELETED),
                    )
            promised.append(each)
            pods += [here] if here else []
            reports += [report] if report else []
    return world(pods, [instaslice(*promised, slices=reports)])


@settings(deadline=None)
@given(legal_worlds())
def test_a_legal_world_has_no_findings(legal):
    assert examine(legal) == []


def test_a_finding_says_what_where_and_what_to_do():
    (found,) = examine(world([A]))
    assert str(found) == (
        "pod-has-slices  pod team-a/a: is past its gate, asked for 1 × 1g.5gb and holds nothing; delete the pod"
    )


async def test_one_look_calls_nothing_stuck(monkeypatch):
    promised = allocation("w", "1g.5gb", 3, state=AllocationState.CREATING)
    here = world([pod("w", "1g.5gb", gates=[GATE], age=1)], [instaslice(promised, slices=[])])

    async def look(*_):
        return here

    monkeypatch.setattr(ObservedCluster, "read", look)
    assert await wait_until_settled(None, 0) == []


class Looks:
    """Worlds that are seen one after another; the last one stays. Waiting takes no time."""

    def __init__(self, *worlds):
        self.worlds = list(worlds)
        self.clock = FakeClock()
        self.clock.sleep = self.sleep

    async def sleep(self, seconds):
        self.clock.advance(seconds)

    async def look(self, *_):
        return self.worlds.pop(0) if len(self.worlds) > 1 else self.worlds[0]


ORDER = world([A], [instaslice(GI_ONE)])
LEAVING = world([], [instaslice(changed(GI_ONE, state=AllocationState.DELETING))])
DRIFTING = world([], [instaslice(GI_ONE)])
OTHER_DRIFT = world([], [instaslice(BESIDE)])
WRONG = world([A])


@pytest.mark.parametrize(
    "seen, found",
    [
        pytest.param([ORDER], [], id="all is well"),
        pytest.param([WRONG, ORDER], [], id="well at the second look"),
        pytest.param([LEAVING, WRONG], [Invariant.POD_HAS_SLICES], id="nothing is wrong yet, and something moves"),
        pytest.param([WRONG], [Invariant.POD_HAS_SLICES], id="wrong to the end"),
        pytest.param([DRIFTING], [Invariant.POD_EXISTS], id="what may pass, and does not"),
        pytest.param([DRIFTING, OTHER_DRIFT] * 6, [], id="always something else that passes"),
    ],
)
async def test_what_counts_when_the_time_is_over(monkeypatch, seen, found):
    looks = Looks(*seen)
    monkeypatch.setattr(ObservedCluster, "read", looks.look)
    told = await wait_until_settled(None, 5.25, clock=looks.clock, interval=0.5)
    assert [each.invariant for each in told] == found


def test_a_pod_that_ended_may_have_run_anywhere():
    ended = changed(pod("a", "1g.5gb", on="gpu-0", phase="Succeeded"), spec=changed(A.spec, node_name="gpu-1"))
    assert {each.invariant for each in examine(world([ended], [instaslice(GI_ONE)]))} == {Invariant.POD_EXISTS}


def test_a_pin_of_which_one_term_names_no_node_holds_nobody():
    pending = pod("a", "1g.5gb", pinned="gpu-0", phase="Pending", given=[uuid(GI_ONE)])
    required = pending.spec.affinity.node_affinity.required
    loose = changed(required, node_selector_terms=[*required.node_selector_terms, NodeSelectorTerm()])
    affinity = changed(
        pending.spec.affinity, node_affinity=changed(pending.spec.affinity.node_affinity, required=loose)
    )
    here = world([changed(pending, spec=changed(pending.spec, affinity=affinity))], [instaslice(GI_ONE)])
    assert [each.invariant for each in examine(here)] == [Invariant.RIGHT_NODE]
