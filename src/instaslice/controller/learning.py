"""The placement policy learns from what pods ask for, and a restart of the controller does not forget it.

What was asked for is kept in a ConfigMap of our namespace, in slices by profile. It is a record, not a setting: without
it the policy starts over.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Final

from instaslice.api import names
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.work_queues import WorkQueues
from instaslice.geometry import ProfileName, UnknownProfile
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import CONFIG_MAPS, ConfigMap
from instaslice.kube.errors import Forbidden, KubeError, NotFound, Unreadable
from instaslice.kube.meta import Key, ObjectMeta, key_of
from instaslice.placement.policy import FIRST_TUNING, Policy, next_tuning

log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 20.0
"""Without arrivals: a time for the policy to learn, which takes a second or more of the processor."""
LONGEST_WAIT_SECONDS: Final = 120.0
"""After which it learns although pods keep arriving."""
SAVE_SECONDS: Final = 60.0
"""Between two writes of the record."""


class Learning:
    """`recall` first, then `run`. `leads` is asked before the record is written."""

    def __init__(
        self,
        client: Client,
        policy: Policy,
        state: ClusterState,
        queues: WorkQueues,
        clock: Clock,
        *,
        namespace: str,
        leads: Callable[[], bool],
    ) -> None:
        self._client = client
        self._policy = policy
        self._state = state
        self._queues = queues
        self._clock = clock
        self._key = Key(namespace, names.DEMAND)
        self._leads = leads
        self._saved: Mapping[str, str] = {}
        self._save_at = clock.monotonic() + SAVE_SECONDS
        self._refused = ""
        """Why the record could last not be read or written."""
        self._known = 0
        """Arrivals of earlier processes."""

    async def recall(self) -> None:
        """Have the policy remember what arrived in earlier processes."""
        try:
            record = await self._client.get(CONFIG_MAPS, self._key)
        except NotFound:
            return
        except (Forbidden, Unreadable) as error:
            self._warn(error)
            return
        asked = asked_in(record)
        if asked:
            self._policy.recall(asked)
            self._saved, self._known = data_of(self._policy.asked), round(sum(self._policy.asked.values()))

    async def run(self) -> None:
        """Learns after some tens of arrivals, then less and less often, in a quiet moment if one comes soon."""
        learn_at, waited = FIRST_TUNING, 0.0
        if self._arrivals >= learn_at:
            await self._learn()
            learn_at = next_tuning(self._arrivals)
        while True:
            before = self._arrivals
            await self._clock.sleep(QUIET_SECONDS)
            if self._arrivals >= learn_at:
                waited += QUIET_SECONDS
                quiet = self._arrivals == before and not self._queues.busy()
                if quiet or waited >= LONGEST_WAIT_SECONDS:
                    await self._learn()
                    learn_at, waited = next_tuning(self._arrivals), 0.0
            if self._clock.monotonic() >= self._save_at:
                await self._save()

    @property
    def _arrivals(self) -> int:
        return self._known + self._state.arrivals

    async def _learn(self) -> None:
        tuning = self._policy.tuning(self._state.ledger.fleet)
        if tuning is not None:
            # In a thread, which must not touch what the event loop goes on changing.
            adopt = await asyncio.to_thread(tuning.run)
            adopt()

    async def _save(self) -> None:
        data = data_of(self._policy.asked)
        if data == self._saved or not self._leads():
            return
        self._save_at = self._clock.monotonic() + SAVE_SECONDS
        record = ConfigMap(metadata=ObjectMeta(namespace=self._key.namespace, name=self._key.name), data=data)
        try:
            await self._client.apply(CONFIG_MAPS, record, manager=names.CONTROLLER, force=True)
        except KubeError as error:
            self._warn(error)
        else:
            self._saved = data

    def _warn(self, error: KubeError) -> None:
        """Once: what only helps to place better is worth no more lines of the log."""
        if error.message != self._refused:
            self._refused = error.message
            log.warning("%s; what pods asked for is forgotten when the controller restarts", error)


def data_of(asked: Mapping[str, float]) -> dict[str, str]:
    """What was asked for as the data of a ConfigMap, whose keys may have no `+`."""
    named = {_name(profile): count for profile, count in sorted(asked.items())}
    return {name.resource: f"{count:.6g}" for name, count in named.items() if name is not None}


def asked_in(record: ConfigMap) -> dict[str, float]:
    """The reverse of `data_of`. An entry that cannot be read is left out, with a line in the log."""
    asked = {}
    for key, text in (record.data or {}).items():
        name = _name(key)
        try:
            count = float(text)
        except ValueError:
            count = nan
        if name is not None and 0 < count < inf:
            asked[str(name)] = count
        else:
            log.warning("configmap %s: %s: %s is no number of slices; left out", key_of(record), key, text[:80])
    return asked


def _name(text: str) -> ProfileName | None:
    try:
        return ProfileName.parse(text)
    except UnknownProfile:
        return None
