"""What is said of a pod, for each stage and each kind of wait."""

import dataclasses
from datetime import timedelta

import msgspec
import pytest
from fitting import made as made_by
from small_worlds import NOW, allocation, instaslice, made, node, pod, uuid, world

from instaslice.api import names
from instaslice.api.instaslice import AllocationState, Health, SliceState
from instaslice.api.names import GATE, REQUESTED
from instaslice.controller.explain import Explainer, Stage
from instaslice.controller.feasible_nodes import nodes_that_could_hold
from instaslice.controller.ledger import HEALTH
from instaslice.kube.core import Condition, Lease, Namespace, Pod, Volume
from instaslice.kube.storage import PersistentVolume, PersistentVolumeClaim
from instaslice.placement import policies
from instaslice.placement.longest_waiting import RESERVED


def waiting(name="w", *profiles, **more):
    return pod(name, *(profiles or ["1g.5gb"]), gates=[GATE], **more)


def running(promised):
    return pod(promised.pod.name, promised.profile, on="gpu-0", given=[uuid(promised)])


FULL = [allocation(f"big-{gpu}", "7g.40gb", 0, gpu=f"GPU-{gpu}") for gpu in (0, 1)]
FRAGMENTED = [
    allocation(f"small-{gpu}-{start}", "1g.5gb", start, gpu=f"GPU-{gpu}") for gpu in (0, 1) for start in (0, 4)
]
DRAINED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
HALF = [allocation(f"half-{gpu}", "3g.20gb", 0, gpu=f"GPU-{gpu}") for gpu in (0, 1)]


def with_held(held, *others, **more):
    return world([*map(running, held), *others], [instaslice(*held)], **more)


def sick(thing):
    gpus = tuple(
        msgspec.structs.replace(gpu, health=Health.UNHEALTHY, reason="Xid 79: fallen off the bus")
        for gpu in thing.status.gpus
    )
    return msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, gpus=gpus))


def told(here, name="w"):
    found = next(each for each in here.pods if each.metadata.name == name)
    return Explainer(here, policies.named("adaptive")).explain(found)


def cordoned(name):
    made_node = node(name)
    return msgspec.structs.replace(made_node, spec=msgspec.structs.replace(made_node.spec, unschedulable=True))


WAITS = [
    pytest.param(
        with_held(FULL, waiting()),
        "1g.5gb needs 1 free memory slices on one GPU; the most that one has is 0; a slice must end or a GPU be added",
        {"1g.5gb needs 1 free memory slices on one GPU": ["gpu-0"]},
        ["gpu-0"],
        id="every GPU is full",
    ),
    pytest.param(
        with_held(HALF, waiting("w", "4g.20gb")),
        "2 GPUs hold enough free memory for 4g.20gb but no legal start",
        {"2 GPUs hold enough free memory for 4g.20gb but no legal start": ["gpu-0"]},
        ["gpu-0"],
        id="free memory in the wrong place",
    ),
    pytest.param(
        world([waiting(cpu="65")]),
        "no such node admits the pod (gpu-0: cpu: 65 wanted, 64 free)",
        {"cpu: 65 wanted, 64 free": ["gpu-0"]},
        [],
        id="more CPU than any node has",
    ),
    pytest.param(
        world([waiting(cpu="10"), pod("other", on="gpu-0", cpu="60")]),
        "no such node admits the pod (gpu-0: cpu: 10 wanted, 4 free)",
        {"cpu: 10 wanted, 4 free": ["gpu-0"]},
        ["gpu-0"],
        id="CPU that another pod uses",
    ),
    pytest.param(
        world([waiting()], nodes=[cordoned("gpu-0")]),
        "every node that could hold it is cordoned (gpu-0): uncordon one, or add a node",
        {"is cordoned": ["gpu-0"]},
        [],
        id="a cordoned node",
    ),
    pytest.param(
        world([waiting()], nodes=[node(ready=False)]),
        "no node that could hold it is available (gpu-0: is not ready)",
        {"is not ready": ["gpu-0"]},
        [],
        id="a node that is not ready",
    ),
    pytest.param(
        with_held(FULL, waiting(), nodes=[cordoned("gpu-0")]),
        "every node that could hold it is cordoned (gpu-0): uncordon one, or add a node",
        {"is cordoned": ["gpu-0"]},
        [],
        id="a cordoned node without room: the room is not what is missing first",
    ),
    pytest.param(
        world([waiting()], nodes=[node(ready=False, taints=[DRAINED])]),
        "every node that could hold it is cordoned (gpu-0)",
        {"is cordoned": ["gpu-0"]},
        [],
        id="a drained node that is down, by the taint that goes with the cordon",
    ),
    pytest.param(
        with_held(FULL, waiting("w", "7g.40gb", "7g.40gb", "7g.40gb")),
        "asks for 3 x 7g.40gb on one node, and the GPUs of no node hold more than 2 of the 3 slices, even if empty",
        {"its GPUs hold 2 of the 3 slices, even if empty": ["gpu-0"]},
        [],
        id="three whole GPUs where a node has two: no slice that ends helps",
    ),
    pytest.param(
        with_held(FRAGMENTED, waiting("w", "3g.20gb", "3g.20gb", "3g.20gb", "3g.20gb", "3g.20gb")),
        "asks for 5 x 3g.20gb on one node, and the GPUs of no node hold more than 4 of the 5 slices, even if empty",
        {"its GPUs hold 4 of the 5 slices, even if empty": ["gpu-0"]},
        [],
        id="five slices where a node holds four: no move helps",
    ),
    pytest.param(
        world([waiting()], nodes=[node(taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])]),
        "(gpu-0: is tainted team=a:NoSchedule); change what it selects or tolerates, or add a node",
        {"is tainted team=a:NoSchedule": ["gpu-0"]},
        [],
        id="a taint, which asking for less does not help",
    ),
    pytest.param(
        world([waiting("w", *["7g.40gb"] * 3)]),
        "asks for 3 x 7g.40gb on one node, and the GPUs of no node hold more than 2 of the 3 slices, even if empty",
        {"its GPUs hold 2 of the 3 slices, even if empty": ["gpu-0"]},
        [],
        id="each slice fits, all of them never do",
    ),
    pytest.param(
        world([waiting("w", "3g.40gb")]),
        "profile 3g.40gb does not exist on any node (A100-40GB has ",
        {"none of its GPUs has 3g.40gb": ["gpu-0"]},
        [],
        id="a profile that no GPU has",
    ),
    pytest.param(
        world([waiting()], [sick(instaslice())]),
        "every GPU that has 1g.5gb is closed",
        {"Xid 79: fallen off the bus": ["gpu-0"]},
        [],
        id="sick GPUs",
    ),
    pytest.param(
        world([waiting()], []),
        "there is no GPU in the fleet",
        {},
        [],
        id="no GPU at all",
    ),
    pytest.param(
        with_held(
            HALF,
            waiting("w", "3g.20gb"),
            nodes=[node(), cordoned("gpu-1")],
        ),
        "fits now, and is about to be placed",
        {},
        ["gpu-0"],
        id="it fits, and nobody has placed it",
    ),
]


@pytest.mark.parametrize("here, message, nodes, could", WAITS)
def test_why_a_pod_waits(here, message, nodes, could):
    said = told(here)
    assert said.stage is Stage.WAITING
    assert message in said.message
    assert [(why.partition("(")[0].strip(), where) for why, where in said.nodes.items()] == list(nodes.items())
    assert said.could == could
    assert said.since == said_since(here)


def said_since(here):
    return next(each.metadata.creation_timestamp for each in here.pods if each.metadata.name == "w")


def leased(here, holder, age):
    """The controller's Lease, renewed so many seconds ago."""
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "renewTime": (NOW - timedelta(seconds=age)).isoformat(),
    }
    return dataclasses.replace(here, lease=made_by(Lease, "instaslice-controller", "instaslice-system", spec=spec))


DEAD = "no controller seems to run: one renewed lease instaslice-system/instaslice-controller 90 s ago"


@pytest.mark.parametrize(
    "holder, age, name, said",
    [
        pytest.param("one", 90, "w", f"fits now, but {DEAD}", id="it is dead"),
        pytest.param("one", 90, "last", f"fits now, but {DEAD}", id="it is dead, of a pod behind others"),
        pytest.param("one", -90, "w", f"fits now, but {DEAD}", id="its clock is far away"),
        pytest.param(
            "",
            11,
            "w",
            "fits now, but no controller runs: nobody holds lease instaslice-system/instaslice-controller",
            id="it was stopped",
        ),
        pytest.param("", 9, "w", "fits now, and is about to be placed", id="the next is about to lead"),
        pytest.param("one", 30, "w", "fits now, and is about to be placed", id="it runs"),
        pytest.param(
            "one",
            30,
            "last",
            "fits now, and is placed once the pods ahead of it have been considered",
            id="it runs, of a pod behind others",
        ),
    ],
)
def test_whether_a_controller_runs_is_said_to_every_pod_that_waits(holder, age, name, said):
    here = leased(world([waiting(age=700), waiting("last", age=600)]), holder, age)
    assert told(here, name).message == said


@pytest.mark.parametrize("unknown", [pytest.param(False, id="there is none"), pytest.param(True, id="may not be read")])
def test_where_there_is_no_lease_every_pod_that_fits_is_told_to_look(unknown):
    here = dataclasses.replace(world([waiting(age=700), waiting("last", age=600)]), lease_unknown=unknown)
    doubts = [told(here, name).message.endswith("; does the controller run?") for name in ("w", "last")]
    assert doubts == [not unknown] * 2, "who may not read it learns nothing from that"


def test_a_pod_that_does_not_fit_is_told_too_that_nobody_would_place_it():
    message = told(leased(with_held(FULL, waiting()), "one", 90)).message
    assert message.startswith("1g.5gb needs 1 free memory slices") and message.endswith(f"; {DEAD}")


def test_a_pod_whose_slices_are_ready_is_told_that_nobody_ungates_it():
    mine = msgspec.structs.replace(allocation("w", "1g.5gb", 3), state=AllocationState.CREATED)
    here = leased(world([requested(waiting())], [instaslice(mine)]), "one", 90)
    assert told(here).message.endswith(f"about to be ungated; {DEAD}")


def test_what_the_controller_says_of_a_pod_that_seems_to_fit_is_quoted():
    """It alone knows that an agent does not answer, say."""
    found = waiting()
    said = Condition(names.SLICE_READY, "False", "Waiting", "out of use: GPU 0")
    found = msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=[said]))
    assert told(leased(world([found]), "one", 5)).message == (
        "fits now by what the API server holds, but the controller said: out of use: GPU 0"
    )


def test_who_holds_slices_is_said_only_of_a_pod_that_waits_for_slices():
    assert told(with_held(FULL, waiting())).held_by
    assert not told(with_held(HALF, waiting())).held_by, "it fits now"
    assert not told(with_held(FULL, with_claim(waiting()))).held_by, "it waits for a claim"


@pytest.mark.parametrize(
    "nodes, why",
    [
        pytest.param([cordoned("gpu-0")], "has no label zone=b, and is cordoned", id="cordoned"),
        pytest.param([node(ready=False)], "has no label zone=b, and is not ready", id="not ready"),
        pytest.param([node()], "has no label zone=b", id="as it is"),
    ],
)
def test_a_selector_that_no_node_matches_is_not_hidden_behind_a_cordon(nodes, why):
    found = waiting()
    found = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, node_selector={"zone": "b"}))
    said = told(world([found], nodes=nodes))
    assert said.message.endswith(f"(gpu-0: {why}); change what it selects or tolerates, or add a node")
    assert said.nodes == {why: ["gpu-0"]}


def test_a_pod_whose_slice_is_lost_is_told_what_to_do():
    lost = instaslice(MINE, slices=[made(MINE, SliceState.FAILED, reason="slice lost: reboot")])
    message = told(world([requested(running(MINE))], [lost])).message
    assert message == "slice lost: reboot; delete the pod, it cannot use a GPU any more"


@pytest.mark.parametrize(
    "here, could_in_use",
    [
        pytest.param(world([waiting()], [sick(instaslice())]), ["gpu-0"], id="sick GPUs that have it"),
        pytest.param(world([waiting("w", "3g.40gb")], [sick(instaslice())]), [], id="sick GPUs that have it not"),
        pytest.param(
            world([pod("w", by_memory=8, gates=[GATE])], [sick(instaslice())]), ["gpu-0"], id="sick GPUs, by memory"
        ),
        pytest.param(
            world([pod("w", by_memory=45, gates=[GATE])], [sick(instaslice())]),
            [],
            id="sick GPUs with too little memory",
        ),
        pytest.param(with_held(FULL, waiting()), [], id="GPUs in use"),
        pytest.param(
            world([waiting()], [sick(instaslice())], nodes=[cordoned("gpu-0")]), [], id="sick GPUs of a cordoned node"
        ),
    ],
)
def test_nodes_whose_gpus_are_out_of_use_are_not_called_too_small(here, could_in_use):
    said = told(here)
    assert said.could_in_use == could_in_use
    assert not (said.could_in_use and said.could)


def test_a_reserved_gpu_could_hold_a_pod_and_an_unhealthy_one_could_not():
    state, placer = _state_of(with_held(FULL, waiting()))
    found = next(pod for pod in state.pods.values() if pod.metadata.name == "w")
    for kind, could in ((RESERVED, ["gpu-0"]), (HEALTH, [])):
        for gpu in ("GPU-0", "GPU-1"):
            state.ledger.fleet.close(gpu, kind, "why")
        assert list(nodes_that_could_hold(state, placer, found)) == could


def _state_of(here):
    dispatcher = Explainer(here, policies.named("adaptive"))._dispatcher
    return dispatcher.state, dispatcher.placer


def test_only_pods_that_may_run_are_ahead():
    """A pod that no node could hold, one that waits for another gate and one without its claim take nobody's turn."""
    here = with_held(
        FULL,
        waiting(),
        waiting("able", age=700),
        waiting("too-large", *["7g.40gb"] * 3, age=800),
        with_claim(waiting("no-claim", age=900)),
        pod("gated", "1g.5gb", gates=[GATE, "kueue.x-k8s.io/admission"], age=1000),
    )
    assert told(here).ahead == 1


def test_who_is_ahead():
    older, first = waiting("older", age=700), waiting("first", age=900)
    assert told(with_held(FULL, waiting(), older, first)).ahead == 2
    assert told(with_held(FULL, waiting(), older, first), "first").ahead == 0


def with_claim(each):
    """It needs a volume by a claim named data."""
    volumes = msgspec.convert([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}], list[Volume])
    return msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, volumes=volumes))


def test_a_claim_that_is_not_there_is_said_before_anything_else():
    said = told(world([with_claim(waiting()), *map(running, FULL)], [instaslice(*FULL)]))
    words = "waits for PersistentVolumeClaim team-a/data, which does not exist"
    assert said.message == words
    assert said.nodes == {words: ["gpu-0"]}
    assert said.could == ["gpu-0"]


def test_a_volume_elsewhere_rules_out_its_node_alone():
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-9"]}]}]
    volume = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = made_by(PersistentVolumeClaim, "data", "team-a", annotations=done, spec={"volumeName": "pv"})
    here = world([with_claim(waiting())])
    here = dataclasses.replace(here, storage=[claim, made_by(PersistentVolume, "pv", spec=volume)])
    assert list(told(here).nodes) == ["volume claim data: its volume pv is elsewhere"]


def test_who_may_not_read_volumes_is_told_the_rest():
    here = dataclasses.replace(world([with_claim(waiting())]), storage=None)
    assert told(here).message.startswith("fits now")


def test_nodes_with_the_same_reason_stand_together():
    here = world(
        [waiting(), *map(running, FULL)],
        [instaslice(*FULL), instaslice(name="gpu-1", gpus=["GPU-2"]), instaslice(name="gpu-2", gpus=["GPU-3"])],
        [node(), cordoned("gpu-1"), cordoned("gpu-2")],
    )
    assert list(told(here).nodes.values()) == [["gpu-1", "gpu-2"], ["gpu-0"]]


MINE = allocation("w", "1g.5gb", 3)
CREATING = msgspec.structs.replace(MINE, state=AllocationState.CREATING)

STAGES = [
    pytest.param(world([waiting("w", "1g.5gb"), *map(running, FULL)], [instaslice(*FULL)]), Stage.WAITING, id="waits"),
    pytest.param(
        world([pod("w", "1g.5gb", gates=[GATE, "kueue.x-k8s.io/admission"])]),
        Stage.HELD_BY_KUEUE,
        id="Kueue comes first",
    ),
    pytest.param(world([waiting()], [instaslice(CREATING, slices=[])]), Stage.CREATING, id="slices being made"),
    pytest.param(
        world([pod("w", "1g.5gb", pinned="gpu-0", phase="Pending", given=[uuid(MINE)])], [instaslice(MINE)]),
        Stage.STARTING,
        id="let go and not bound",
    ),
    pytest.param(world([running(MINE)], [instaslice(MINE)]), Stage.RUNNING, id="runs"),
    pytest.param(
        world([running(MINE)], [instaslice(MINE, slices=[made(MINE, SliceState.FAILED, reason="slice lost: reboot")])]),
        Stage.TROUBLED,
        id="its slice is lost",
    ),
    pytest.param(world([running(MINE)], [sick(instaslice(MINE))]), Stage.TROUBLED, id="its GPU is sick"),
    pytest.param(world([running(MINE)], [instaslice()]), Stage.TROUBLED, id="nobody knows of its slices"),
    pytest.param(world([pod("w", "1g.5gb", on="gpu-0")]), Stage.TROUBLED, id="made past the webhook"),
    pytest.param(world([pod("w", "1g.5gb", on="gpu-0", phase="Succeeded")]), Stage.ENDED, id="has ended"),
    pytest.param(world([pod("w", on="gpu-0")]), Stage.NOT_OURS, id="asks for nothing"),
]


def requested(each):
    """As the webhook marks it."""
    annotations = {**each.metadata.annotations, REQUESTED: "{}"}
    return msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, annotations=annotations))


@pytest.mark.parametrize("here, stage", STAGES)
def test_the_stage_of_a_pod(here, stage):
    here = world([requested(each) for each in here.pods], here.instaslices, here.nodes)
    assert told(here).stage is stage


def test_where_the_slices_are():
    (place,) = told(world([requested(running(MINE))], [instaslice(MINE)])).slices
    assert (place.node, place.index, place.profile, place.start) == ("gpu-0", 0, "1g.5gb", 3)
    assert (place.container, place.state, place.mig_uuid) == ("main", "created", uuid(MINE))


def test_a_pod_that_the_webhook_never_saw_is_told_so():
    raw = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}]}
    here = world([msgspec.convert({"metadata": {"namespace": "team-a", "name": "w", "uid": "u"}, "spec": raw}, Pod)])
    said = told(here)
    assert said.stage is Stage.NOT_OURS
    unseen = "asks for nvidia.com/mig-1g.5gb, which our webhook has not seen: "
    older, label = "the pod is older than InstaSlice here", "gpu.das.com/slicing"
    opted_out, first = f"its namespace is opted out ({label}=disabled)", f"`kubectl label namespace team-a {label}-`"
    again = "create the pod again to have slices made"
    assert said.message == f"{unseen}{older}, or {opted_out}; remove that label if it is there ({first}), and {again}"
    served, out = (made_by(Namespace, "team-a", labels=labels) for labels in ({}, {label: "disabled"}))
    message = told(dataclasses.replace(here, namespaces=[served])).message
    assert message == f"{unseen}{older}; create it again to have slices made"
    message = told(dataclasses.replace(here, namespaces=[out])).message
    assert message == f"{unseen}{opted_out}; remove that label ({first}), and {again}"


def test_a_node_whose_slices_of_a_kind_are_taken_is_not_said_to_have_none():
    held = [allocation(f"media-{gpu}", "1g.5gb+me", 0, gpu=f"GPU-{gpu}") for gpu in (0, 1)]
    there = instaslice(name="gpu-1", gpus=("GPU-2", "GPU-3"))
    here = world(
        [*map(running, held), waiting("w", "1g.5gb+me")], [instaslice(*held), there], [node("gpu-0"), cordoned("gpu-1")]
    )
    assert told(here).nodes == {"has no room for the slices on its GPUs": ["gpu-0"], "is cordoned": ["gpu-1"]}


def test_a_pod_that_set_our_gate_for_nothing_is_told_so():
    raw = {"containers": [{"name": "main"}], "schedulingGates": [{"name": "gpu.das.com/slice"}]}
    here = world([msgspec.convert({"metadata": {"namespace": "team-a", "name": "w", "uid": "u"}, "spec": raw}, Pod)])
    assert "which nobody will remove" in told(here).message


def test_explaining_changes_nothing_and_says_the_same_twice():
    here = with_held(FULL, waiting())
    assert told(here) == told(here)
    assert here.now == NOW


@pytest.mark.parametrize(
    "asks, held, message, ruled_out",
    [
        pytest.param(8, FULL, "1g.10gb wastes least for 8 GB", {"1g.10gb needs 2 free"}, id="its profile is taken"),
        pytest.param(45, [], "profile 45gb or more does not exist on any node", {"none of its GPUs has 45gb"}, id="no"),
    ],
)
def test_a_pod_that_asks_by_memory_and_waits(asks, held, message, ruled_out):
    here = with_held(held, pod("w", by_memory=asks, gates=[GATE]))
    found = told(here)
    assert (found.stage, found.asks) == (Stage.WAITING, {f"{asks}gb or more": 1})
    assert message in found.message
    assert [reason.startswith(tuple(ruled_out)) for reason in found.nodes] == [True]
    assert bool(found.could) == bool(held)
    assert [each.holds for each in found.held_by] == [{"7g.40gb": 1} for _ in held]


def test_a_pod_that_asks_by_memory_and_runs():
    held = allocation("w", "1g.10gb", 0, asked_gb=8)
    mine = requested(pod("w", by_memory=8, on="gpu-0", given=[uuid(held)]))
    found = told(world([mine], [instaslice(held)]))
    assert "1g.10gb for 8 GB at 0 of GPU 0 on node gpu-0" in found.message
    assert [each.profile for each in found.slices] == ["1g.10gb"]
