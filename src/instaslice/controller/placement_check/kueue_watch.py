"""Watches Kueue's workloads, AdmissionChecks and flavors, and writes what was decided.

Kueue may be missing, or come later: then nothing waits for it but this. What is written belongs to a version of the
workload: one that Kueue has changed since is read again first.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final, TypeVar

from instaslice.api import names
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.missing_permission import MissingPermission
from instaslice.controller.orders import Orders
from instaslice.controller.placement_check.decisions import PlacementCheck
from instaslice.controller.placement_check.retries import CheckDecision
from instaslice.controller.placement_check.workload_pods import updates
from instaslice.controller.quarantine import ObjectKind
from instaslice.errors import InstasliceError
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock, timeout
from instaslice.kube.errors import Conflict, Forbidden, KubeError, NotFound, Unreadable
from instaslice.kube.limits import Backoff
from instaslice.kube.meta import Key, Object, ObjectMeta, key_of
from instaslice.kube.queue import Queue
from instaslice.kube.resource import Resource
from instaslice.kube.watch import Reflector
from instaslice.kueue.objects import (
    ADMISSION_CHECKS,
    CHECK_ACTIVE,
    KUEUE_WORKLOADS,
    READY,
    RESOURCE_FLAVORS,
    AdmissionCheck,
    AdmissionCheckState,
    KueueWorkload,
    ResourceFlavor,
)

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)

WRITERS: Final = 8
STALE_SECONDS: Final = 0.2
"""Until the watch has brought what somebody else wrote."""
NOT_LEADING_SECONDS: Final = 1.0
KNOWN_SECONDS: Final = 10.0
"""Pods are not kept waiting for longer while Kueue's objects cannot be read."""
LONGEST_ABSENCE_SECONDS: Final = 60.0
"""Between two looks for a Kueue that is not installed."""


class KueueWatch:
    """`run` it while leading; `start` once everything else is known, and `known` has returned."""

    def __init__(
        self,
        client: Client,
        dispatcher: Dispatcher,
        orders: Orders,
        clock: Clock,
        rng: Random,
        *,
        leads: Callable[[], bool],
        hold_seconds: float,
    ) -> None:
        self.workloads: Cache[KueueWorkload] = Cache()
        self.checks: Cache[AdmissionCheck] = Cache()
        self.flavors: Cache[ResourceFlavor] = Cache()
        self.writes: Queue[str] = Queue(clock=clock)
        self.activations: Queue[Key] = Queue(clock=clock)
        self.check = PlacementCheck(dispatcher, orders, clock, self.writes.add, hold_seconds)
        self._client = client
        self._quarantine = dispatcher.state.quarantine
        self._clock = clock
        self._rng = rng
        self._leads = leads
        self._known = asyncio.Event()
        """Whether all objects are in the caches, or there are none to be had now."""
        self._missing = MissingPermission("--admission-check", clock)

    async def known(self) -> None:
        """Places that an earlier process held are held again before any pod is placed, if Kueue's objects can be read
        at all."""
        with suppress(TimeoutError):
            async with timeout(self._clock, KNOWN_SECONDS):
                await self._known.wait()

    def start(self) -> None:
        self.flavors.on_change(self._flavor_changed)
        self.checks.on_change(self._check_changed)
        self.check.start(list(self.workloads))
        self.workloads.on_change(self._workload_changed)

    async def run(self) -> None:
        """Until cancelled."""
        await self._installed()
        caches: dict[Resource[Any], Cache[Any]] = {
            KUEUE_WORKLOADS: self.workloads,
            ADMISSION_CHECKS: self.checks,
            RESOURCE_FLAVORS: self.flavors,
        }
        async with asyncio.TaskGroup() as group:
            for resource, cache in caches.items():
                group.create_task(self._watch(resource, cache), name=f"watch {resource.plural}")
            await asyncio.gather(*(cache.synced() for cache in caches.values()))
            self._known.set()
            group.create_task(self.writes.work(self._contained, workers=WRITERS), name="write admission checks")
            group.create_task(self.activations.work(self.activate), name="activate admission checks")

    async def _installed(self) -> None:
        """Return once the API server serves Kueue's kinds to us."""
        backoff = Backoff(clock=self._clock, rng=self._rng, most=LONGEST_ABSENCE_SECONDS)
        said = ""
        while True:
            try:
                await self._client.version(KUEUE_WORKLOADS)
            except NotFound as error:
                why = f"Kueue is not installed, or too old for --admission-check: {error}"
            except Forbidden as error:
                self._known.set()
                await self._clock.sleep(self._missing.report(error))
                continue
            except KubeError as error:
                why = f"--admission-check: {error}"
            else:
                if said:
                    log.info("Kueue's objects can be read now")
                return
            self._known.set()
            if why != said:
                log.warning("%s; tried again, at least every minute; pods are placed as without it", why)
                said = why
            await self._clock.sleep(backoff.next())

    async def _watch(self, resource: Resource[T], cache: Cache[T]) -> None:
        def unreadable(meta: ObjectMeta, error: Unreadable) -> None:
            if resource.kind == KUEUE_WORKLOADS.kind:
                self._quarantine.add(ObjectKind.WORKLOAD, meta.uid, error)
            else:
                log.warning("%s", error)

        await Reflector(self._client, resource, cache, clock=self._clock, rng=self._rng, unreadable=unreadable).run()

    # What the watches report ----------------------------------------------------------------------------------------

    def _workload_changed(self, old: KueueWorkload | None, new: KueueWorkload | None) -> None:
        if new is not None:
            self.check.workload_changed(new)
        elif old is not None:
            self.check.workload_gone(old.metadata.uid)

    def _check_changed(self, old: AdmissionCheck | None, new: AdmissionCheck | None) -> None:
        thing = new or old
        if thing is None or thing.spec.controller_name != names.PLACEMENT_CHECK:
            return
        name, known = thing.metadata.name, thing.metadata.name in self.check.checks
        if new is None:
            self.check.checks.discard(name)
        else:
            self.check.checks.add(name)
            self.activations.add(key_of(new))
        if known != (new is not None):
            for workload in self.workloads:
                self.check.workload_changed(workload)

    def _flavor_changed(self, old: ResourceFlavor | None, new: ResourceFlavor | None) -> None:
        if new is not None:
            self.check.flavors[new.metadata.name] = new
        elif old is not None:
            self.check.flavors.pop(old.metadata.name, None)

    # Write ----------------------------------------------------------------------------------------------------------

    async def _contained(self, uid: str) -> float | None:
        """What fails unexpectedly costs only this workload."""
        try:
            return await self.write(uid)
        except InstasliceError:
            raise
        except Exception as error:
            self.check.decisions.pop(uid, None)
            self._quarantine.add(ObjectKind.WORKLOAD, uid, error)
            return None

    async def write(self, uid: str) -> float | None:
        """Write what was decided of a workload, if that still holds. Returns the seconds after which to try again."""
        decision, workload = self.check.decisions.get(uid), self.check.workloads.get(uid)
        if decision is None or workload is None:
            return None
        if not self._leads():
            return NOT_LEADING_SECONDS
        meta = workload.metadata
        body = {
            # Of this version: on one that Kueue has evicted since, the answer would count for its next admission.
            "metadata": {"namespace": meta.namespace, "name": meta.name, "resourceVersion": meta.resource_version},
            "status": {
                "admissionChecks": [self._entry(each, decision, workload) for each in self.check.states(workload)]
            },
        }
        try:
            fresh = await self._client.apply(
                KUEUE_WORKLOADS, body, manager=names.CONTROLLER, force=True, subresource="status"
            )
        except NotFound:
            return None  # the watch will say so
        except Conflict:
            return STALE_SECONDS
        except Forbidden as error:
            return self._missing.report(error)
        self.workloads.refresh(fresh)
        return None

    def _entry(self, state: AdmissionCheckState, decision: CheckDecision, workload: KueueWorkload) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "name": state.name,
            "state": decision.state,
            "message": decision.message,
            "lastTransitionTime": self._now(),
        }
        if decision.state == READY:
            entry["podSetUpdates"] = updates(workload)
        elif decision.retry_seconds is not None:
            entry["requeueAfterSeconds"] = decision.retry_seconds
        return entry

    async def activate(self, key: Key) -> float | None:
        """Tell Kueue that somebody answers this check: until then its ClusterQueues admit nothing."""
        check = self.checks.get(key)
        if check is None:
            return None
        found = next((each for each in check.status.conditions or () if each.type == CHECK_ACTIVE), None)
        if found is not None and found.status == "True":
            return None
        if not self._leads():
            return NOT_LEADING_SECONDS
        condition = {
            "type": CHECK_ACTIVE,
            "status": "True",
            "reason": CHECK_ACTIVE,
            "message": "InstaSlice admits workloads when their slices can be placed",
            "lastTransitionTime": self._now(),
            "observedGeneration": check.metadata.generation,
        }
        body = {"metadata": {"name": key.name}, "status": {"conditions": [condition]}}
        try:
            await self._client.apply(ADMISSION_CHECKS, body, manager=names.CONTROLLER, force=True, subresource="status")
        except NotFound:
            return None
        except Forbidden as error:
            return self._missing.report(error)
        return None

    def _now(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
