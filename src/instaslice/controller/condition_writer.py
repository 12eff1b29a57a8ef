"""Says on each pod what became of it: the condition SliceReady and an Event for every turn.

Nobody waits for words, so they come slower while somebody waits for a gate: slower to those that have what they asked
for than to those that do not know why they wait. A pod is told of by what is when its turn comes: what was overtaken
meanwhile is never written.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from instaslice.api import names
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.pod_condition import PodCondition, condition_of
from instaslice.errors import InstasliceError
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.errors import Conflict, NotFound
from instaslice.kube.events import EventKey, Recorder, reference
from instaslice.kube.meta import key_of
from instaslice.kube.queue import Queue

log = logging.getLogger(__name__)

CONTROLLER = "gpu.das.com/controller"
MANAGER = "instaslice-controller"
WHY_SECONDS = 0.05
WELL_SECONDS = 0.5
"""Between two pods that are told of while others wait for a gate, those that wait and those that are well: some a
second of each, as a lasting load must not silence us."""


class ConditionWriter:
    def __init__(
        self, client: Client, dispatcher: Dispatcher, busy: Callable[[], bool], *, clock: Clock, instance: str
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._busy = busy
        self._clock = clock
        self._why: Queue[str] = Queue(clock=clock)
        self._well: Queue[str] = Queue(clock=clock)
        self._recorder = Recorder(client, controller=CONTROLLER, instance=instance, clock=clock)

    def update(self, uid: str) -> None:
        """Have it said soon."""
        reservation = self._dispatcher.ledger.reservations.get(uid)
        well = reservation is not None and reservation.created and not reservation.ungate_refused
        (self._well if well else self._why).add(uid)

    def event(self, pod: Pod, said: PodCondition) -> None:
        self._recorder.record(EventKey(reference(PODS, pod), said.warning, said.reason, "Slice", said.message))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(), name="record events")
            group.create_task(self._why.work(partial(self._tell, WHY_SECONDS)), name="tell pods why")
            group.create_task(self._well.work(partial(self._tell, WELL_SECONDS)), name="tell pods that all is well")

    async def _tell(self, pause: float, uid: str) -> None:
        if self._busy():
            await self._clock.sleep(pause)
        try:
            await self._say(uid)
        except InstasliceError:
            raise
        except Exception as error:
            # Not told of itself, or it would be told of for ever.
            self._dispatcher.quarantine.failed(f"telling pod {uid} of its state", error)

    async def _say(self, uid: str) -> None:
        said, pod = condition_of(self._dispatcher, uid), self._dispatcher.pods.get(uid)
        if said is None or pod is None:
            return
        before = pod.condition(names.SLICE_READY)
        if (
            before is not None
            and before.reason == said.reason
            and (before.message == said.message or not said.message_matters)
        ):
            return
        self.event(pod, said)
        condition = {
            "type": names.SLICE_READY,
            "status": "True" if said.ready else "False",
            "reason": said.reason,
            "message": said.message,
            "lastTransitionTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.strategic_merge(PODS, key_of(pod), body, manager=MANAGER, subresource="status")
        except (NotFound, Conflict):
            return  # gone, or another of its name: nothing to say
