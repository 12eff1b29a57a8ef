"""Which device id is whose, in whatever order pods come and go."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from instaslice.agent.kubelet.device_ids import (
    DeviceAssignments,
    DeviceHolder,
    DeviceId,
    PodSlice,
    device_id,
    kind_of,
    unhealthy_ids,
)
from instaslice.api.instaslice import Allocation, AllocationState, PodRef
from instaslice.drivers import Slice
from instaslice.geometry import Placement


def promise(pod, start=0, profile="1g.5gb", container="main", gpu="GPU-0"):
    ref = PodRef(namespace="team", name=pod, uid=f"uid-{pod}")
    return Allocation(
        id=f"{pod}-{container}-{start}",
        pod=ref,
        container=container,
        profile=profile,
        gpu=gpu,
        start=start,
        size=1,
        state=AllocationState.UNGATED,
    )


def by_memory(pod, start=0, profile="1g.5gb", container="main", gb=5):
    return msgspec.structs.replace(promise(pod, start, profile, container), asked_gb=gb)


def by(pod, container="main"):
    return [DeviceHolder(container, namespace="team", pod=pod)]


A, B = promise("a", 0), promise("b", 1)


@pytest.mark.parametrize("profile, name", [("1g.5gb", "1g.5gb-3"), ("1g.5gb+me", "1g.5gb.me-3"), ("2g.24gb-me", None)])
def test_a_device_id_has_a_name_that_the_runtime_allows(profile, name):
    told = device_id(profile, 3)
    assert kind_of(told) == profile
    assert told == (name or told)
    assert "+" not in told


@pytest.mark.parametrize(
    "holders, wanted, bound",
    [
        pytest.param({"1g.5gb-0": by("b"), "1g.5gb-1": by("a")}, [A, B], {"1g.5gb-0": B, "1g.5gb-1": A}, id="crossed"),
        pytest.param({"1g.5gb-0": by("a")}, [A, B], {"1g.5gb-0": A, "1g.5gb-1": None}, id="one not known yet"),
        pytest.param({"1g.5gb-0": by("c")}, [A, B], {"1g.5gb-0": None, "1g.5gb-1": None}, id="promised nothing"),
        pytest.param(
            {"1g.5gb-1": by("a"), "1g.5gb-0": by("a")},
            [A, promise("a", 4)],
            {"1g.5gb-0": A, "1g.5gb-1": promise("a", 4)},
            id="two of one container, in the order of the promise",
        ),
        pytest.param(
            {"1g.5gb-0": [DeviceHolder("first", uid="uid-a")], "1g.5gb-1": by("a")},
            [A, promise("a", 4, container="first")],
            {"1g.5gb-0": promise("a", 4, container="first"), "1g.5gb-1": A},
            id="an init container, known by uid",
        ),
    ],
)
def test_open_device_ids_are_bound_to_what_their_holders_were_promised(holders, wanted, bound):
    book = DeviceAssignments({DeviceId("1g.5gb-0"): None, DeviceId("1g.5gb-1"): None})
    book.bind({DeviceId(name): who for name, who in holders.items()}, wanted)
    assert book.by_id == {name: told and PodSlice.of(told) for name, told in bound.items()}


LARGE, SMALL = by_memory("a", 4, "3g.20gb"), by_memory("a", 0, container="side")


@pytest.mark.parametrize(
    "holders, wanted, bound",
    [
        pytest.param(
            {"any-0": by("a"), "any-1": by("a", "side")},
            [SMALL, LARGE],
            {"any-0": LARGE, "any-1": SMALL},
            id="each container its own, whatever their order",
        ),
        pytest.param(
            {"any-0": by("a"), "1g.5gb-0": by("a")},
            [A, by_memory("a", 1)],
            {"any-0": by_memory("a", 1), "1g.5gb-0": A},
            id="not the one of the same kind that is asked for by its profile",
        ),
        pytest.param({"any-0": by("a")}, [A], {"any-0": None}, id="nor where that is the only one"),
        pytest.param({"1g.5gb-0": by("a")}, [by_memory("a")], {"1g.5gb-0": None}, id="nor the other way around"),
        pytest.param({"any-0": by("a", "x")}, [LARGE], {"any-0": None}, id="nor that of another container"),
        pytest.param(
            {"any-0": by("b"), "any-1": by("a")},
            [LARGE, by_memory("b", 1)],
            {"any-0": by_memory("b", 1), "any-1": LARGE},
            id="two pods, crossed",
        ),
        pytest.param(
            {"any-0": [DeviceHolder("first", uid="uid-a"), *by("a")]},
            [LARGE],
            {"any-0": LARGE},
            id="an init container has had it before",
        ),
    ],
)
def test_a_slice_that_is_asked_for_by_memory_is_bound_to_its_container_alone(holders, wanted, bound):
    book = DeviceAssignments(dict.fromkeys(map(DeviceId, holders)))
    book.bind({DeviceId(name): who for name, who in holders.items()}, wanted)
    assert book.by_id == {name: told and PodSlice.of(told) for name, told in bound.items()}


def test_slices_by_memory_and_by_profile_are_counted_apart():
    book = DeviceAssignments()
    wanted = [A, LARGE, SMALL]
    assert [book.free(kind, wanted, []) for kind in ("any", "1g.5gb", "3g.20gb")] == [2, 1, 0]
    book.open([DeviceId("any-0")])
    book.bind({DeviceId("any-0"): by("a")}, wanted)
    assert book.free("any", wanted, [DeviceId("any-0")]) == 1


def test_an_id_for_any_slice_is_one_for_a_slice_of_every_profile():
    """While its holder is not known: none of them may be destroyed."""
    whole = Slice("GPU-0", Placement("7g.40gb", 0, 8), 0, 0, "MIG-1")
    held = {DeviceId("any-0"): by("a")}
    assert DeviceAssignments().in_use([whole], held) == {whole: "container main of pod team/a"}
    elsewhere = DeviceAssignments({DeviceId("any-0"): PodSlice.of(SMALL)})
    assert elsewhere.in_use([whole], held) == {}


def test_a_pod_made_again_under_the_same_name_does_not_get_the_device_id_of_the_first():
    book = DeviceAssignments()
    book.open([DeviceId("1g.5gb-0")])
    book.bind({DeviceId("1g.5gb-0"): by("a")}, [A])
    again = msgspec.structs.replace(A, pod=PodRef(namespace="team", name="a", uid="another"), start=5)
    book.open([DeviceId("1g.5gb-1")])
    # The kubelet still ends the first one, and names both alike.
    book.bind({DeviceId("1g.5gb-0"): by("a"), DeviceId("1g.5gb-1"): by("a")}, [again])
    assert book.by_id == {"1g.5gb-0": PodSlice.of(A), "1g.5gb-1": PodSlice.of(again)}


def test_a_pod_made_again_gets_its_own_though_the_promise_to_the_first_still_stands():
    again = msgspec.structs.replace(A, pod=PodRef(namespace="team", name="a", uid="another"), start=5)
    book = DeviceAssignments({DeviceId("1g.5gb-0"): PodSlice.of(A), DeviceId("1g.5gb-1"): None})
    book.bind({DeviceId("1g.5gb-1"): by("a")}, [A, again])
    assert book.by_id == {"1g.5gb-0": PodSlice.of(A), "1g.5gb-1": PodSlice.of(again)}


def test_a_kubelet_that_lost_its_own_book_may_give_a_container_another_device_id():
    book = DeviceAssignments({DeviceId("1g.5gb-0"): PodSlice.of(A)})
    book.open([DeviceId("1g.5gb-4")])
    book.bind({DeviceId("1g.5gb-4"): by("a")}, [A, B])
    assert book.by_id == {"1g.5gb-4": PodSlice.of(A)}


def test_a_promise_that_was_written_again_for_a_running_pod_is_the_same_hold():
    book = DeviceAssignments({DeviceId("1g.5gb-0"): PodSlice.of(A)})
    assert not book.bind({DeviceId("1g.5gb-0"): by("a")}, [msgspec.structs.replace(A, id="restored")])


def test_a_slice_behind_a_device_id_that_nobody_holds_is_free():
    book = DeviceAssignments({DeviceId("1g.5gb-0"): PodSlice.of(A)})
    assert book.free("1g.5gb", [A, B], [DeviceId("1g.5gb-0")]) == 1
    assert book.free("1g.5gb", [A, B], []) == 2
    assert book.free("2g.10gb", [A, B], []) == 0


def test_device_ids_on_an_unhealthy_gpu_are_unhealthy_and_then_free_ones():
    ids = [device_id("1g.5gb", n) for n in range(4)]
    book = {ids[0]: PodSlice.of(promise("a", gpu="GPU-1")), ids[3]: PodSlice.of(promise("b"))}
    assert unhealthy_ids(ids, 2, book, {"GPU-1"}) == {ids[0], ids[2]}
    assert unhealthy_ids(ids, 0, book, set()) == set()


class Kubelet(RuleBasedStateMachine):
    """Pods are promised slices, admitted to any free device ids in any order, listed at any time, deleted; the agent is
    killed and reads its book again."""

    SLOTS = 4

    def __init__(self):
        super().__init__()
        self.book = DeviceAssignments()
        self.count = 0
        self.wanted = {}  # pod → allocations
        self.admitted_ids = {}  # pod → device ids
        self.seen = {}  # device id → hold, while it is held

    @precondition(lambda self: len(self.wanted) < self.SLOTS)
    @rule(data=st.data())
    def promised(self, data):
        taken = {told.start for each in self.wanted.values() for told in each}
        free = [n for n in range(self.SLOTS) if n not in taken]
        starts = data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique=True)) if free else []
        if starts:
            self.count += 1
            self.wanted[f"p{self.count}"] = [promise(f"p{self.count}", start) for start in starts]

    @rule(data=st.data())
    def admitted(self, data):
        waiting = [pod for pod in self.wanted if pod not in self.admitted_ids]
        held = {each for ids in self.admitted_ids.values() for each in ids}
        free = [device_id("1g.5gb", n) for n in range(7) if device_id("1g.5gb", n) not in held]
        if waiting:
            pod = data.draw(st.sampled_from(waiting))
            needs = len(self.wanted[pod])
            ids = data.draw(st.permutations(free))[:needs]
            assert self.book.free("1g.5gb", self.every, set(self.holders) - set(ids)) >= needs
            self.book.open(ids)
            self.admitted_ids[pod] = ids

    @rule()
    def listed(self):
        self.book.bind(self.holders, self.every)
        for pod, ids in self.admitted_ids.items():
            bound = {self.book.by_id[each] for each in ids}
            assert bound == {PodSlice.of(told) for told in self.wanted[pod]}, (
                "a pod has all of its own and nothing else"
            )
            for each in ids:
                assert self.seen.setdefault(each, self.book.by_id[each]) == self.book.by_id[each], "it keeps them"

    @rule(data=st.data())
    def ended(self, data):
        if self.wanted:
            pod = data.draw(st.sampled_from(sorted(self.wanted)))
            del self.wanted[pod]
            for each in self.admitted_ids.pop(pod, ()):
                self.seen.pop(each, None)

    @rule()
    def killed(self):
        kept = msgspec.json.decode(msgspec.json.encode(self.book.by_id), type=dict[str, PodSlice | None])
        self.book = DeviceAssignments(kept)

    @rule()
    def lost_its_book(self):
        self.book = DeviceAssignments()
        self.seen.clear()

    @property
    def every(self):
        return [told for each in self.wanted.values() for told in each]

    @property
    def holders(self):
        return {each: by(pod) for pod, ids in self.admitted_ids.items() for each in ids}

    @invariant()
    def no_slice_is_behind_two_device_ids_that_are_held(self):
        held = [hold for each, hold in self.book.by_id.items() if hold and each in self.holders]
        assert len(held) == len(set(held))


TestKubelet = Kubelet.TestCase
TestKubelet.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
