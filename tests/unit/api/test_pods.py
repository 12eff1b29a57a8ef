"""Which slices a pod holds at once, as the kubelet hands them out to its containers one after the other."""

import pytest
from fitting import container, pod

from instaslice.api.pods import gated, needed_slices, other_gates, why_unbound
from instaslice.errors import BadInput

ONE, TWO, THREE = "1g.5gb", "2g.10gb", "3g.20gb"


def asks(name, *profiles, sidecar=False):
    made = container(name, sidecar=sidecar)
    limits = {f"gpu.das.com/mig-{each}": str(profiles.count(each)) for each in profiles}
    return {**made, "resources": {"limits": limits}}


def sidecar(name, *profiles):
    return asks(name, *profiles, sidecar=True)


@pytest.mark.parametrize(
    "initial, containers, found",
    [
        pytest.param([], [asks("c")], [], id="nothing"),
        pytest.param([], [asks("c", TWO, ONE, ONE)], [("c", ONE), ("c", ONE), ("c", TWO)], id="several, by name"),
        pytest.param([], [asks("c", ONE), asks("d", ONE)], [("c", ONE), ("d", ONE)], id="containers hold their own"),
        pytest.param([asks("i", ONE)], [asks("c", ONE)], [("c", ONE)], id="an init container uses its successor's"),
        pytest.param([asks("i", ONE)], [asks("c", TWO)], [("c", TWO), ("i", ONE)], id="not one of another profile"),
        pytest.param(
            [asks("i", ONE, ONE, ONE)], [asks("c", ONE)], [("c", ONE), ("i", ONE), ("i", ONE)], id="what is beyond it"
        ),
        pytest.param(
            [asks("i", ONE, ONE), asks("j", ONE, ONE)],
            [asks("c", ONE)],
            [("c", ONE), ("i", ONE)],
            id="the second init container uses what the first had",
        ),
        pytest.param(
            [asks("i", ONE), asks("j", ONE, ONE, ONE)],
            [asks("c", ONE)],
            [("c", ONE), ("j", ONE), ("j", ONE)],
            id="the one that needs most",
        ),
        pytest.param(
            [asks("i", ONE), asks("j", TWO)],
            [],
            [("i", ONE), ("j", TWO)],
            id="two init containers of different profiles",
        ),
        pytest.param(
            [sidecar("s", ONE)], [asks("c", ONE)], [("s", ONE), ("c", ONE)], id="a sidecar beside a container"
        ),
        pytest.param(
            [sidecar("s", ONE), asks("i", ONE)],
            [asks("c", ONE)],
            [("s", ONE), ("c", ONE)],
            id="an init container after a sidecar uses what the container gets",
        ),
        pytest.param(
            [sidecar("s", ONE), asks("i", ONE, ONE)],
            [asks("c", ONE)],
            [("s", ONE), ("c", ONE), ("i", ONE)],
            id="and not what the sidecar holds",
        ),
        pytest.param(
            [asks("i", ONE, ONE), sidecar("s", ONE)],
            [asks("c", ONE)],
            [("s", ONE), ("c", ONE)],
            id="before the sidecar it may",
        ),
        pytest.param(
            [sidecar("s", ONE), sidecar("t", ONE), asks("i", ONE)],
            [],
            [("s", ONE), ("t", ONE), ("i", ONE)],
            id="two sidecars hold theirs while an init container runs",
        ),
        pytest.param(
            [sidecar("s", ONE), asks("i", TWO), sidecar("t", TWO), asks("j", ONE)],
            [asks("c", THREE)],
            [("s", ONE), ("t", TWO), ("c", THREE), ("j", ONE)],
            id="a sidecar gets what an init container before it had",
        ),
        pytest.param(
            [{**asks("i"), "restartPolicy": "Never"}], [asks("c", ONE)], [("c", ONE)], id="never is no sidecar"
        ),
    ],
)
def test_what_is_held_together(initial, containers, found):
    held = needed_slices(pod(*containers, initContainers=initial))
    assert [(each.container, each.profile) for each in held] == found
    assert not any(each.ask for each in held)


def by_memory(name, gb, *, sidecar=False):
    """As the webhook leaves it."""
    limits = {"gpu.das.com/mem": str(gb), "gpu.das.com/mig-any": "1"}
    return {**container(name, sidecar=sidecar), "resources": {"limits": limits}}


@pytest.mark.parametrize(
    "initial, containers, found",
    [
        pytest.param([], [by_memory("c", 8)], [("c", 8)], id="one"),
        pytest.param([], [by_memory("c", 8), by_memory("d", 8)], [("c", 8), ("d", 8)], id="containers hold their own"),
        pytest.param([by_memory("i", 8)], [by_memory("c", 16)], [("c", 16)], id="an init container leaves its device"),
        pytest.param([by_memory("i", 16)], [by_memory("c", 8)], [("c", 16)], id="and it is enough for both"),
        pytest.param(
            [by_memory("i", 40), by_memory("j", 1)],
            [by_memory("c", 8), by_memory("d", 9)],
            [("c", 40), ("d", 9)],
            id="the first container gets the device that all init containers had",
        ),
        pytest.param(
            [by_memory("i", 40), by_memory("s", 2, sidecar=True), by_memory("j", 3)],
            [by_memory("c", 8)],
            [("s", 40), ("c", 8)],
            id="a sidecar keeps it",
        ),
        pytest.param(
            [by_memory("s", 2, sidecar=True)], [by_memory("c", 8)], [("s", 2), ("c", 8)], id="a sidecar leaves none"
        ),
        pytest.param([by_memory("i", 8)], [asks("c")], [("i", 8)], id="an init container alone"),
        pytest.param([by_memory("i", 8)], [asks("c", ONE)], [("c", 0), ("i", 8)], id="beside a profile, not shared"),
    ],
)
def test_what_is_held_by_memory(initial, containers, found):
    held = needed_slices(pod(*containers, initContainers=initial))
    assert [(each.container, each.ask.gb if each.ask else 0) for each in held] == found


def annotated(**annotations):
    return {"annotations": {f"gpu.das.com/{name.replace('_', '-')}": text for name, text in annotations.items()}}


def test_a_floor_for_compute_slices_is_one_for_every_ask_of_the_pod():
    made = pod(by_memory("c", 8), by_memory("d", 9), meta=annotated(compute_slices="3"))
    assert [str(each.ask) for each in needed_slices(made)] == [
        "8gb or more with 3g or more",
        "9gb or more with 3g or more",
    ]


@pytest.mark.parametrize(
    "limits, meta, message",
    [
        pytest.param({"gpu.das.com/mig-any": "1"}, {}, "where a container asks for gpu.das.com/mem alone", id="alone"),
        pytest.param({"gpu.das.com/mig-any": "2", "gpu.das.com/mem": "8"}, {}, "adds, once", id="two of them"),
        pytest.param({"gpu.das.com/mig-any": "1", "gpu.das.com/mem": "8Gi"}, {}, "8Gi is not a number of GB", id="8Gi"),
        pytest.param(
            {"gpu.das.com/mig-any": "1", "gpu.das.com/mem": "8"}, annotated(fit="loose"), "is 'loose'; write", id="fit"
        ),
        pytest.param(
            {"gpu.das.com/mig-any": "1", "gpu.das.com/mem": "8"},
            annotated(compute_slices="many"),
            "is 'many', not a number of compute slices",
            id="compute",
        ),
    ],
)
def test_an_ask_by_memory_that_cannot_be_read(limits, meta, message):
    with pytest.raises(BadInput, match=message):
        needed_slices(pod({"name": "c", "resources": {"limits": limits}}, meta=meta))


@pytest.mark.parametrize("number", ["1", "128", 128])
def test_any_number_up_to_the_most_that_a_container_may_ask_for(number):
    (made,) = [{"name": "c", "resources": {"limits": {"gpu.das.com/mig-1g.5gb": number}}}]
    assert len(needed_slices(pod(made))) == int(number)


@pytest.mark.parametrize("number", ["0", "129", "-1", "1.5", "", "१"])
def test_any_other_number_is_refused(number):
    (made,) = [{"name": "c", "resources": {"limits": {"gpu.das.com/mig-1g.5gb": number}}}]
    with pytest.raises(BadInput, match="is not a number of slices up to 128"):
        needed_slices(pod(made))


def test_what_is_not_a_slice_of_ours_is_not_wanted():
    limits = {"gpu.das.com/mem": "5", "nvidia.com/mig-1g.5gb": "1", "cpu": "1"}
    assert needed_slices(pod({"name": "c", "resources": {"limits": limits}})) == ()


def test_our_gate_and_those_of_others():
    ours, theirs = {"name": "gpu.das.com/slice"}, {"name": "kueue.x-k8s.io/admission"}
    assert (gated(pod()), other_gates(pod())) == (False, [])
    assert (gated(pod(schedulingGates=[theirs])), other_gates(pod(schedulingGates=[theirs]))) == (
        False,
        ["kueue.x-k8s.io/admission"],
    )
    both = pod(schedulingGates=[theirs, ours])
    assert (gated(both), other_gates(both)) == (True, ["kueue.x-k8s.io/admission"])


def test_of_a_pod_that_no_scheduler_has_looked_at():
    assert why_unbound(pod()) == "no scheduler says why; see its Events, and those of its claims"
    own = pod(schedulerName="volcano")
    assert why_unbound(own) == "its scheduler volcano does not say why; does one of that name run?"
