"""Writes a pod's condition and the Event that goes with it, at every turn of its lifecycle.

Gates go first: while pods wait for theirs, conditions are written at a pace that leaves the API server to them.

What a waiting pod waits for can change without any turn of its own: nodes are cordoned, another pod takes the memory.
So after each decision waiting requests are judged again, and a condition is written again if what is short has changed
and not only a number. Both have a bound per second, however many pods wait.
"""

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Final

from instaslice.api import names
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.feasible_nodes import without_numbers
from instaslice.controller.pod_condition import PodCondition, condition_of, substance_of
from instaslice.controller.pod_placer import PodPlacer
from instaslice.controller.work_queues import WorkQueues
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
WAITING_PAUSE, READY_PAUSE = 0.05, 0.5
"""Seconds between two conditions while pods wait for a gate: of pods that wait, and of pods that are ready. Some of
both are written each second, as a lasting load must not silence us."""
REVISE_PAUSE: Final = 1.0
"""Seconds from a decision to the next step of a revision, and between two steps."""
REVISE_STEP_SECONDS: Final = 0.02
"""After which a step ends, once its rounds have begun: how long everything else may have to wait for it."""
SHARE_OF_TIME: Final = 0.02
"""Of this process, at most, for judging again: a request of a pod that no node admits costs time for every node."""
MOST_REVISED: Final = 5
"""Conditions that are written again after one step."""
REVISED_AGAIN_SECONDS: Final = 10.0
"""Between two messages of one pod with the same reason: what is short can change with every pod that comes or ends."""
REVISION: Final = "revision"
"""The one key of a queue."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a pod's condition says: None where an earlier process wrote something else than we would."""

    substance: str | None
    at: float


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
        self._said: dict[str, Said] = {}
        """By the uid of a pod that waits."""
        self._outdated: set[str] = set()
        """Pods whose message is written again though the reason is the same."""
        self._revisions: Queue[str] = Queue(clock=clock)
        self._unrevised: dict[str, list[str]] = {}
        """By namespace the first pod of each request that is still to be judged in its round, the next one last. Each
        namespace has rounds of its own: one with thousands of requests does not delay the others."""
        self._versions: dict[str, int] = {}
        """Of the cluster's state when the last round of a namespace began."""
        self._resting_until = 0.0
        """When the pause after the last step is over."""

    def revise(self) -> None:
        """Something was decided or has changed: have what waiting pods say judged again. Safe to repeat."""
        # Not before the pause after the last step is over, however much changes meanwhile.
        self._revisions.add_after(REVISION, max(REVISE_PAUSE, self._resting_until - self._clock.monotonic()))

    def event(self, pod: Pod, condition: PodCondition) -> None:
        said = EventKey(reference(PODS, pod), condition.warning, condition.reason, "Slice", condition.message)
        self._recorder.record(said)

    async def run(self) -> None:
        waiting, ready = partial(self._paced, WAITING_PAUSE), partial(self._paced, READY_PAUSE)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(), name="record events")
            group.create_task(self._orders.waiting_conditions.work(waiting), name="conditions of waiting pods")
            group.create_task(self._orders.ready_conditions.work(ready), name="conditions of ready pods")
            group.create_task(self._revisions.work(self._revise), name="revise conditions")

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
        same_reason = before is not None and before.reason == found.reason
        if before is not None and same_reason and not self._is_news(uid, before.message, found):
            self._outdated.discard(uid)
            return
        # Another object, such as another node that makes the slices, is another wait.
        same = before is not None and same_reason and not found.message_matters
        since = before.last_transition_time if before is not None and same else None
        self.event(pod, found)
        condition = {
            "type": names.SLICE_READY,
            "status": "True" if found.ready else "False",
            "reason": found.reason,
            "message": found.message,
            "lastTransitionTime": (since or self._clock.now()).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.strategic_merge(PODS, key_of(pod), body, manager=names.CONTROLLER, subresource="status")
        except (NotFound, Conflict):
            return  # gone, or a new pod of that name
        self._outdated.discard(uid)
        self._said[uid] = Said(found.substance, self._clock.monotonic())

    def _is_news(self, uid: str, before: str, found: PodCondition) -> bool:
        """Whether a message is written though the reason stays the same."""
        said = self._said.get(uid)
        if said is None:
            # An earlier process wrote it. If it means something else a revision will write it: not all at once.
            same = without_numbers(before) == without_numbers(found.message)
            self._said[uid] = said = Said(found.substance if same else None, float("-inf"))
        if before == found.message or found.message_matters:
            return before != found.message
        return uid in self._outdated and said.substance != found.substance

    # Revise ---------------------------------------------------------------------------------------------------------

    async def _revise(self, _: str) -> float | None:
        """One step, one request of each namespace after the other; the seconds until the next."""
        began, left = self._clock.monotonic(), MOST_REVISED
        self._begin_rounds()
        # From here on, or nothing would ever be judged where so many wait that beginning takes as long.
        until, unfinished = self._clock.monotonic() + REVISE_STEP_SECONDS, bool(self._unrevised)
        while self._unrevised and left and self._clock.monotonic() < until:
            # To the end of the line: the next step goes on with the next one.
            namespace = next(iter(self._unrevised))
            heads = self._unrevised.pop(namespace)
            left -= self._revise_next(namespace, heads)
            if heads:
                self._unrevised[namespace] = heads
        now = self._clock.monotonic()
        pause = max(REVISE_PAUSE, (now - began) / SHARE_OF_TIME)
        self._resting_until = now + pause
        return pause if unfinished else None

    def _begin_rounds(self) -> None:
        """For namespaces whose last round has ended, and began before what is known now. Costs time for every request
        that waits, however they are spread over namespaces."""
        version = self._state.version
        waiting: defaultdict[str, list[str]] = defaultdict(list)
        for head in self._state.queue.heads():
            waiting[head.namespace].append(head.uid)
        for namespace, heads in waiting.items():
            if namespace not in self._unrevised and self._versions.get(namespace) != version:
                self._versions[namespace] = version
                self._unrevised[namespace] = heads[::-1]
        if not self._unrevised:
            # Nobody remembers those who are gone.
            self._versions = {each: known for each, known in self._versions.items() if each in waiting}
        self._said = {uid: said for uid, said in self._said.items() if uid in self._state.pods}
        self._outdated &= self._said.keys()

    def _revise_next(self, namespace: str, heads: list[str]) -> int:
        """Judge the next request of a namespace; how many conditions are written again: one at most."""
        head = heads.pop()
        if head not in self._state.queue:
            return 0  # placed meanwhile, which was a change
        try:
            substance = substance_of(self._state, self._placer, head)
        except Exception as error:
            self._state.quarantine.failed(f"revising the condition of pod {head}", error)
            return 0
        if substance is None:
            return 0
        now = self._clock.monotonic()
        for uid in self._state.queue.alike(head):
            said = self._said.get(uid)
            if said is None or said.substance == substance or uid in self._outdated:
                continue  # its condition is right, or on the way
            if now - said.at < REVISED_AGAIN_SECONDS:
                self._versions.pop(namespace, None)
                continue
            self._outdated.add(uid)
            self._orders.update_condition(uid)
            heads.append(head)  # others with this request may have to follow
            return 1
        return 0
