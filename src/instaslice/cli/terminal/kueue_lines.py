"""Why Kueue holds a workload, as lines of text under what it holds."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from instaslice.cli.terminal.ages import age
from instaslice.kueue.hold import KueueHold
from instaslice.kueue.quota_standing import QuotaHolder, QuotaStanding

MOST_HOLDERS: Final = 5
FIRST_ONLY: Final = "StrictFIFO"


def kueue_lines(hold: KueueHold, now: datetime) -> Iterator[str]:
    """What `explain` prints of a hold, behind its headline."""
    if hold.workload:
        owner = f" ({hold.owner})" if hold.owner else ""
        since = age(hold.since, now)
        yield f"  kueue     Workload {hold.workload}{owner}: {hold.state}{f', for {since}' if since else ''}"
    if hold.local_queue:
        to = f" -> ClusterQueue {hold.cluster_queue}" if hold.cluster_queue else ""
        cohort = f", cohort {hold.cohort}" if hold.cohort else ""
        yield f"  queue     LocalQueue {hold.local_queue}{to}{cohort}"
    if hold.position is not None:
        yield f"  position  {hold.position} of {hold.pending} in ClusterQueue {hold.cluster_queue}{_ahead(hold)}"
    elif hold.pending:
        where = f"{hold.pending} wait in ClusterQueue {hold.cluster_queue}"
        yield f"  position  {where}; who is next depends on what its LocalQueues have used"
    if hold.evicted:
        yield f"  evicted   {age(hold.evicted_at, now) or 'some time'} ago, {hold.evicted}"
    if hold.requeue_at is not None and hold.requeue_at > now:
        yield f"  requeued  in {age(now, hold.requeue_at)}, at {hold.requeue_at.isoformat(timespec='seconds')}"
    if hold.requests:
        yield f"  requests  {_amounts(hold.requests)}"
    for quota in hold.quotas:
        yield f"  quota     {_quota(quota)}"
    for each in hold.held_by[:MOST_HOLDERS]:
        yield f"  held by   {_holder(each, now)}"
    if (more := len(hold.held_by) - MOST_HOLDERS) > 0:
        yield f"  held by   {more} more: -o json names them"
    for check in hold.checks:
        since = age(check.since, now)
        message = f": {check.message}" if check.message else ""
        yield f"  check     {check.name} is {check.state}{f', for {since}' if since else ''}{message}"
    for note in hold.not_read:
        yield f"  left out  {note}"


def _ahead(hold: KueueHold) -> str:
    rule = "the first keeps all others back" if hold.strategy == FIRST_ONLY else "whoever fits passes"
    more = (hold.position or 1) - 1 - len(hold.ahead)
    named = ", ".join(hold.ahead) + (f" and {more} more" if more > 0 else "")
    return f"{f', behind {named}' if named else ''} ({rule})" if hold.pending > 1 else ""


def _quota(quota: QuotaStanding) -> str:
    borrowed = f", {quota.borrowed} of it borrowed" if quota.borrowed != "0" else ""
    limit = f", may borrow {quota.borrowing_limit}" if quota.borrowing_limit is not None else ""
    text = f"{quota.resource} of flavor {quota.flavor}: {quota.used} of {quota.nominal} in use{borrowed}{limit}"
    if quota.cohort_queues > 1:
        of_all = f"{quota.cohort_used} of {quota.cohort_nominal}"
        text += f"; {of_all} in all {quota.cohort_queues} ClusterQueues of cohort {quota.cohort}"
    return text


def _holder(holder: QuotaHolder, now: datetime) -> str:
    since = age(holder.since, now)
    owner = f" ({holder.owner})" if holder.owner else ""
    held = f"{_amounts(holder.holds)} of ClusterQueue {holder.cluster_queue}"
    return f"Workload {holder.workload}{owner}: {held}{f', for {since}' if since else ''}"


def _amounts(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())
