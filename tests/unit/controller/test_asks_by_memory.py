"""Pods that ask for GPU memory without a profile: which slice they get, and which they wait for."""

import json
from random import Random

import msgspec
import pytest
from world import World, why

from instaslice.api import names
from instaslice.api.instaslice import Health, InstasliceSpec, SliceState
from instaslice.geometry import ProfileName, models
from instaslice.kube.core import Container, ResourceRequirements

SMALL, MIDDLE, LARGE = "a100-40", "a100-80", "h200"
MODELS = {SMALL: "A100-40GB", MIDDLE: "A100-80GB", LARGE: "H200-141GB"}


@pytest.fixture
def fleet():
    """A node of each kind, with one GPU."""
    made = World()
    for node, model in MODELS.items():
        made.add_node(node, model=models.named(model))
    return made


def by_memory(gb, name="c0", cpu="100m"):
    """A container as the webhook leaves it."""
    asked = {names.MEMORY: str(gb), names.ANY_SLICE: "1"}
    return Container(name=name, resources=ResourceRequirements(limits=asked, requests={**asked, "cpu": cpu}))


def by_profile(profile, name):
    asked = {f"{names.RESOURCE}{profile}": "1", names.MEMORY: str(ProfileName.parse(profile).gb)}
    return Container(name=name, resources=ResourceRequirements(limits=asked, requests={**asked, "cpu": "100m"}))


def ask(world, *asked, fit=None, floor=None, cpu="100m", **spec):
    """A pod with a container for each: GB, or a profile."""
    containers = [
        by_memory(each, f"c{n}", cpu) if isinstance(each, int) else by_profile(each, f"c{n}")
        for n, each in enumerate(asked)
    ]
    uid = world.add_pod(containers=containers, gates=("later",), **spec)
    annotate(world, uid, {names.FIT: fit, names.COMPUTE_SLICES: floor})
    world.change_pod(uid, scheduling_gates=world.pods[uid].spec.scheduling_gates[:1])
    return uid


def annotate(world, uid, annotations):
    pod = world.pods[uid]
    written = {**pod.metadata.annotations, **{name: text for name, text in annotations.items() if text is not None}}
    world._set(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=written)))


def fill(world, *nodes):
    """Whole GPUs are taken."""
    for node in nodes:
        whole = max(models.named(MODELS[node]).profiles, key=lambda each: (each.gb, each.compute)).name
        world.add_pod(whole, node_selector={"kubernetes.io/hostname": node})
    world.settle()


def got(world, uid):
    """Where the pod is, and its slices in the order of its containers."""
    reservation = world.dispatcher.state.ledger.reservations.get(uid)
    if reservation is None:
        return None
    return reservation.node, *(tracked.allocation.profile for tracked in reservation.allocations)


ANY, FLOOR_2, FLOOR_4 = {"fit": "any"}, {"floor": "2"}, {"floor": "4"}


@pytest.mark.parametrize(
    "full, asked, terms, expected",
    [
        pytest.param([], [1], {}, (SMALL, "1g.5gb"), id="1 GB: the smallest of all"),
        pytest.param([], [5], {}, (SMALL, "1g.5gb"), id="5 GB: exactly one"),
        pytest.param([], [6], {}, ("*", "1g.10gb"), id="6 GB: a size up"),
        pytest.param([], [8], {}, ("*", "1g.10gb"), id="8 GB"),
        pytest.param([], [10], {}, ("*", "1g.10gb"), id="10 GB: with the fewest compute slices"),
        pytest.param([], [11], {}, (LARGE, "1g.18gb"), id="11 GB: 18 waste less than 20"),
        pytest.param([], [18], {}, (LARGE, "1g.18gb"), id="18 GB: exactly one, on one model"),
        pytest.param([], [19], {}, (MIDDLE, "1g.20gb"), id="19 GB: of 1g.20gb, 2g.20gb, 3g.20gb the least compute"),
        pytest.param([], [21], {}, (LARGE, "1g.35gb"), id="21 GB: 35 waste less than 40"),
        pytest.param([], [36], {}, (MIDDLE, "3g.40gb"), id="36 GB: half an A100-80GB, not all of an A100-40GB"),
        pytest.param([], [41], {}, (LARGE, "3g.71gb"), id="41 GB: half an H200 wastes less than a whole A100-80GB"),
        pytest.param([], [72], {}, (MIDDLE, "7g.80gb"), id="72 GB: a whole A100-80GB"),
        pytest.param([], [81], {}, (LARGE, "7g.141gb"), id="81 GB: a whole H200"),
        pytest.param([], [141], {}, (LARGE, "7g.141gb"), id="all that one GPU has"),
        pytest.param([], [142], {}, None, id="more than any profile holds"),
        pytest.param([], [5], FLOOR_2, (SMALL, "2g.10gb"), id="2 compute slices at least"),
        pytest.param([], [18], FLOOR_2, (MIDDLE, "2g.20gb"), id="the same for 18 GB, which have one on an H200"),
        pytest.param([], [5], FLOOR_4, (SMALL, "4g.20gb"), id="4 compute slices at least"),
        pytest.param([], [40], FLOOR_4, (MIDDLE, "4g.40gb"), id="and 40 GB: not a whole A100-40GB, of 7"),
        pytest.param([], [5], {"floor": "5"}, (SMALL, "7g.40gb"), id="5 compute slices: only a whole GPU has them"),
        pytest.param([], [5], {"floor": "8"}, None, id="8 compute slices: none has them"),
        pytest.param([SMALL], [5], {}, None, id="its tightest is taken: it waits, though others are free"),
        pytest.param([SMALL], [5], ANY, (MIDDLE, "1g.10gb"), id="any: the next one up"),
        pytest.param([SMALL, MIDDLE], [5], ANY, (LARGE, "1g.18gb"), id="any: two sizes up"),
        pytest.param([SMALL, MIDDLE, LARGE], [5], ANY, None, id="any: no room anywhere"),
        pytest.param([LARGE], [18], {}, None, id="18 GB on full H200s wait"),
        pytest.param([LARGE], [18], ANY, (MIDDLE, "1g.20gb"), id="any: or take an A100-80GB"),
        pytest.param([], [5], ANY, (SMALL, "1g.5gb"), id="any: where all is free as tight"),
        pytest.param([SMALL], [8], {}, (MIDDLE, "1g.10gb"), id="a profile of two models, one of them full"),
        pytest.param([], [5, 5], {}, (SMALL, "1g.5gb", "1g.5gb"), id="two containers"),
        pytest.param([], [5, 18], {}, (SMALL, "1g.5gb", "3g.20gb"), id="both on the node where they waste least"),
        pytest.param([], [8, "1g.18gb"], {}, (LARGE, "1g.18gb", "1g.18gb"), id="beside a profile of one model"),
        pytest.param([], [8, "1g.10gb"], {}, ("*", "1g.10gb", "1g.10gb"), id="beside a profile of the same kind"),
        pytest.param([], [20, 20, 1], {}, (MIDDLE, "1g.20gb", "1g.20gb", "1g.10gb"), id="three on one GPU"),
        pytest.param([], [5] * 8, {}, None, id="eight on one GPU are too many"),
    ],
)
def test_what_an_ask_by_memory_gets(fleet, full, asked, terms, expected):
    fill(fleet, *full)
    uid = ask(fleet, *asked, **terms)
    fleet.settle()
    found = got(fleet, uid)
    if expected is None:
        assert found is None
        assert why(fleet, uid).reason == "Waiting"
        return
    node, *profiles = expected
    assert sorted(found[1:]) == sorted(profiles)
    assert node in ("*", found[0])
    given = json.loads(fleet.pods[uid].metadata.annotations[names.GIVEN])
    assert given == {
        f"c{n}": {"asked": each, "profile": profiles[n], "gb": ProfileName.parse(profiles[n]).gb}
        for n, each in enumerate(asked)
        if isinstance(each, int)
    }


def test_what_it_got_is_said_and_its_charge_stays_what_it_asked_for(fleet):
    uid = ask(fleet, 11)
    fleet.settle()
    assert "1g.18gb for 11 GB at " in why(fleet, uid).message
    (allocation,) = fleet.spec(LARGE).allocations
    assert (allocation.profile, allocation.asked_gb) == ("1g.18gb", 11)
    free = fleet.dispatcher.state.capacities.free(LARGE)
    assert (free[names.MEMORY], free[names.ANY_SLICE]) == (143 - 11, 6)
    fleet.delete_pod(uid)
    fleet.settle()
    assert not fleet.spec(LARGE).allocations
    assert fleet.dispatcher.state.capacities.free(LARGE)[names.MEMORY] == 143


def test_a_pod_that_names_a_profile_has_none_of_this(fleet):
    uid = fleet.add_pod("1g.5gb")
    fleet.settle()
    assert names.GIVEN not in fleet.pods[uid].metadata.annotations
    assert fleet.spec(SMALL).allocations[0].asked_gb == 0


@pytest.mark.parametrize(
    "asked, terms, said",
    [
        pytest.param(
            [142], {}, "profile 142gb or more does not exist on any node (A100-40GB has 1g.5gb", id="no profile"
        ),
        pytest.param([5], {"floor": "8"}, "profile 5gb or more with 8g or more does not exist", id="no such compute"),
        pytest.param([5], {}, "1g.5gb wastes least for 5 GB: to take a larger slice", id="the tightest is taken"),
        pytest.param([5], {"fit": "loose"}, "is 'loose'; write tight", id="terms that cannot be read"),
        pytest.param([5] * 8, {}, "asks for 8 x 5gb or more on one node, and the GPUs of no node hold more", id="many"),
        pytest.param([5, 142], {}, "of no node hold more than 1 of the 2 slices", id="one of two has no profile"),
    ],
)
def test_why_it_waits(fleet, asked, terms, said):
    fill(fleet, SMALL)
    uid = ask(fleet, *asked, **terms)
    fleet.settle()
    assert said in why(fleet, uid).message


CORDON = "every node that could hold it is cordoned (a100-40, a100-80, h200): uncordon one, or add a node"


@pytest.mark.parametrize(
    "hinder, spec, said",
    [
        pytest.param(World.cordon, {}, CORDON, id="cordoned"),
        pytest.param(World.not_ready, {}, "no node that could hold it is available", id="not ready"),
        pytest.param(lambda *_: None, {"node_selector": {"zone": "b"}}, "has no label zone=b", id="another label"),
        pytest.param(lambda *_: None, {"cpu": "1000"}, "cpu: 1000 wanted, ", id="more CPU than a node has"),
    ],
)
def test_no_profile_is_said_to_be_missing_where_something_else_keeps_every_node_out(fleet, hinder, spec, said):
    for name in MODELS:
        hinder(fleet, name)
    uid = ask(fleet, 8, **spec)
    fleet.settle()
    message = why(fleet, uid).message
    assert said in message
    assert "does not exist" not in message


def test_unhealthy_gpus_are_named_to_a_pod_that_asks_by_memory(fleet):
    for name in MODELS:
        sick(fleet, name)
    uid = ask(fleet, 8)
    fleet.settle()
    assert why(fleet, uid).message.startswith("every GPU that has 1g.10gb is closed; ")


@pytest.mark.parametrize("terms", [{names.FIT: "loose"}, {names.COMPUTE_SLICES: "two"}])
def test_annotations_that_cannot_be_read_can_be_changed_without_a_new_pod(fleet, terms):
    fill(fleet, SMALL)
    uid = ask(fleet, 5)
    fleet.settle()
    annotate(fleet, uid, terms)
    fleet.settle()
    assert why(fleet, uid).reason == "BadRequest"
    assert "delete the pod" not in why(fleet, uid).message
    annotate(fleet, uid, {names.FIT: "any", names.COMPUTE_SLICES: "1"})
    fleet.settle()
    assert got(fleet, uid) == (MIDDLE, "1g.10gb")


def test_a_pod_that_takes_any_slice_is_not_told_to_take_any(fleet):
    fill(fleet, *MODELS)
    uid = ask(fleet, 5, fit="any")
    fleet.settle()
    assert names.FIT not in why(fleet, uid).message


# What changes while it waits -----------------------------------------------------------------------------------------


def test_one_that_takes_any_slice_does_not_wait_behind_one_that_does_not(fleet):
    fill(fleet, SMALL)
    strict, loose = ask(fleet, 5), ask(fleet, 5, fit="any")
    fleet.settle()
    assert (got(fleet, strict), got(fleet, loose)) == (None, (MIDDLE, "1g.10gb"))


def test_a_pod_that_waits_may_be_told_to_take_any_slice(fleet):
    fill(fleet, SMALL)
    uid = ask(fleet, 5)
    fleet.settle()
    assert got(fleet, uid) is None
    annotate(fleet, uid, {names.FIT: "any"})
    fleet.settle()
    assert got(fleet, uid) == (MIDDLE, "1g.10gb")


def cordon(world, node):
    world.cordon(node)


def uncordon(world, node):
    world.cordon(node, cordoned=False)


def sick(world, node, health=Health.UNHEALTHY):
    gpus = world.instaslices[node].status.gpus
    world.report(node, gpus=tuple(msgspec.structs.replace(each, health=health) for each in gpus))


def well(world, node):
    sick(world, node, Health.HEALTHY)


def without_agent(world, node):
    world.report(node, lease="agents")
    world.settle()
    world.dispatcher.set_silent_leases(frozenset({"agents"}))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(without_agent, id="without an agent"),
        pytest.param(cordon, id="cordoned"),
        pytest.param(World.not_ready, id="not ready"),
        pytest.param(World.remove_instaslice, id="without its object"),
        pytest.param(sick, id="with a sick GPU"),
    ],
)
def test_where_the_tightest_goes_the_next_one_is_the_tightest(fleet, change):
    fill(fleet, SMALL)
    uid = ask(fleet, 5)
    fleet.settle()
    assert got(fleet, uid) is None
    change(fleet, SMALL)
    fleet.settle()
    assert got(fleet, uid) == (MIDDLE, "1g.10gb")


def test_a_node_that_comes_brings_what_no_node_had(fleet):
    uid = ask(fleet, 142)
    fleet.settle()
    fleet.add_node("b200", model=models.named("B200-180GB"))
    fleet.settle()
    assert got(fleet, uid)[0] == "b200"


def test_only_nodes_that_the_pod_selects_count(fleet):
    uid = ask(fleet, 5, node_selector={"kubernetes.io/hostname": LARGE})
    fleet.settle()
    assert got(fleet, uid) == (LARGE, "1g.18gb")


def test_nor_those_that_are_too_small_for_it_otherwise(fleet):
    small = World()
    small.add_node("few-cpus", cpu="50m")
    small.add_node(MIDDLE, model=models.named("A100-80GB"))
    uid = ask(small, 5)
    small.settle()
    assert got(small, uid) == (MIDDLE, "1g.10gb")


def test_a_node_of_an_older_agent_which_does_not_advertise_such_slices_gets_none(fleet):
    world = World()
    world.add_node("older", **{names.ANY_SLICE: "0"})
    uid = ask(world, 5)
    world.settle()
    assert got(world, uid) is None
    world.add_node("newer", model=models.named("A100-80GB"))
    world.settle()
    assert got(world, uid) == ("newer", "1g.10gb")


def test_the_longest_waiting_gets_the_gpu_that_its_profile_needs(fleet):
    world = World(patience=10)
    world.add_node("a")
    small = [world.add_pod("1g.5gb") for _ in range(7)]
    world.settle()
    uid = ask(world, 40)
    world.wait(11)
    late = world.add_pod("1g.5gb")
    for each in small:
        world.delete_pod(each)
        world.settle()
    assert (got(world, uid), got(world, late)) == (("a", "7g.40gb"), None)


# Kills ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deeds", range(1, 8))
def test_a_controller_that_is_killed_at_any_moment_keeps_the_choice(deeds):
    world = World(seed=deeds)
    for node, model in MODELS.items():
        world.add_node(node, model=models.named(model))
    uid = ask(world, 11, 12, fit="any")
    for _ in range(deeds):
        if world.deeds():
            world.do(world.deeds()[0])
    written = [a.profile for a in world.spec(LARGE).allocations]
    world.begin()
    world.settle()
    assert got(world, uid) == (LARGE, "1g.18gb", "1g.18gb")
    assert written in ([], ["1g.18gb", "1g.18gb"])
    assert {name: each["asked"] for name, each in given_to(world, uid).items()} == {"c0": 11, "c1": 12}


def given_to(world, uid):
    return json.loads(world.pods[uid].metadata.annotations[names.GIVEN])


def test_a_choice_that_was_written_stays_though_a_tighter_one_becomes_free():
    world = World()
    world.add_node(MIDDLE, model=models.named("A100-80GB"))
    world.mute = {MIDDLE}
    uid = ask(world, 5)
    world.settle()
    world.add_node(SMALL)
    world.begin()
    world.mute = set()
    world.settle()
    assert got(world, uid) == (MIDDLE, "1g.10gb")


def test_two_slices_by_memory_are_found_again_each_for_its_container():
    """The object of the node was deleted, and its agent made another, which lists the slices in any order."""
    world = World()
    world.add_node("a")
    uid = ask(world, 5, 20)
    world.settle()
    thing = world.instaslices["a"]
    before = {a.container: (a.profile, a.asked_gb, a.start) for a in thing.spec.allocations}
    world.remove_instaslice("a")
    foreign = tuple(
        msgspec.structs.replace(each, id=each.mig_uuid, state=SliceState.FOREIGN)
        for each in reversed(thing.status.slices)
    )
    status = msgspec.structs.replace(thing.status, slices=foreign)
    world.change_instaslice(msgspec.structs.replace(thing, spec=InstasliceSpec(allocations=()), status=status))
    world.settle()
    assert world.on(uid) == "a"
    assert {a.container: (a.profile, a.asked_gb, a.start) for a in world.spec("a").allocations} == before
    assert before["c1"][:2] == ("3g.20gb", 20)


# Always --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_of_many_asks_none_gets_less_than_it_asked_for(seed):
    """50 each, in a cluster in which others come and go, and slices that nobody could have are waited for."""
    rng, world = Random(seed), World(seed)
    for number in range(2):
        for model in MODELS.values():
            world.add_node(f"{model.lower()}-{number}", model=models.named(model))
    asked, met = {}, set()
    for _ in range(50):
        gbs = [rng.choice([rng.randint(1, 20), rng.randint(1, 150)]) for _ in range(rng.choice([1, 1, 1, 2]))]
        floor = rng.choice([None, None, "1", "2", "3", "4", "7"])
        asked[ask(world, *gbs, fit=rng.choice([None, "tight", "any"]), floor=floor)] = gbs, int(floor or 0)
        for _ in range(rng.randint(0, 12)):
            if deeds := world.deeds():
                world.do(rng.choice(deeds))
        if rng.random() < 0.3:
            world.add_pod(rng.choice(["1g.5gb", "1g.5gb+me", "1g.10gb", "3g.71gb"]))
        if len(world.pods) > 12:
            world.delete_pod(rng.choice(list(world.pods)))
        if rng.random() < 0.05:
            world.begin()
        if rng.random() < 0.2:
            happens = rng.choice([cordon, uncordon, sick, well])
            happens(world, rng.choice(list(world.nodes)))
        if rng.random() < 0.3:
            world.settle()  # nobody waits then for what is there
            met |= _met(world, asked)
    world.settle()
    met |= _met(world, asked)
    assert len(met) >= 10


def _met(world, asked):
    """The pods that have slices, each of them enough, and told in the annotation."""
    met = set()
    for uid, (gbs, floor) in asked.items():
        found = got(world, uid)
        if not found or uid not in world.pods:
            continue
        given = given_to(world, uid)
        for number, (gb, profile) in enumerate(zip(gbs, found[1:], strict=True)):
            name = ProfileName.parse(profile)
            assert (name.gb >= gb, name.compute >= floor, name.extra) == (True, True, "")
            assert given[f"c{number}"] == {"asked": gb, "profile": profile, "gb": name.gb}
            met.add(uid)
    return met
