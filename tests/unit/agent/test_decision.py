"""What one GPU needs next: tables of what is promised, what is there and what was said before."""

import pytest

from instaslice.agent.decision import Create, GpuState, decide, slot_of, unreadable
from instaslice.api.instaslice import Allocation, AllocationState, PodRef, PreparedSlice, SliceState
from instaslice.drivers import Slice
from instaslice.geometry import models

A100 = models.named("A100-40GB")


def promise(name, profile, start, state):
    pod = PodRef(namespace="a", name="b", uid="c")
    size = A100.profile(profile).size
    return Allocation(
        id=name,
        pod=pod,
        container="m",
        profile=profile,
        gpu="GPU-0",
        start=start,
        size=size,
        state=AllocationState(state),
    )


def there(profile, start, half=False):
    placement = A100.placement(profile, start)
    return Slice("GPU-0", placement, start) if half else Slice("GPU-0", placement, start, 0, f"MIG-{profile}-{start}")


def said(name, profile, start, state, reason=""):
    size = A100.profile(profile).size
    return PreparedSlice(
        id=name, gpu="GPU-0", profile=profile, start=start, size=size, state=SliceState(state), reason=reason
    )


def in_words(step):
    if isinstance(step, Create):
        return f"create {step.wanted.id}"
    return f"destroy {step.doomed.placement}"


@pytest.mark.parametrize(
    "promised, found, past, steps, states",
    [
        pytest.param([("a", "1g.5gb", 0, "creating")], [], [], ["create a"], {"a": "creating"}, id="new"),
        pytest.param(
            [("a", "1g.5gb", 0, "creating")], [("1g.5gb", 0)], [], [], {"a": "created"},
            id="made by an agent that was killed before it could say so",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "creating")], [("1g.5gb", 0, True)], [], ["destroy 1g.5gb at 0"], {"a": "creating"},
            id="half made by an agent that was killed",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "creating")], [], [("a", "1g.5gb", 0, "created")], [], {"a": "failed"},
            id="gone since we reported it: its pod may run by now, whatever the state says",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "ungated")], [], [("a", "1g.5gb", 0, "created")], [], {"a": "failed"},
            id="gone under its pod: lost",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "ungated")], [("1g.5gb", 0, True)], [("a", "1g.5gb", 0, "created")],
            ["destroy 1g.5gb at 0"], {"a": "failed", "GPU-0/0": "foreign"}, id="half gone under its pod: lost as well",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "ungated")], [], [("MIG-1", "1g.5gb", 0, "foreign")], [], {"a": "failed"},
            id="gone when it was adopted for a running pod: lost",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "ungated")], [], [], ["create a"], {"a": "creating"},
            id="never reported: the state of an allocation says nothing about its slice",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "creating")], [], [("a", "1g.5gb", 0, "failed")], [], {"a": "failed"},
            id="what failed is not tried again",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "creating")], [("1g.5gb", 0, True)], [("a", "1g.5gb", 0, "failed")],
            ["destroy 1g.5gb at 0"], {"a": "failed", "GPU-0/0": "foreign"},
            id="what a failed create left is removed",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "deleting")], [("1g.5gb", 0)], [("a", "1g.5gb", 0, "created")],
            ["destroy 1g.5gb at 0"], {"a": "deleting"}, id="ended",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "deleting")], [], [], [], {"a": "deleted"}, id="ended before it began",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "ungated"), ("b", "1g.5gb", 0, "creating")], [("1g.5gb", 0)],
            [("a", "1g.5gb", 0, "created")], [], {"a": "created", "b": "failed"},
            id="one place promised twice, by another hand: not tried for ever",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "creating"), ("b", "1g.5gb", 0, "creating")], [], [],
            ["create a"], {"a": "creating", "b": "failed"}, id="one place promised twice, before it is made",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "ungated"), ("b", "1g.5gb", 0, "deleting")], [("1g.5gb", 0)],
            [("a", "1g.5gb", 0, "created"), ("b", "1g.5gb", 0, "failed")], [], {"a": "created", "b": "deleted"},
            id="the second of one place ends, the first keeps its slice",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "deleting")], [], [("a", "1g.5gb", 0, "failed")], [], {"a": "deleted"},
            id="a failed one is taken back",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "deleting"), ("b", "2g.10gb", 0, "creating")], [("1g.5gb", 0)],
            [("a", "1g.5gb", 0, "created")], ["destroy 1g.5gb at 0"], {"a": "deleting", "b": "creating"},
            id="a slot given away too early is waited for",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "deleting"), ("b", "1g.5gb", 0, "ungated")], [("1g.5gb", 0)],
            [("a", "1g.5gb", 0, "deleted")], [], {"a": "deleted", "b": "created"},
            id="a slice is the second owner's once the first was said to be gone",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "deleting"), ("b", "1g.5gb", 0, "ungated")], [("1g.5gb", 0)], [], [],
            {"a": "deleted", "b": "created"}, id="also when our reports were lost",
        ),
        pytest.param(
            [("a", "1g.5gb", 0, "creating"), ("b", "1g.5gb", 1, "deleting")], [("1g.5gb", 1)], [],
            ["destroy 1g.5gb at 1", "create a"], {"a": "creating", "b": "deleting"}, id="destroys come first",
        ),
        pytest.param([], [("1g.5gb", 0)], [], [], {"MIG-1g.5gb-0": "foreign"}, id="nobody's"),
        pytest.param([], [], [("a", "1g.5gb", 0, "deleted")], [], {}, id="an allocation that is gone is dropped"),
    ],
)  # fmt: skip
def test_what_is_done_and_said(promised, found, past, steps, states):
    before = {each.id: each for each in (said(*words) for words in past)}
    gpu = GpuState(tuple(there(*words) for words in found))
    made = decide([promise(*words) for words in promised], gpu, before)
    assert [in_words(step) for step in made.steps] == steps
    assert {each.id: each.state for each in made.reports} == states
    # Said once more, on what it said itself: nothing changes.
    again = decide([promise(*words) for words in promised], gpu, {each.id: each for each in made.reports})
    assert (again.steps, again.reports) == (made.steps, made.reports)


@pytest.mark.parametrize("found", [[], [("1g.5gb", 0)], [("1g.5gb", 0, True)]], ids=["none", "whole", "half made"])
@pytest.mark.parametrize("past", [None, "creating", "created", "failed", "deleting", "deleted"])
@pytest.mark.parametrize(
    "states", [("creating", "created", "ungated"), ("deleting", "deleted", "failed")], ids=["wanted", "not wanted"]
)
def test_of_the_state_of_an_allocation_only_counts_whether_it_is_wanted(states, past, found):
    last = {"a": said("a", "1g.5gb", 0, past)} if past else {}
    gpu = GpuState(tuple(there(*each) for each in found))
    first, *others = [[promise("a", "1g.5gb", 0, state)] for state in states]
    decided = decide(first, gpu, last)
    for each in others:
        made = decide(each, gpu, last)
        assert (made.reports, made.orphans, made.ours) == (decided.reports, decided.orphans, decided.ours)
        assert [in_words(step) for step in made.steps] == [in_words(step) for step in decided.steps]
        assert unreadable(each, last, "hung", known=True) == unreadable(first, last, "hung", known=True)


def test_a_sick_gpu_makes_nothing_new_and_keeps_what_it_has():
    promised = [promise("a", "1g.5gb", 0, "creating"), promise("b", "1g.5gb", 1, "ungated")]
    made = decide(promised, GpuState((there("1g.5gb", 1),), unhealthy="Xid 79"), {})
    assert made.steps == ()
    assert [(each.state, each.reason) for each in made.reports] == [("failed", "Xid 79"), ("created", "")]


def test_orphans_that_were_ours_are_told_from_others():
    gpu = GpuState((there("1g.5gb", 0), there("1g.5gb", 1)))
    made = decide([], gpu, {"a": said("a", "1g.5gb", 0, "created")})
    assert len(made.orphans) == 2
    assert made.ours == {("1g.5gb", 0)}


def test_a_whole_slice_in_the_slot_of_a_failed_allocation_is_not_destroyed_without_asking():
    gpu = GpuState((there("1g.5gb", 0), there("1g.5gb", 1, True)))
    promised = [promise("a", "1g.5gb", 0, "creating"), promise("b", "1g.5gb", 1, "creating")]
    made = decide(promised, gpu, {each: said(each, "1g.5gb", n, "failed") for n, each in enumerate("ab")})
    assert [in_words(step) for step in made.steps] == ["destroy 1g.5gb at 1"], "nobody runs in half a slice"
    assert [slot_of(each) for each in made.orphans] == [("1g.5gb", 0)]
    assert made.ours == {("1g.5gb", 0), ("1g.5gb", 1)}


def test_nothing_is_failed_for_good_on_a_gpu_that_was_never_listed():
    promised = [promise("a", "1g.5gb", 0, "ungated"), promise("b", "1g.5gb", 1, "deleting")]
    reports = unreadable(promised, {}, "hung", known=False)
    assert [(each.id, each.state, each.reason) for each in reports] == [
        ("a", "creating", "hung"),
        ("b", "deleting", "hung"),
    ]


@pytest.mark.parametrize(
    "state, past, told",
    [
        pytest.param("creating", None, ("failed", "hung"), id="nothing new can be made"),
        pytest.param("creating", "created", ("created", ""), id="what was made is believed"),
        pytest.param("ungated", "created", ("created", ""), id="a running pod is not disturbed"),
        pytest.param("ungated", None, ("failed", "hung"), id="nor what was never reported"),
        pytest.param("ungated", "foreign", None, id="nothing is said of an adopted slice until it is seen"),
        pytest.param("deleting", "created", ("deleting", "hung"), id="what ends waits"),
        pytest.param("deleting", "deleted", ("deleted", ""), id="what has ended has"),
    ],
)
def test_a_gpu_that_does_not_tell_what_is_on_it(state, past, told):
    name = "MIG-1" if past == "foreign" else "a"
    before = {name: said(name, "1g.5gb", 0, past)} if past else {}
    reports = unreadable([promise("a", "1g.5gb", 0, state)], before, "hung", known=True)
    assert [(each.state, each.reason) for each in reports if each.id == "a"] == ([told] if told else [])
