"""Many nodes in one process: one watch on nodes, one on Instaslice objects, a queue of the nodes to look at.

A node is looked at by one worker at a time, so each object has one write in flight, and the next carries all that
has gathered meanwhile. An idle node costs nothing but a glance each minute.
"""

import asyncio
import logging
import random
from collections.abc import Coroutine, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from instaslice.agent import report
from instaslice.agent.machines import Control, Machines
from instaslice.agent.node import NodeAgent, capacity, unserved
from instaslice.agent.resources import advertised, correction
from instaslice.agent.seating import NodeGpu, Seating
from instaslice.agent.usage import in_use
from instaslice.agent.worker import Habits, Surroundings
from instaslice.api.instaslice import EMPTY_STATUS, INSTASLICES, Instaslice, InstasliceStatus, PreparedSlice
from instaslice.api.writing import CONCURRENT_WRITES, STATUS_COOLDOWN, UNTRACKED, cooldown
from instaslice.drivers.lanes import Lanes
from instaslice.errors import InstasliceError
from instaslice.kube.cache import Cache, freeze_heap
from instaslice.kube.client import Client, JsonOp, Selector
from instaslice.kube.clock import Clock
from instaslice.kube.core import NODES, Node, ObjectReference
from instaslice.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from instaslice.kube.events import EventKey, Recorder
from instaslice.kube.meta import Key
from instaslice.kube.queue import Queue
from instaslice.kube.watch import Reflector

log = logging.getLogger(__name__)

MANAGER = "instaslice-agent"
GLANCE_SECONDS = 60.0
"""Between two looks at hardware and status that nothing told us to take: somebody may have changed them by hand."""
LAZY_SECONDS = 5.0
"""Between two writes that nobody waits for, as which spec was seen: they would double our writes."""
RETRY_SECONDS = 1.0
WORKERS = 16
"""Nodes looked at side by side, which is to say: writes in flight."""


@dataclass
class Played:
    """A node that we play, and the last that we wrote of it; None where that is not known."""

    node: Node
    shape: Hashable
    agent: NodeAgent
    control: Control
    advertised: dict[str, str]
    object: str
    regarding: ObjectReference
    written: InstasliceStatus | None
    wrote: float
    free_at: float
    """When it may be written again."""
    glanced: float


class Fleet:
    """Serves all nodes that a selector finds, as they come and go. With `seating` it is the one node that we are on:
    its kubelet learns what there is from device plugins, where of others the node's status is written."""

    def __init__(
        self,
        client: Client,
        machines: Machines,
        *,
        selector: Selector,
        clock: Clock,
        rng: random.Random,
        habits: Habits | None = None,
        lanes: Lanes | None = None,
        seating: Seating | None = None,
    ) -> None:
        self._client = client
        self._machines = machines
        self._seating = seating
        self._clock = clock
        self._rng = rng
        self._habits = habits or Habits()
        self._lanes = lanes or Lanes()
        self._played: dict[str, Played] = {}
        self._queue: Queue[str] = Queue(clock=clock)
        self._tasks: asyncio.TaskGroup | None = None
        self._writing = asyncio.Semaphore(CONCURRENT_WRITES)
        self._recorder = Recorder(client, controller="gpu.das.com/agent", instance=MANAGER, clock=clock)
        self._nodes: Cache[Node] = Cache()
        self._objects: Cache[Instaslice] = Cache()
        # An object has the name of its node, and none of its labels.
        named = Selector(fields=selector.fields)
        self._reflectors = (
            Reflector(client, NODES, self._nodes, clock=clock, rng=rng, selector=selector),
            Reflector(client, INSTASLICES, self._objects, clock=clock, rng=rng, selector=named),
        )

    async def run(self) -> None:
        """Until cancelled. A task that fails ends it."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for reflector in self._reflectors:
                tasks.create_task(reflector.run())
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._machines.run())
            await self._nodes.synced()
            await self._objects.synced()
            freeze_heap()
            self._nodes.on_change(self._node_changed)
            self._objects.on_change(self._object_changed)
            log.info("serving %d nodes", len(self._nodes))
            if self._seating is not None:
                tasks.create_task(self._seating.run(self._unseated, self._listened))
            await self._queue.work(self._attend, workers=WORKERS)

    # What wakes a node ----------------------------------------------------------------------------------------------

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        self._queue.add(node.metadata.name)

    def _object_changed(self, old: Instaslice | None, new: Instaslice | None) -> None:
        # What we wrote ourselves comes back as a change of the status alone.
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            thing = new or old
            assert thing is not None
            self._queue.add(thing.metadata.name)

    def _listened(self) -> None:
        for name in self._played:
            self._queue.add(name)

    # One look at a node ---------------------------------------------------------------------------------------------

    async def _attend(self, name: str) -> float | None:
        """As `_reconcile`; a server that is away is asked again soon, while the waits of the queue grow for ever."""
        try:
            return await self._reconcile(name)
        except KubeError as error:
            wait = RETRY_SECONDS * (1 + self._rng.random())
            log.warning("node %s: %s; again in %.1f s", name, error, wait)
            return wait

    async def _reconcile(self, name: str) -> float | None:
        node, thing = self._nodes.get(Key("", name)), self._objects.get(Key("", name))
        if node is None:
            self._leave(name)
            return None
        if thing is None or _of_another(thing, node):
            await self._renew(node, thing)
            return None  # the watch brings the object back
        try:
            played = self._play(node, thing)
        except InstasliceError as error:
            return await self._refuse(node, thing, error)
        played.control.obey(node)
        self._glance(played, thing)
        played.agent.take(thing)
        # Before too: a slice that goes is taken from its container first.
        self._seat(played, thing)
        played.agent.advance()
        self._seat(played, thing)
        waits = [await self._report(played, node, thing), played.agent.again()]
        await self._advertise(node, played)
        waits.append(max(0.0, played.glanced + GLANCE_SECONDS - self._clock.monotonic()))
        return min(wait for wait in waits if wait is not None)

    def _play(self, node: Node, thing: Instaslice) -> Played:
        """The agent of the node; a new one where its machine, its shape or its object is another."""
        name, shape = node.metadata.name, self._machines.shape(node)
        played = self._played.get(name)
        if played is not None:
            if (played.node.metadata.uid, played.shape, played.object) == (
                node.metadata.uid,
                shape,
                thing.metadata.uid,
            ):
                return played
            self._stop(name)
        regarding = ObjectReference(
            api_version=INSTASLICES.api_version, kind=INSTASLICES.kind, name=name, uid=thing.metadata.uid
        )
        changed = partial(self._queue.add, name)
        driver, control = self._machines.machine(node, partial(self._warn, regarding), changed)
        # Before the agent reads it: a boot that was asked for while nobody was there has happened.
        control.obey(node)
        around = Surroundings(
            driver=driver,
            lanes=self._lanes,
            clock=self._clock,
            habits=self._habits,
            spawn=self._spawn,
            changed=changed,
            failed=partial(self._failed, regarding),
            in_use=partial(in_use, self._client, self._seating, name),
        )
        agent = NodeAgent(around, thing.status)
        played = self._played[name] = Played(
            node=node,
            shape=shape,
            agent=agent,
            control=control,
            advertised=advertised(agent.models),
            object=thing.metadata.uid,
            regarding=regarding,
            written=None if thing.status == EMPTY_STATUS else thing.status,
            wrote=0.0,
            free_at=0.0,
            glanced=self._clock.monotonic(),
        )
        return played

    def _glance(self, played: Played, thing: Instaslice) -> None:
        """Once in a while: is all as we think it is, on the hardware and in the object?"""
        now = self._clock.monotonic()
        if now - played.glanced < GLANCE_SECONDS:
            return
        played.glanced = now
        played.agent.look()
        if thing.status != played.written:
            played.written = None

    async def _report(self, played: Played, node: Node, thing: Instaslice) -> float | None:
        """Write what has changed; the seconds to wait where that can wait."""
        silence = self._seating.silence if self._seating is not None else ""
        status = played.agent.status(capacity(node), silence)
        if self._seating is not None:
            status = report.with_holders(status, self._seating.holder)
        ops = report.patch(played.written, status)
        if not ops:
            return None
        began = self._clock.monotonic()
        wait = self._pause(played, status, began)
        if wait > 0:
            return wait
        played.written = None  # until the server has said that it is
        await self._patch(thing, ops)
        played.written, played.wrote = status, self._clock.monotonic()
        played.free_at = played.wrote + cooldown(played.wrote - began, STATUS_COOLDOWN)
        return None

    def _pause(self, played: Played, status: InstasliceStatus, now: float) -> float:
        """How long a report may wait for company. One that leaves nothing under way goes at once: the next will not
        come before the controller writes again, which has gathered what it wants."""
        if not report.awaited(played.written, status):
            return played.wrote + LAZY_SECONDS - now
        return played.free_at - now if report.under_way(status) else 0.0

    async def _patch(self, thing: Instaslice, ops: list[JsonOp]) -> None:
        key = Key("", thing.metadata.name)
        # Of another object of that name, made since, it would not be true. It is refused, and tried again by when the
        # watch has told of that object.
        same = JsonOp(op="test", path="/metadata/uid", value=thing.metadata.uid)
        # One that is gone is no failure: the watch will say so.
        with suppress(NotFound):
            async with self._writing:
                await self._client.patch(INSTASLICES, key, [same, *ops], manager=MANAGER, subresource="status")

    def _seat(self, played: Played, thing: Instaslice) -> None:
        if self._seating is not None:
            agent, unread = played.agent, played.agent.unread
            gpus = [
                NodeGpu(uuid, model, ill, uuid not in unread)
                for (uuid, ill), model in zip(agent.ills.items(), agent.models, strict=True)
            ]
            self._seating.settle(thing.spec.allocations, agent.slices, gpus)

    async def _advertise(self, node: Node, played: Played) -> None:
        if self._seating is not None:
            return
        change = correction(node.status, played.advertised)
        if change:
            change["metadata"] = {"uid": node.metadata.uid}  # refused where it is another by now
            with suppress(NotFound):
                await self._client.merge(
                    NODES, Key("", node.metadata.name), change, manager=MANAGER, subresource="status"
                )

    async def _renew(self, node: Node, thing: Instaslice | None) -> None:
        """An empty object that goes when its node goes, in place of one of an earlier node of that name."""
        meta = node.metadata
        if thing is not None:
            try:
                await self._client.delete(INSTASLICES, Key("", meta.name), uid=thing.metadata.uid)
            except (NotFound, Conflict):
                return
        owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": meta.name, "uid": meta.uid}
        # Written out, because a struct would leave an empty spec away, which the controller replaces by a patch.
        new = {"metadata": {"name": meta.name, "ownerReferences": [owner]}, "spec": {"allocations": []}}
        with suppress(AlreadyExists):
            made = await self._client.create(INSTASLICES, new)
            same = JsonOp(op="test", path="/metadata/uid", value=made.metadata.uid)
            await self._client.patch(INSTASLICES, Key("", meta.name), [same, UNTRACKED], manager=MANAGER)

    async def _refuse(self, node: Node, thing: Instaslice, error: InstasliceError) -> float | None:
        """Say on the object why its node cannot be played; a changed label brings it back here."""
        self._stop(node.metadata.name)
        log.warning("node %s: %s", node.metadata.name, error)
        status = unserved(thing, str(error), self._clock.now())
        if status != thing.status:
            await self._patch(thing, report.patch(None, status))
        return None

    def _leave(self, name: str) -> None:
        if played := self._stop(name):
            self._machines.forget(played.node)

    def _stop(self, name: str) -> Played | None:
        played = self._played.pop(name, None)
        if played is not None:
            played.agent.end()
        return played

    # What goes wrong ------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        assert self._tasks is not None
        return self._tasks.create_task(work)

    def _unseated(self, note: str) -> None:
        for played in self._played.values():
            self._warn(played.regarding, "NoSlice", "Allocate", note)

    def _failed(self, regarding: ObjectReference, slice_: PreparedSlice) -> None:
        self._warn(regarding, "SliceFailed", "Create", f"{slice_.profile} at {slice_.start}: {slice_.reason}")

    def _warn(self, regarding: ObjectReference, reason: str, action: str, note: str) -> None:
        log.warning("%s: %s", regarding.name, note)
        self._recorder.record(EventKey(regarding, True, reason, action, note))


def _of_another(thing: Instaslice, node: Node) -> bool:
    """Whether it belongs to an earlier node of the same name."""
    owners = [each for each in thing.metadata.owner_references if each.kind == NODES.kind]
    return bool(owners) and all(each.uid != node.metadata.uid for each in owners)
