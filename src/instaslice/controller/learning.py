"""The placement policy learns from what pods ask for, and a restart of the controller does not forget it.

What was asked for is kept in a ConfigMap of our namespace, in slices by profile. It is a record, not a setting: without
it the policy starts over.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from math import nan
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
FORGETTABLE: Final = 0.1
"""The part of what is known that may be missing from the record: so a pod costs next to no write of it."""
MOST_SLICES: Final = 1e9
"""A larger number in the record is no number of slices, whoever wrote it."""


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
        self._saved: Mapping[str, float] = {}
        self._recalled = False
        """Whether the record was read. Until then it is not written, as that would replace what is there."""
        self._refused = ""
        """Why the record could last not be read or written."""
        self._known = 0
        """Arrivals of earlier processes."""

    async def recall(self) -> None:
        """Have the policy remember what arrived in earlier processes, beside what arrived since. Where the API server
        does not answer, `run` tries again: pods do not wait for this."""
        try:
            record = await self._client.get(CONFIG_MAPS, self._key)
        except NotFound:
            self._recalled = True
            return
        except KubeError as error:
            self._recalled = isinstance(error, Forbidden | Unreadable)
            self._warn(error)
            return
        self._recalled = True
        asked = asked_in(record)
        if asked:
            self._saved, self._known = asked, round(sum(asked.values()))
            self._policy.recall(dict(Counter(asked) + Counter(self._policy.asked)))

    async def run(self) -> None:
        """Learns after some tens of arrivals, then less and less often, in a quiet moment if one comes soon."""
        learn_at, waited = FIRST_TUNING, 0.0
        while True:
            before = self._arrivals
            await self._clock.sleep(QUIET_SECONDS)
            if self._arrivals >= learn_at:
                waited += QUIET_SECONDS
                quiet = self._arrivals == before and not self._queues.busy()
                if quiet or waited >= LONGEST_WAIT_SECONDS:
                    await self._learn()
                    learn_at, waited = next_tuning(self._arrivals), 0.0
            if self._recalled:
                await self._save()
            else:
                await self.recall()

    @property
    def _arrivals(self) -> int:
        return self._known + self._state.arrivals

    async def _learn(self) -> None:
        try:
            tuning = self._policy.tuning(self._state.ledger.fleet)
            if tuning is not None:
                # In a thread, which must not touch what the event loop goes on changing.
                adopt = await asyncio.to_thread(tuning.run)
                adopt()
        except Exception:
            # It would fail again in the next process, on the same record; and pods are placed well enough without.
            log.exception("the placement policy cannot learn from what pods asked for; it goes on as before")

    async def _save(self) -> None:
        asked = dict(self._policy.asked)
        if not _is_news(asked, self._saved) or not self._leads():
            return
        record = ConfigMap(metadata=ObjectMeta(namespace=self._key.namespace, name=self._key.name), data=data_of(asked))
        try:
            await self._client.apply(CONFIG_MAPS, record, manager=names.CONTROLLER, force=True)
        except KubeError as error:
            self._warn(error)
        else:
            self._saved = asked

    def _warn(self, error: KubeError) -> None:
        """Once: what only helps to place better is worth no more lines of the log."""
        if error.message != self._refused:
            self._refused = error.message
            log.warning("%s; until that changes, a restart of the controller forgets what pods asked for", error)


def _is_news(asked: Mapping[str, float], saved: Mapping[str, float]) -> bool:
    difference = sum(abs(asked.get(name, 0.0) - saved.get(name, 0.0)) for name in {**asked, **saved})
    return difference > FORGETTABLE * sum(saved.values())


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
        if name is not None and 0 < count <= MOST_SLICES:
            asked[str(name)] = count
        else:
            log.warning("configmap %s: %s: %s is no number of slices; left out", key_of(record), key, text[:80])
    return asked


def _name(text: str) -> ProfileName | None:
    try:
        return ProfileName.parse(text)
    except UnknownProfile:
        return None
