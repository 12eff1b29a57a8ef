"""The kubelet's side of a node: hands out seats, learns who took them, and puts each holder's own slice behind them.

The book of seats is written before the kubelet is answered, and a file of the runtime only when the holder is known.
A container that is started before that is refused by the runtime and tried again by the kubelet; one that is started
again later finds the same file, whether the agent runs or not.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import grpc.aio
import msgspec

from instaslice.agent import cdi, holdings, registration, resources
from instaslice.agent.cdi import Edits
from instaslice.agent.files import write_whole
from instaslice.agent.places import Places
from instaslice.agent.plugin import KUBELET, Devices, NoSlice, Plugin
from instaslice.agent.seats import Hold, Holder, Seat, SeatBook, profile_of, seat, unwell
from instaslice.agent.wiring import Wiring
from instaslice.api import names
from instaslice.api.instaslice import Allocation, PreparedSlice, SliceState
from instaslice.drivers import DriverError, GpuUuid, MigUuid, Slice
from instaslice.drivers.lanes import Lanes
from instaslice.errors import InstasliceError
from instaslice.geometry import Model, Placement
from instaslice.kube.clock import Clock

log = logging.getLogger(__name__)

SOON = 0.01
LATER = 1.0
"""Seconds between two questions who holds an open seat: at first, and at most."""
INIT_SECONDS = 0.1
"""After which a seat that the API names no holder for may be an init container's."""
NOBODYS_SECONDS = 60.0
"""After which an open seat without a holder is forgotten: the kubelet was killed before it took our answer."""
UNPROMISED_SECONDS = 5.0
"""After which a holder that was promised nothing is told of."""
GLANCE_SECONDS = 60.0


@dataclass(frozen=True)
class NodeGpu:
    """A GPU of the node, and why it is not well; empty when it is. Of one that was not `read` it is not known which
    slices are there."""

    uuid: str
    model: Model
    ill: str
    read: bool = True


class Seating:
    """One node. `settle` tells it what is promised and what is there; `run` does the rest."""

    def __init__(self, places: Places, wiring: Wiring, *, lanes: Lanes, clock: Clock) -> None:
        """Raises InstasliceError where the book cannot be read."""
        self._places = places
        self._wiring = wiring
        self._lanes = lanes
        self._clock = clock
        self._warn: Callable[[str], None] = log.warning
        self._listened: Callable[[], None] = lambda: None
        self._folder = cdi.Folder(places.cdi)
        self._book = SeatBook(_read(places))
        self._made: dict[Hold, tuple[Allocation, Slice]] = {}
        self._named: set[Hold] = set()
        """By allocations, also those that end."""
        self._unnamed: set[tuple[str, str, int]] = set()
        """GPU, profile and start of slices that no allocation names."""
        self._gpus: tuple[NodeGpu, ...] = ()
        self._plugins: dict[str, Plugin] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._offered = asyncio.Event()
        self._news = asyncio.Event()
        self._held: set[Seat] = set()
        """By the kubelet's last word."""
        self._opened: dict[Seat, float] = {}
        self._rounds: dict[Seat, int] = {}
        """How often each seat was handed out by this process: an answer older than that tells nothing of it."""
        self._edits: dict[Slice, Edits] = {}
        self._asked: set[Slice] = set()
        self._told: set[Seat] = set()

    # What the node tells it -----------------------------------------------------------------------------------------

    def settle(
        self, allocations: Sequence[Allocation], slices: Sequence[PreparedSlice], gpus: Sequence[NodeGpu]
    ) -> None:
        """What is promised, what is there and which GPUs are well. What is taken back loses its file at once: call it
        before a slice is destroyed, too. Where allocations are lost while their slices are there, as with the object of
        the node, files stay: containers may have to be started again."""
        there = {each.id: each for each in slices}
        made = {}
        for told in allocations:
            held = _slice(there.get(told.id))
            if told.wanted and held is not None:
                made[Hold.of(told)] = (told, held)
        named = set(map(Hold.of, allocations))
        unnamed = {(each.gpu, each.profile, each.start) for each in slices if each.state is SliceState.FOREIGN}
        now = made, named, unnamed, tuple(gpus)
        if now == (self._made, self._named, self._unnamed, self._gpus):
            return
        self._made, self._named, self._unnamed, self._gpus = now
        for each in self._folder.seats() - self._orphaned():
            hold = self._book.seats.get(each)
            if hold is None or hold not in made:
                self._folder.remove(each)
        self._show()
        self._news.set()

    @property
    def heard(self) -> bool:
        """Whether the kubelet knows what there is: it would refuse a pod that comes before."""
        return bool(self._plugins) and all(each.heard for each in self._plugins.values())

    @property
    def silence(self) -> str:
        """Why pods cannot start here, where the kubelet does not listen to us."""
        if self.heard:
            return ""
        socket = self._places.plugins / KUBELET
        return (
            f"no kubelet listens to our device plugins at {socket}: is it running, is that its folder (--kubelet-dir)?"
        )

    def holder(self, foreign: PreparedSlice) -> str:
        """The uid of the pod that holds a slice which no allocation names: the slice was put behind a seat for it, and
        the kubelet said last that the seat is held. Empty where there is no such pod."""
        place = foreign.gpu, foreign.profile, foreign.start
        holds = (hold for each, hold in self._book.seats.items() if each in self._held and hold is not None)
        return next((hold.pod for hold in holds if (hold.gpu, hold.profile, hold.start) == place), "")

    async def holders(self, slices: Sequence[Slice]) -> dict[Slice, str]:
        """Those of the slices that containers hold by the kubelet's word, promised or not, and who. Raises
        InstasliceError where the kubelet does not answer."""
        try:
            told = await holdings.listed(self._places.pods)
        except grpc.aio.AioRpcError as error:
            raise InstasliceError(f"no kubelet answers at {self._places.pods}: {error.details()}") from None
        return self._book.behind(slices, told)

    # What the kubelet asks ------------------------------------------------------------------------------------------

    def allocate(self, asked: Sequence[Seat]) -> list[str]:
        """Hand out seats to a container that is not known yet. Raises NoSlice."""
        for profile in {profile_of(each) for each in asked}:
            count = sum(profile_of(each) == profile for each in asked)
            free = self._book.free(profile, self._wanted, self._held - set(asked))
            if count > free:
                raise NoSlice(
                    f"{count} slice{'s' if count > 1 else ''} {profile} asked for and {free} there that no pod holds; "
                    "slices are made for pods that went through InstaSlice's webhook: create the pod again"
                )
        for each in asked:
            self._folder.remove(each)
            self._opened[each] = self._clock.monotonic()
            self._rounds[each] = self._rounds.get(each, 0) + 1
            self._told.discard(each)
        self._book.open(asked)
        self._write()
        self._news.set()
        return [cdi.device(each) for each in asked]

    # The work -------------------------------------------------------------------------------------------------------

    async def run(self, warn: Callable[[str], None], listened: Callable[[], None]) -> None:
        """Until cancelled. Nothing is offered before the first `settle`; `warn` tells people, `listened` that the
        kubelet listens to one more of our resources, or to one less."""
        self._warn, self._listened = warn, listened
        await self._offered.wait()
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._bind())
            serving: asyncio.Task[None] | None = None
            while True:
                # Again with GPUs of another model: the node was given another label, or another driver.
                await self._offered.wait()
                self._offered.clear()
                if serving is not None:
                    serving.cancel()
                    await asyncio.wait([serving])
                plugins = tuple(self._plugins.values())
                serving = self._tasks.create_task(registration.keep(self._places.plugins, plugins))

    async def _bind(self) -> None:
        wait = SOON
        while True:
            self._news.clear()
            unknown = await self._look()
            wait = min(LATER, wait * 1.5) if unknown else SOON
            try:
                async with asyncio.timeout(wait if unknown else GLANCE_SECONDS):
                    await self._news.wait()
                wait = SOON
            except TimeoutError:
                continue

    async def _look(self) -> bool:
        """Learn who holds what and act on it; whether there are seats whose holder has yet to be found."""
        rounds = dict(self._rounds)
        try:
            holders = await holdings.listed(self._places.pods)
        except grpc.aio.AioRpcError as error:
            log.info("the kubelet does not say who holds which slice: %s", error.details())
            self._put()
            return bool(self._book.opened())
        now = self._clock.monotonic()
        self._remember(holders, now)
        before, self._held = self._held, set(holders)
        if before != self._held and any(hold not in self._made for hold in self._book.seats.values() if hold):
            # The status says who holds what no allocation names.
            self._listened()
        # Handed out again while we asked: the answer may name the holder before.
        fresh = {each for each, count in self._rounds.items() if rounds.get(each, 0) != count}
        known = {each: who for each, who in holders.items() if each not in fresh}
        if self._book.bind(known, self._wanted):
            self._write()
        self._put()
        self._show()
        opened = self._book.opened()
        self._forget(opened - holders.keys(), now)
        self._explain({each: holders[each] for each in opened & holders.keys()}, now)
        return bool(self._book.opened())

    def _remember(self, holders: holdings.Holders, now: float) -> None:
        """Add the holders that the API leaves out: init containers."""
        late = {
            each
            for each in self._book.opened() - holders.keys()
            if now - self._opened.setdefault(each, now) >= INIT_SECONDS
        }
        if not late:
            return
        try:
            remembered = holdings.remembered(self._places.plugins)
        except msgspec.MsgspecError as error:
            self._warn_once(late, f"the kubelet's checkpoint cannot be read ({error}): init containers get no slices")
            return
        holders.update({each: remembered[each] for each in late & remembered.keys()})

    def _forget(self, unheld: set[Seat], now: float) -> None:
        gone = [each for each in unheld if now - self._opened.setdefault(each, now) >= NOBODYS_SECONDS]
        for each in gone:
            del self._book.seats[each]
        if gone:
            self._write()
        for each in self._opened.keys() - self._book.opened():
            del self._opened[each]

    def _explain(self, unpromised: Mapping[Seat, Sequence[Holder]], now: float) -> None:
        for each, (holder, *_) in unpromised.items():
            if now - self._opened.setdefault(each, now) >= UNPROMISED_SECONDS:
                self._warn_once(
                    {each},
                    f"{holder} asks for a slice {profile_of(each)} that it was not "
                    "promised, and will not start: create the pod again, through InstaSlice's webhook",
                )

    def _warn_once(self, seats: set[Seat], note: str) -> None:
        if seats - self._told:
            self._told |= seats
            self._warn(note)

    # Files and lists ------------------------------------------------------------------------------------------------

    def _put(self) -> None:
        """The files of all seats that are bound to a slice that is there."""
        files = {}
        for each, hold in self._book.seats.items():
            if hold is not None and hold in self._made:
                told, held = self._made[hold]
                edits = self._described(held)
                if edits is not None:
                    files[each] = self._file(each, told, edits)
        self._folder.become(files, keep=self._orphaned())
        there = {held for _, held in self._made.values()}
        self._edits = {held: edits for held, edits in self._edits.items() if held in there}

    def _orphaned(self) -> set[Seat]:
        """Seats that are bound to a slice that is there, or may be, and that no allocation names."""
        unread = {gpu.uuid for gpu in self._gpus if not gpu.read}

        def orphaned(hold: Hold) -> bool:
            may_be = hold.gpu in unread and hold not in self._named
            return may_be or (hold.gpu, hold.profile, hold.start) in self._unnamed

        return {each for each, hold in self._book.seats.items() if hold is not None and orphaned(hold)}

    def _described(self, held: Slice) -> Edits | None:
        """What its container needs; None until a driver that takes its time has said it."""
        if held not in self._edits and self._wiring.prompt:
            self._edits[held] = self._wiring.edits(held)
        elif held not in self._edits and held not in self._asked:
            assert self._tasks is not None
            self._asked.add(held)
            self._tasks.create_task(self._describe(held))
        return self._edits.get(held)

    async def _describe(self, held: Slice) -> None:
        try:
            self._edits[held] = await self._lanes.call(held.gpu, "describe a slice", partial(self._wiring.edits, held))
        except (DriverError, OSError) as error:
            self._warn(f"{held.placement} of GPU {held.gpu} cannot be given to its container: {error}")
            await self._clock.sleep(LATER)
        self._asked.discard(held)
        self._news.set()

    def _file(self, each: Seat, told: Allocation, edits: Edits) -> bytes:
        of_pod = [(a, held) for a, held in self._made.values() if a.pod.uid == told.pod.uid]
        number = next(n for n, (a, _) in enumerate(of_pod) if a == told)
        uuids = [str(held.mig_uuid) for a, held in of_pod if a.container == told.container]
        env = {
            **edits.env,
            # The same in every file of a container: where two devices set one variable, the runtime keeps the last.
            "INSTASLICE_MIG_UUIDS": ",".join(uuids),
            f"INSTASLICE_MIG_UUID_{number}": str(of_pod[number][1].mig_uuid),
            f"INSTASLICE_MIG_PROFILE_{number}": told.profile,
        }
        notes = {f"{names.GROUP}/allocation": told.id, f"{names.GROUP}/pod": f"{told.pod.namespace}/{told.pod.name}"}
        return cdi.specification(each, Edits(env, edits.nodes, edits.mounts, edits.hooks), notes)

    def _show(self) -> None:
        total = resources.total(gpu.model for gpu in self._gpus)
        ill = resources.total(gpu.model for gpu in self._gpus if gpu.ill)
        sick = {gpu.uuid for gpu in self._gpus if gpu.ill}
        if total.keys() != self._plugins.keys():
            self._offered.set()
        for gone in self._plugins.keys() - total.keys():
            del self._plugins[gone]
        for resource, count in total.items():
            memory = resource == names.MEMORY
            seats = [Seat(f"mem-{n}") if memory else seat(resource, n) for n in range(count)]
            bad = unwell(seats, ill.get(resource, 0), self._book.seats, sick)
            devices: Devices = {each: each not in bad for each in seats}
            if resource in self._plugins:
                self._plugins[resource].show(devices)
            else:
                allocate = _nothing if memory else self.allocate
                self._plugins[resource] = Plugin(
                    self._places.plugins, resource, devices, allocate, lambda: self._listened()
                )

    @property
    def _wanted(self) -> list[Allocation]:
        return [told for told, _ in self._made.values()]

    def _write(self) -> None:
        write_whole(self._places.book, msgspec.json.encode(self._book.seats))


def _nothing(_asked: Sequence[Seat]) -> list[str]:
    """Memory is counted, not given: it comes with the slice."""
    return []


def _read(places: Places) -> dict[Seat, Hold | None]:
    try:
        told = msgspec.json.decode(places.book.read_bytes(), type=dict[str, Hold | None])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise InstasliceError(f"{places.book} is no book of seats ({error}); remove it: it is made anew") from None
    return {Seat(each): hold for each, hold in told.items()}


def _slice(made: PreparedSlice | None) -> Slice | None:
    """The slice of a report, where it can be used."""
    if made is None or made.state is not SliceState.CREATED or made.mig_uuid is None or made.gi is None:
        return None
    placement = Placement(made.profile, made.start, made.size)
    return Slice(GpuUuid(made.gpu), placement, made.gi, made.ci, MigUuid(made.mig_uuid))
