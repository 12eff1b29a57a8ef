"""The ledger when objects say what cannot be, or two say the same: nobody's slot is lost and none is given twice."""

from collections import Counter

import msgspec
import pytest
from small_worlds import allocation, instaslice, made, uuid

from instaslice.api.instaslice import AllocationState, Health, PodRef, SliceState
from instaslice.api.pods import NeededSlice
from instaslice.controller.ledger import MOST_MODELS, Ledger
from instaslice.geometry import MemoryAsk
from instaslice.placement import Demand, Plan, policies

ONE = allocation("one", "1g.5gb", 0)
BIG = allocation("big", "3g.20gb", 4)


def ledger(*things, alive=lambda _: True):
    found = Ledger(policies.named("adaptive"), alive)
    for thing in things:
        found.update(thing, 0.0)
    return found


def taken(found):
    """What the fleet holds on each GPU."""
    return {gpu: sorted((p.profile, p.start) for p in found.fleet.held(gpu)) for gpu in found.fleet._number}


def booked(found):
    """The same by the records."""
    held = {gpu: [] for record in found.nodes.values() for gpu in record.gpus}
    for record in found.nodes.values():
        slots = [tracked.grant for tracked in record.allocations.values()]
        for grant in [*slots, *record.foreign_slices.values(), *record.quarantined]:
            if grant.gpu in record.gpus:
                held[grant.gpu].append((grant.want, grant.start))
    return {gpu: sorted(places) for gpu, places in held.items()}


# A slice without a known reservation -------------------------------------------------------------------------------

FOREIGN = made(ONE, SliceState.FOREIGN, id="MIG-1", mig_uuid="MIG-1")
OTHER = made(allocation("other", "1g.5gb", 1), SliceState.FOREIGN, id="MIG-2", mig_uuid="MIG-2")


def restored(wants, uuids, *slices, uid="uid-one"):
    found = ledger(instaslice(slices=slices))
    before = taken(found)
    pod = PodRef(namespace="team-a", name="one", uid=uid)
    done = found.restore(pod, [NeededSlice("main", each) for each in wants], "gpu-0", uuids, "again", 1.0)
    assert done or taken(found) == before, "refused, and changed all the same"
    assert taken(found) == booked(found)
    return done


def held_by(slice_, holder):
    return msgspec.structs.replace(slice_, holder=holder)


@pytest.mark.parametrize(
    "wants, uuids, slices, believed",
    [
        pytest.param(["1g.5gb"], ["MIG-1"], [held_by(FOREIGN, "uid-one")], True, id="the kubelet names the pod"),
        pytest.param(["1g.5gb"], ["MIG-1"], [FOREIGN], True, id="there is no kubelet to request"),
        pytest.param(["1g.5gb"], ["MIG-1"], [held_by(FOREIGN, "uid-two")], False, id="the kubelet names another"),
        pytest.param(["1g.5gb"], ["MIG-1"], [held_by(FOREIGN, "")], False, id="the kubelet names nobody"),
        pytest.param(
            ["1g.5gb"] * 2,
            ["MIG-1", "MIG-2"],
            [held_by(FOREIGN, "uid-one"), held_by(OTHER, "")],
            False,
            id="one of two is not confirmed",
        ),
        pytest.param([], [], [FOREIGN], False, id="a pod that wants nothing and names nothing"),
        pytest.param(["1g.5gb"], [], [FOREIGN], False, id="no name"),
        pytest.param([], ["MIG-1"], [FOREIGN], False, id="a name and no want"),
        pytest.param(["1g.5gb"] * 2, ["MIG-1", "MIG-1"], [FOREIGN, OTHER], False, id="one slice named twice"),
        pytest.param(["1g.5gb"], ["MIG-3"], [FOREIGN], False, id="a slice that is not there"),
        pytest.param(["2g.10gb"], ["MIG-1"], [FOREIGN], False, id="a slice of another profile"),
    ],
)
def test_which_slices_a_pod_is_believed_to_hold(wants, uuids, slices, believed):
    assert restored(wants, uuids, *slices) is believed


@pytest.mark.parametrize("gb, believed", [(5, True), (3, True), (6, False)])
def test_a_slice_by_memory_is_believed_where_it_is_enough(gb, believed):
    found = ledger(instaslice(slices=[FOREIGN]))
    wants = [NeededSlice("main", f"{gb}gb or more", MemoryAsk(gb))]
    pod = PodRef(namespace="team-a", name="one", uid="uid-one")
    assert found.restore(pod, wants, "gpu-0", ["MIG-1"], "again", 1.0) is believed
    assert [each.asked_gb for each in found.nodes["gpu-0"].spec().allocations] == ([gb] if believed else [])


def test_each_container_gets_the_slice_of_its_profile_whatever_the_order_of_the_names():
    big = made(BIG, SliceState.FOREIGN, id="MIG-9", mig_uuid="MIG-9")
    found = ledger(instaslice(slices=[FOREIGN, big]))
    wants = [NeededSlice("small", "1g.5gb"), NeededSlice("large", "3g.20gb")]
    pod = PodRef(namespace="team-a", name="one", uid="uid-one")
    assert found.restore(pod, wants, "gpu-0", ["MIG-9", "MIG-1"], "again", 1.0)
    allocations = found.nodes["gpu-0"].spec().allocations
    assert [(each.container, each.profile, each.start) for each in allocations] == [
        ("small", "1g.5gb", 0),
        ("large", "3g.20gb", 4),
    ]


# Two nodes that report one GPU ---------------------------------------------------------------------------------------


def test_the_gpus_of_a_node_that_was_registered_anew_join_when_the_old_object_goes():
    found = ledger(instaslice(name="old"), instaslice(name="new"))
    assert (list(found.nodes["old"].gpus), list(found.nodes["new"].gpus)) == (["GPU-0", "GPU-1"], [])
    news = found.remove("old")
    assert list(found.nodes["new"].gpus) == ["GPU-0", "GPU-1"]
    assert news.freed
    assert isinstance(found.placer.place(Demand(("7g.40gb",))), Plan)


def test_a_gpu_that_leaves_one_node_joins_the_other_that_reports_it():
    found = ledger(instaslice(name="old"), instaslice(name="new"))
    assert found.update(instaslice(name="old", gpus=["GPU-1"]), 1.0).freed
    assert (list(found.nodes["old"].gpus), list(found.nodes["new"].gpus)) == (["GPU-1"], ["GPU-0"])


@pytest.mark.parametrize("first, second", [("dead", "alive"), ("alive", "dead")])
def test_of_two_nodes_that_report_one_gpu_the_one_that_exists_has_it(first, second):
    mine = allocation("mine", "3g.20gb", 4)
    late = allocation("late", "1g.5gb", 4)
    things = {"alive": instaslice(mine, name="alive"), "dead": instaslice(late, name="dead")}
    found = ledger(things[first], things[second], alive=lambda name: name == "alive")
    assert (set(found.nodes["alive"].gpus), set(found.nodes["dead"].gpus)) == ({"GPU-0", "GPU-1"}, set())
    assert taken(found)["GPU-0"] == [("3g.20gb", 4)]


def test_of_two_that_exist_the_first_keeps_it_whoever_else_reports_it():
    found = ledger(instaslice(ONE, name="first"), instaslice(name="thief"))
    found.update(instaslice(name="thief"), 1.0)
    assert (list(found.nodes["first"].gpus), list(found.nodes["thief"].gpus)) == (["GPU-0", "GPU-1"], [])


def test_a_node_takes_over_the_gpus_of_one_that_is_gone():
    there = {"old"}
    found = ledger(instaslice(ONE, name="old"), instaslice(name="new"), alive=there.__contains__)
    there.clear()
    found.reassign_gpus()
    assert list(found.nodes["old"].gpus) == ["GPU-0", "GPU-1"], "nobody else exists"
    there.add("new")
    news = found.reassign_gpus()
    assert list(found.nodes["new"].gpus) == ["GPU-0", "GPU-1"]
    assert news.freed
    assert {"new"} <= news.nodes


def test_what_was_promised_on_a_gpu_that_another_node_has_now_stays_promised_until_it_is_given_back():
    """Else its agent would destroy what pods hold there, because of what somebody else says."""
    there = {"mine"}
    found = ledger(instaslice(ONE, BIG, name="mine"), instaslice(name="thief"), alive=there.__contains__)
    there.symmetric_difference_update({"mine", "thief"})
    found.reassign_gpus()
    assert [each.state for each in found.nodes["mine"].spec().allocations] == [AllocationState.UNGATED] * 2
    assert taken(found) == booked(found) == {"GPU-0": [], "GPU-1": []}
    assert set(found.reservations) == {"uid-one", "uid-big"}
    found.release("uid-one", "its pod has ended")
    ended = msgspec.structs.replace(ONE, state=AllocationState.DELETING)
    found.update(instaslice(ONE, BIG, name="mine", slices=[made(ended, SliceState.DELETED), made(BIG)]), 1.0)
    assert [each.id for each in found.nodes["mine"].spec().allocations] == [BIG.id]
    found.remove("thief")
    assert taken(found) == booked(found) == {"GPU-0": [("3g.20gb", 4)], "GPU-1": []}


def test_promises_that_were_read_while_another_node_had_the_gpu_hold_when_it_comes_back():
    found = ledger(instaslice(name="first"), instaslice(ONE, name="second"))
    assert [each.id for each in found.nodes["second"].spec().allocations] == [ONE.id]
    found.remove("first")
    assert taken(found) == {"GPU-0": [("1g.5gb", 0)], "GPU-1": []}


# What cannot be ------------------------------------------------------------------------------------------------------


def with_model(thing, **profile):
    """Its first profile is changed."""
    (geometry,) = thing.status.models
    first = msgspec.structs.replace(geometry.profiles[0], **profile)
    geometry = msgspec.structs.replace(geometry, profiles=(first, *geometry.profiles[1:]))
    return msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, models=(geometry,)))


IMPOSSIBLE = [
    pytest.param(lambda thing: with_model(thing, size=9), id="a placement that leaves the GPU"),
    pytest.param(lambda thing: with_model(thing, starts=tuple(range(128))), id="more starts than memory"),
    pytest.param(
        lambda thing: msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, models=())),
        id="no model",
    ),
]


@pytest.mark.parametrize("broken", IMPOSSIBLE)
def test_on_a_gpu_that_cannot_be_nothing_more_is_placed_and_nothing_is_lost(broken):
    thing = instaslice(ONE)
    found = ledger(thing)
    found.update(broken(thing), 1.0)
    assert not isinstance(found.placer.place(Demand(("1g.5gb",))), Plan)
    assert taken(found)["GPU-0"] == [("1g.5gb", 0)]
    assert found.update(thing, 2.0).freed
    assert isinstance(found.placer.place(Demand(("1g.5gb",))), Plan)


@pytest.mark.parametrize("broken", IMPOSSIBLE)
def test_what_was_promised_on_it_before_a_restart_stays_promised(broken):
    thing = instaslice(ONE)
    found = ledger(broken(thing))
    assert [each.id for each in found.nodes["gpu-0"].spec().allocations] == [ONE.id]
    found.update(thing, 1.0)
    assert taken(found)["GPU-0"] == [("1g.5gb", 0)]
    assert set(found.reservations) == {"uid-one"}


def test_a_geometry_that_could_be_cut_in_too_many_ways_is_refused_in_time():
    small = {"size": 1, "starts": tuple(range(100)), "limit": 100, "compute": 0}
    thing = with_model(instaslice(), **small)
    (geometry,) = thing.status.models
    geometry = msgspec.structs.replace(geometry, memory_slices=100)
    thing = msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, models=(geometry,)))
    found = ledger(thing)
    assert "more than can be looked through" in found.nodes["gpu-0"].unusable["GPU-0"]


def test_a_gpu_without_profiles_is_full():
    thing = instaslice()
    (geometry,) = thing.status.models
    geometry = msgspec.structs.replace(geometry, profiles=())
    found = ledger(msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, models=(geometry,))))
    assert found.fleet.full("gpu-0")


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(msgspec.structs.replace(BIG, id=ONE.id), id="of the same id"),
        pytest.param(msgspec.structs.replace(BIG, start=3), id="where it may not start"),
        pytest.param(msgspec.structs.replace(BIG, start=0), id="over the other"),
        pytest.param(msgspec.structs.replace(BIG, profile="9g.99gb"), id="of a profile that is not there"),
        pytest.param(msgspec.structs.replace(BIG, gpu="GPU-9"), id="on a GPU that is not there"),
        pytest.param(msgspec.structs.replace(BIG, gpu="GPU-7"), id="on a GPU of another node"),
    ],
)
def test_an_allocation_that_cannot_be_is_dropped_alone(odd):
    found = ledger(instaslice(name="gpu-1", gpus=["GPU-7"]), instaslice(ONE, odd))
    assert taken(found) == booked(found)
    assert Counter(place for places in taken(found).values() for place in places) == {("1g.5gb", 0): 1}


def test_a_half_made_slice_whose_number_another_has_now_holds_the_place_of_that_one():
    first = made(ONE, SliceState.FOREIGN, id="GPU-0/7")
    found = ledger(instaslice(slices=[first]))
    found.update(instaslice(slices=[msgspec.structs.replace(first, start=2)]), 1.0)
    assert taken(found) == booked(found) == {"GPU-0": [("1g.5gb", 2)], "GPU-1": []}


# An object that nobody can make sense of -----------------------------------------------------------------------------


def test_an_object_that_is_set_aside_keeps_what_it_holds_and_gets_nothing_more():
    found = ledger(instaslice(ONE))
    found.quarantine("gpu-0", "it cannot be read")
    assert taken(found)["GPU-0"] == [("1g.5gb", 0)]
    assert not isinstance(found.placer.place(Demand(("1g.5gb",))), Plan)
    found.quarantine("nobody", "it cannot be read")
    assert found.update(instaslice(ONE), 1.0).freed
    assert isinstance(found.placer.place(Demand(("1g.5gb",))), Plan)


def test_one_that_failed_at_first_is_read_from_the_beginning_the_next_time(monkeypatch):
    thing = instaslice(ONE, BIG)
    found = Ledger(policies.named("adaptive"))
    monkeypatch.setattr(Ledger, "_update_slices", _defect)
    with pytest.raises(RuntimeError):
        found.update(thing, 0.0)
    assert (found.nodes, found.reservations, len(found.fleet)) == ({}, {}, 0)
    monkeypatch.undo()
    found.update(thing, 1.0)
    assert [each.id for each in found.nodes["gpu-0"].spec().allocations] == [ONE.id, BIG.id]


def _defect(*_):
    raise RuntimeError("a defect")


def test_an_object_that_was_never_there_is_forgotten_without_a_word():
    assert ledger().remove("nowhere").pods == set()


def test_a_rival_whose_object_went_is_not_kept():
    """Two leaders promised, and the object of one is gone before the pod is looked at."""
    there = allocation("one", "1g.5gb", 0, gpu="GPU-0")
    found = ledger(instaslice(there), instaslice(msgspec.structs.replace(there, gpu="GPU-8"), name="b", gpus=["GPU-8"]))
    found.remove("b")
    found.resolve_duplicates("uid-one", [uuid(there)])
    assert all(reservation.node in found.nodes for reservation in found.reservations.values())


def test_a_sick_gpu_stays_closed_when_its_object_can_be_read_again():
    thing = instaslice()
    sick = tuple(msgspec.structs.replace(gpu, health=Health.UNHEALTHY) for gpu in thing.status.gpus)
    thing = msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, gpus=sick))
    found = ledger(thing)
    found.quarantine("gpu-0", "it cannot be read")
    found.update(thing, 1.0)
    assert not isinstance(found.placer.place(Demand(("1g.5gb",))), Plan)


def test_geometries_that_no_node_reports_any_more_are_forgotten():
    """Each report may list another."""
    found = ledger()
    thing = instaslice()
    (geometry,) = thing.status.models
    for number in range(3 * MOST_MODELS):
        named = msgspec.structs.replace(geometry, memory_gb=40 + number)
        status = msgspec.structs.replace(thing.status, models=(named,))
        found.update(msgspec.structs.replace(thing, status=status), float(number))
    assert len(found._models) <= MOST_MODELS
