"""Writes a pod's condition and the Event that goes with it, at every turn of its lifecycle.

Gates go first: while pods wait for theirs, conditions are written at a pace that leaves the API server to them.
"""

import asyncio
import logging
from functools import partial

from instaslice.api import names
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.pod_condition import PodCondition, condition_of
from instaslice.controller.pod_placer import PodPlacer
from instaslice.controller.work_queues import WorkQueues
from instaslice.errors import InstasliceError
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.errors import Conflict, NotFound
from instaslice.kube.events import EventKey, Recorder, reference
from instaslice.kube.meta import key_of

log = logging.getLogger(__name__)

CONTROLLER = "gpu.das.com/controller"
WAITING_PAUSE, READY_PAUSE = 0.05, 0.5
"""Seconds between two conditions while pods wait for a gate: of pods that wait, and of pods that are ready. Some of
both are written each second, as a lasting load must not silence us."""


class ConditionWriter:
    def __init__(
        self, client: Client, state: ClusterState, placer: PodPlacer, orders: WorkQueues, *, clock: Clock, instance: str
    ) -> None:
        self._client = client
        self._state = state
        self._placer = placer
        self._orders = orders
        self._clock = clock
        self._recorder = Recorder(client, controller=CONTROLLER, instance=instance, clock=clock)

    def event(self, pod: Pod, condition: PodCondition) -> None:
        said = EventKey(reference(PODS, pod), condition.warning, condition.reason, "Slice", condition.message)
        self._recorder.record(said)

    async def run(self) -> None:
        waiting, ready = partial(self._paced, WAITING_PAUSE), partial(self._paced, READY_PAUSE)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(), name="record events")
            group.create_task(self._orders.waiting_conditions.work(waiting), name="conditions of waiting pods")
            group.create_task(self._orders.ready_conditions.work(ready), name="conditions of ready pods")

    async def _paced(self, pause: float, uid: str) -> None:
        if self._orders.busy():
            await self._clock.sleep(pause)
        try:
            await self._write(uid)
        except InstasliceError:
            raise
        except Exception as error:
            # Not by a condition of its own, or that would fail again and again.
            self._state.quarantine.failed(f"writing the condition of pod {uid}", error)

    async def _write(self, uid: str) -> None:
        found, pod = condition_of(self._state, self._placer, uid), self._state.pods.get(uid)
        if found is None or pod is None:
            return
        before = pod.condition(names.SLICE_READY)
        said_before = before is not None and before.reason == found.reason
        if before and said_before and (before.message == found.message or not found.message_matters):
            return
        self.event(pod, found)
        condition = {
            "type": names.SLICE_READY,
            "status": "True" if found.ready else "False",
            "reason": found.reason,
            "message": found.message,
            "lastTransitionTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.strategic_merge(PODS, key_of(pod), body, manager=names.CONTROLLER, subresource="status")
        except (NotFound, Conflict):
            return  # gone, or a new pod of that name
