"""Histories, write by write: what is broken for a moment only is found."""

import msgspec
import pytest
from cluster_history import HistoryCheck, ObjectWrite
from small_worlds import allocation, instaslice, made, pod, uuid, world

from instaslice.api.instaslice import AllocationState, SliceState
from instaslice.api.names import GATE
from instaslice.doctor import Invariant

A, B = allocation("a", "2g.10gb", 0), allocation("b", "1g.5gb", 1)


def waits(promised):
    return pod(promised.pod.name, promised.profile, gates=[GATE], condition="False")


def passes(promised, **more):
    """Its gate is gone, with the slice that was promised."""
    more.setdefault("given", [uuid(promised)])
    return pod(promised.pod.name, promised.profile, pinned="gpu-0", phase="Pending", **more)


def ends(promised):
    return pod(promised.pod.name, promised.profile, on="gpu-0", phase="Succeeded", given=[uuid(promised)])


def leaving(promised):
    return msgspec.structs.replace(promised, state=AllocationState.DELETING)


GONE = object()


def told(*things):
    """What is found in these writes; `(thing, GONE)` is a deletion."""
    check = HistoryCheck(world([], [instaslice()]))
    for version, thing in enumerate(things, start=1):
        gone = isinstance(thing, tuple)
        check.apply(ObjectWrite(version, thing[0] if gone else thing, gone))
    return [each.invariant for each in check.findings]


LIFE = [waits(A), instaslice(A, slices=[]), instaslice(A), passes(A)]

HISTORIES = [
    pytest.param(
        [*LIFE, ends(A), instaslice(leaving(A)), instaslice(leaving(A), slices=[made(A, SliceState.DELETED)])],
        [],
        id="a life",
    ),
    pytest.param(
        [*LIFE, ends(A), instaslice(leaving(A)), instaslice(B, slices=[]), instaslice(B), passes(B)],
        [],
        id="a place is given on after its pod ended",
    ),
    pytest.param(
        [*LIFE, (passes(A), GONE), instaslice(B, slices=[]), instaslice(B), passes(B)],
        [],
        id="a place is given on after its pod is gone",
    ),
    pytest.param(
        [*LIFE, instaslice(A, B), instaslice(A)],
        [Invariant.NO_OVERLAP],
        id="for one write, one place is promised twice",
    ),
    pytest.param(
        [*LIFE, instaslice(B), passes(B), (passes(A), GONE)],
        [Invariant.SLICE_EXISTS, Invariant.NO_OVERLAP],
        id="a place is given on while its pod runs",
    ),
    pytest.param(
        [
            *LIFE,
            passes(A, deleted=True),
            instaslice(leaving(A)),
            instaslice(B),
            passes(B),
        ],
        [Invariant.NO_OVERLAP],
        id="a place is given on while its pod is being deleted",
    ),
    pytest.param(
        [*LIFE, instaslice(leaving(A)), instaslice(A)],
        [Invariant.SLICE_EXISTS],
        id="an allocation is taken back for one write while its pod runs",
    ),
    pytest.param(
        [*LIFE, instaslice(A, slices=[made(A, SliceState.FAILED)]), ends(A)],
        [Invariant.SLICE_EXISTS],
        id="a slice is lost while its pod runs",
    ),
    pytest.param(
        [*LIFE, instaslice(A, slices=[made(A, mig_uuid="MIG-new")]), ends(A)],
        [Invariant.SLICE_EXISTS],
        id="a slice is replaced by another while its pod runs",
    ),
    pytest.param(
        [waits(A), instaslice(A, slices=[]), passes(A), instaslice(A)],
        [Invariant.SLICE_EXISTS],
        id="the gate goes before the slice is there",
    ),
    pytest.param([waits(A), passes(A)], [Invariant.POD_HAS_SLICES], id="the gate goes without an allocation"),
    pytest.param(
        [*LIFE, instaslice(A, made_b := allocation("b", "1g.5gb", 4)), passes(made_b, given=[uuid(A)])],
        [Invariant.UUID_ONCE],
        id="one slice is given to two pods by their annotations",
    ),
]


@pytest.mark.parametrize("history, found", HISTORIES)
def test_what_happened_on_the_way(history, found):
    assert told(*history) == found


def checked(*things, base=None, before=None):
    check = HistoryCheck(base or world([], [instaslice()]), before)
    for version, thing in enumerate(things, start=1):
        check.apply(ObjectWrite(version, thing))
    return check


def test_what_a_pod_held_before_a_gap_it_must_still_hold():
    holds = checked(*LIFE).confirmed_in_use()
    lost = world([passes(A)], [instaslice()])
    assert [each.invariant for each in checked(base=lost, before=holds).findings] == [Invariant.SLICE_EXISTS]
    assert checked(base=lost).findings == []


def test_who_has_ended_meanwhile_holds_nothing_any_more():
    holds = checked(*LIFE).confirmed_in_use()
    assert checked(base=world([ends(A)], [instaslice()]), before=holds).findings == []


def test_only_what_a_pod_was_given_by_its_annotation_is_certain():
    assert checked(*LIFE).confirmed_in_use().keys() == {"uid-a"}
    unsure = checked(waits(A), instaslice(A, slices=[]), instaslice(A), passes(A, given=["MIG-other"]))
    assert unsure.confirmed_in_use() == {}


def test_a_loss_is_said_once():
    assert told(*LIFE, instaslice(leaving(A)), instaslice(leaving(A)), instaslice()) == [Invariant.SLICE_EXISTS]
