"""When a workload that was refused comes back: later and later, and others have its quota meanwhile.

That takes three writes. Kueue (0.18, 0.19) evicts a workload with a delay only when the delay is over, so it is Retry
without one first; once it is evicted, it gets the delay; and once Kueue has noted the time, it is Pending again, as it
would be evicted otherwise as soon as it has its quota.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Final

from instaslice.kube.clock import Clock
from instaslice.kube.limits import exponential_delay
from instaslice.kueue.objects import EVICTED, PENDING, RETRY, KueueWorkload

FIRST_RETRY_SECONDS: Final = 5
LONGEST_RETRY_SECONDS: Final = 300
"""Of a workload that no node could hold, always: nodes may join, so it is never Rejected, which nothing undoes."""


@dataclass(frozen=True, slots=True)
class CheckDecision:
    """What is to be written about a workload: Ready, Retry after so many seconds, or Pending."""

    state: str
    message: str
    retry_seconds: int | None = None


@dataclass(slots=True)
class DelayedRetry:
    """Of a workload that is to come back after a delay: what is written once it is evicted."""

    decision: CheckDecision
    over: float = inf
    """When the delay is; it begins when it is first to be written. Kueue may take longer to note it: one that is over
    by then is not written again, as it would be over again."""

    def done(self, workload: KueueWorkload, clock: Clock) -> bool:
        """Whether Kueue has noted when the workload comes back, or it may come back already."""
        requeue = workload.status.requeue_state
        noted = requeue is not None and requeue.requeue_at is not None and requeue.requeue_at > clock.now()
        return noted or clock.monotonic() >= self.over

    def to_write(self, workload: KueueWorkload, found: Collection[str], clock: Clock) -> CheckDecision | None:
        """`found` are the states of our checks. None while Kueue has to do something first."""
        if not workload.has(EVICTED):
            return None
        if self.done(workload, clock):
            return CheckDecision(PENDING, self.decision.message)
        if RETRY in found:
            return None
        self.over = min(self.over, clock.monotonic() + (self.decision.retry_seconds or 0))
        return self.decision


def retry_seconds(retries: int) -> int:
    """The delay after so many earlier ones."""
    return int(exponential_delay(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, retries))


def waited_seconds(retries: int) -> float:
    """How long a workload has been refused at least: Kueue counts how often, which no restart of ours forgets."""
    doubled = min(retries, 16)
    return sum(map(retry_seconds, range(doubled))) + (retries - doubled) * LONGEST_RETRY_SECONDS
