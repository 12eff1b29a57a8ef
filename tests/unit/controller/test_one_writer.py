"""A spec has one writer: what it does when it has no answer, and when it finds that there is another."""

import msgspec
import pytest
from fake_clock import FakeClock
from memory_server import Call, MemoryServer
from small_worlds import A100, GEOMETRY

from instaslice.api.instaslice import (
    INSTASLICES,
    AllocationState,
    GpuStatus,
    Health,
    Instaslice,
    InstasliceSpec,
    InstasliceStatus,
    PodRef,
    PreparedSlice,
    SliceState,
)
from instaslice.api.pods import NeededSlice
from instaslice.controller.errors import Deposed
from instaslice.controller.ledger import Ledger
from instaslice.controller.lifecycle import Phase
from instaslice.controller.spec_writer import SpecWriter
from instaslice.kube.errors import Conflict, Invalid, ServerError, Unreachable
from instaslice.kube.meta import ObjectMeta
from instaslice.placement import Demand, policies

GET, PATCH = Call("GET", "instaslices"), Call("PATCH", "instaslices")


class Desk:
    """One node, its object in a server, the ledger of a controller, and the specs that it writes."""

    def __init__(self):
        self.server, self.clock = MemoryServer(), FakeClock()
        gpu = GpuStatus(uuid="GPU-0", index=0, model=A100.name, health=Health.HEALTHY)
        self.status = InstasliceStatus(observed_generation=1, models=(GEOMETRY,), gpus=(gpu,))
        self.made = Instaslice(metadata=ObjectMeta(name="a"), status=self.status)
        self.begin()
        self.server.on_change(INSTASLICES, lambda old, new: self.specs.seen(old, new))
        self.there = self.server.put(INSTASLICES, self.made)
        self.ledger.update(self.there, 0.0)
        self.server.calls.clear()

    def begin(self):
        self.ledger = Ledger(policies.named("adaptive"))
        self.specs = SpecWriter(self.server.client(), self.ledger, "controller", self.clock)

    def reservation(self, uid):
        plan = self.ledger.placer.place(Demand(("1g.5gb",)))
        ref = PodRef(namespace="team", name=uid, uid=uid)
        self.ledger.reserve(ref, [NeededSlice("main", "1g.5gb")], plan, "x", 0.0)

    async def write(self):
        """Its turn, and again as long as it asks for one."""
        while (wait := await self.specs.write("a")) is not None:
            assert wait > 0
            self.clock.advance(wait)

    @property
    def written(self):
        """The pods in the object as the server has it."""
        (there,) = self.server.all(INSTASLICES)
        return [each.pod.name for each in there.spec.allocations]

    def another_writes(self, spec=None):
        (there,) = self.server.all(INSTASLICES)
        entry = {"id": "x", "container": "c", "profile": "1g.5gb", "gpu": "GPU-0", "start": 6, "size": 1}
        entry |= {"pod": {"namespace": "n", "name": "another's", "uid": "u"}, "state": "creating"}
        other = msgspec.convert({"allocations": [entry]}, InstasliceSpec)
        self.server.put(INSTASLICES, msgspec.structs.replace(there, spec=spec or other))

    def another_makes_it_anew(self):
        self.server.drop(INSTASLICES, self.there)
        self.server.put(INSTASLICES, self.made)


@pytest.fixture
def desk():
    return Desk()


async def test_what_was_promised_is_written_once(desk):
    """Its watch tells of it before there is an answer."""
    desk.reservation("p")
    await desk.write()
    await desk.write()
    assert desk.written == ["p"]
    assert desk.server.calls == [PATCH]


async def test_with_nothing_to_say_nothing_is_written(desk):
    await desk.write()
    await desk.specs.write("unknown")
    assert desk.server.calls == []


async def test_each_write_goes_by_the_one_before_and_reports_of_the_agent_are_in_nobodys_way(desk):
    for uid in ("p", "q"):
        desk.reservation(uid)
        await desk.write()
        (there,) = desk.server.all(INSTASLICES)
        busy = msgspec.structs.replace(there.status, boot_id=uid)
        desk.server.put(INSTASLICES, msgspec.structs.replace(there, status=busy))
    assert desk.written == ["p", "q"]
    assert desk.server.calls == [PATCH, PATCH]


@pytest.mark.parametrize(
    "carried_out, calls",
    [
        pytest.param(True, [PATCH, GET], id="it was carried out"),
        pytest.param(False, [PATCH, GET, PATCH], id="it was not"),
    ],
)
async def test_a_write_without_an_answer_is_looked_for_before_the_next(desk, carried_out, calls):
    desk.reservation("p")
    if carried_out:
        desk.server.lose_answer(*PATCH)
    else:
        desk.server.refuse("PATCH", "instaslices", Unreachable("no answer"))
    with pytest.raises(Unreachable):
        await desk.specs.write("a")
    await desk.write()
    assert desk.written == ["p"]
    assert desk.server.calls == calls
    desk.reservation("q")
    await desk.write()
    assert desk.written == ["p", "q"]


@pytest.mark.parametrize("status, error", [(500, ServerError), (409, Conflict)])
async def test_a_write_that_was_refused_is_looked_for_too(desk, status, error):
    desk.reservation("p")
    desk.server.refuse("PATCH", "instaslices", status)
    with pytest.raises(error):
        await desk.specs.write("a")
    await desk.write()
    assert desk.written == ["p"]


async def test_what_is_promised_while_there_is_no_answer_is_written_afterwards(desk):
    desk.reservation("p")
    desk.server.lose_answer(*PATCH)
    with pytest.raises(Unreachable):
        await desk.specs.write("a")
    desk.reservation("q")
    await desk.write()
    assert desk.written == ["p", "q"]
    assert desk.server.calls == [PATCH, GET, PATCH]


async def test_no_answer_to_the_look_either(desk):
    desk.reservation("p")
    desk.server.lose_answer(*PATCH)
    desk.server.refuse("GET", "instaslices", Unreachable("no answer"))
    for _ in range(2):
        with pytest.raises(Unreachable):
            await desk.specs.write("a")
    await desk.write()
    assert desk.server.calls == [PATCH, GET, GET]
    assert desk.written == ["p"]


async def test_an_object_that_another_wrote_meanwhile_is_not_overwritten(desk):
    desk.reservation("p")
    with desk.server.silent(), pytest.raises(Deposed, match="instaslice a: its spec was changed by another process"):
        desk.another_writes()
        await desk.specs.write("a")
    assert desk.written == ["another's"]


async def test_what_another_wrote_before_our_answer_came_is_noticed(desk, monkeypatch):
    desk.reservation("p")
    client = desk.specs._client
    patch = client.patch

    async def slow(*args, **more):
        answer = await patch(*args, **more)
        desk.another_writes()
        return answer

    monkeypatch.setattr(client, "patch", slow)
    with pytest.raises(Deposed, match="changed by another process"):
        await desk.write()


async def test_of_an_unanswered_write_and_another_hands_the_other_is_found(desk):
    desk.reservation("p")
    desk.server.refuse("PATCH", "instaslices", Unreachable("no answer"))
    with desk.server.silent():
        with pytest.raises(Unreachable):
            await desk.specs.write("a")
        desk.another_writes()
        with pytest.raises(Deposed):
            await desk.specs.write("a")
    assert desk.written == ["another's"]


async def test_a_refusal_that_is_about_something_else_is_told_and_tried_again(desk):
    desk.reservation("p")
    desk.server.refuse("PATCH", "instaslices", 422)
    with pytest.raises(Invalid):
        await desk.specs.write("a")
    await desk.write()
    assert desk.server.calls == [PATCH, GET, PATCH]
    assert desk.written == ["p"]


@pytest.mark.parametrize("told", [True, False])
async def test_an_object_that_is_gone_is_not_written(desk, told):
    desk.reservation("p")
    if told:
        desk.server.drop(INSTASLICES, desk.there)
        assert await desk.specs.write("a") is None
        assert desk.server.calls == []
    else:
        with desk.server.silent():
            desk.server.drop(INSTASLICES, desk.there)
            for _ in range(2):
                assert await desk.specs.write("a") is None
        assert desk.server.calls == [PATCH, PATCH], "none of them is looked for: it is known to be in vain"


async def test_an_unanswered_write_to_an_object_that_is_gone_is_given_up(desk):
    desk.reservation("p")
    desk.server.refuse("PATCH", "instaslices", Unreachable("no answer"))
    with desk.server.silent():
        with pytest.raises(Unreachable):
            await desk.specs.write("a")
        desk.server.drop(INSTASLICES, desk.there)
        assert await desk.specs.write("a") is None
    assert desk.server.calls == [PATCH, GET, PATCH]


async def test_an_object_that_was_made_anew_is_another_and_has_what_is_promised_written(desk):
    desk.reservation("p")
    await desk.write()
    desk.another_makes_it_anew()
    assert desk.written == []
    await desk.write()
    assert desk.written == ["p"]


async def test_an_object_that_was_made_anew_and_that_we_were_not_told_of_is_left_alone(desk):
    desk.reservation("p")
    await desk.write()
    desk.reservation("q")
    with desk.server.silent():
        desk.another_makes_it_anew()
        for _ in range(2):
            with pytest.raises(Invalid):
                await desk.specs.write("a")
    assert desk.written == []


def thing(generation, uid="1", **status):
    return Instaslice(
        metadata=ObjectMeta(name="a", uid=uid, generation=generation), status=InstasliceStatus(3, **status)
    )


@pytest.mark.parametrize(
    "later, deposed",
    [
        pytest.param(thing(3, boot_id="two"), False, id="a report"),
        pytest.param(thing(2), False, id="an older version"),
        pytest.param(thing(4), True, id="another spec"),
        pytest.param(thing(4, uid="2"), False, id="another object"),
    ],
)
def test_a_spec_that_somebody_else_wrote_ends_the_term(desk, later, deposed):
    desk.specs.seen(None, thing(3))
    if deposed:
        with pytest.raises(Deposed, match="instaslice a: its spec was changed by another process"):
            desk.specs.seen(thing(3), later)
    else:
        desk.specs.seen(thing(3), later)


def test_after_it_was_gone_any_generation_is_new(desk):
    desk.specs.seen(None, thing(3))
    desk.specs.seen(thing(3), None)
    desk.specs.seen(None, thing(9))


async def test_states_that_only_people_read_are_written_too(desk):
    desk.reservation("p")
    await desk.write()
    (promised,) = desk.ledger.nodes["a"].spec().allocations
    made = PreparedSlice(promised.id, "GPU-0", "1g.5gb", promised.start, 1, SliceState.CREATED, mig_uuid="MIG-1")
    desk.ledger.update(msgspec.structs.replace(desk.there, status=InstasliceStatus(1, **reported(desk, made))), 1.0)
    assert desk.ledger.reservations["p"].show(Phase.CREATED)
    await desk.write()
    (there,) = desk.server.all(INSTASLICES)
    assert [each.state for each in there.spec.allocations] == [AllocationState.CREATED]


def reported(desk, *slices):
    return {"models": desk.status.models, "gpus": desk.status.gpus, "slices": slices}
