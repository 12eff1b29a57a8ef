"""Explanations as text: one in lines, many in a table."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from instaslice.cli.terminal.ages import age
from instaslice.cli.terminal.kueue_lines import kueue_lines
from instaslice.cli.terminal.plain_table import table_lines
from instaslice.cli.terminal.plain_text import echo
from instaslice.controller.explanation import Explanation, Stage, WaitingPod
from instaslice.controller.slice_holders import Holder
from instaslice.kube.core import Pod
from instaslice.kueue.hold import KueueHold

MOST_NODES: Final = 4
"""Nodes or pods named on one line."""
MOST_HOLDERS: Final = 5
COLUMNS: Final = ("POD", "STAGE", "FOR", "ASKS FOR", "WHY")


def text(explanation: Explanation, now: datetime) -> None:
    """Print one."""
    since = age(explanation.since, now)
    echo(f"pod {explanation.pod}: {explanation.stage}{f', for {since}' if since else ''}")
    if explanation.asks:
        echo(f"  asks for  {_slices(explanation.asks)}")
    echo(f"  {explanation.message}")
    if explanation.kueue is not None:
        hold(explanation.kueue, now)
    for each in explanation.left_out:
        echo(f"  left out  {each}")
    for place in explanation.slices:
        gpu = f"GPU {place.index}" if place.index is not None else place.gpu
        uuid = f"  {place.mig_uuid}" if place.mig_uuid else ""
        where = f"{place.profile} at {place.start} of {gpu} on {place.node}"
        echo(f"  slice     {where}, for container {place.container}: {place.state}{uuid}")
    if explanation.stage is Stage.WAITING and not explanation.quoted:
        _waiting(explanation, now)


def hold(found: KueueHold, now: datetime) -> None:
    """Print what Kueue says, under a headline that is printed."""
    for line in kueue_lines(found, now):
        echo(line)


def ended(pods: Sequence[Pod]) -> None:
    """Print pods of a workload that have ended, in a line for each way to end."""
    by_phase: dict[str, list[str]] = {}
    for pod in pods:
        by_phase.setdefault(pod.status.phase, []).append(pod.metadata.name)
    for phase, names in sorted(by_phase.items()):
        echo(f"{len(names)} {phase}, slices released: {_some(names)}")


def table(waiting: Sequence[WaitingPod], now: datetime) -> None:
    """Print many, one line each."""
    for line in table_lines(COLUMNS, [waiting_row(each, now) for each in waiting]):
        echo(line)


def waiting_row(pod: WaitingPod, now: datetime) -> tuple[str, ...]:
    """One line of the table."""
    return (pod.pod, str(pod.stage), age(pod.since, now), _slices(pod.asks), _first_clause(pod.message))


def _waiting(explanation: Explanation, now: datetime) -> None:
    ahead = explanation.ahead
    echo(f"  queue     {f'{ahead} {_are(ahead)} ahead of it' if ahead else 'first'}")
    for why, nodes in explanation.nodes.items():
        echo(f"  not on    {_some(nodes)}: {why}")
    if explanation.could:
        echo(f"  could     {_some(explanation.could)} would hold it if nothing else ran there")
    elif explanation.could_later:
        echo(f"  could     {_some(explanation.could_later)} would hold it, uncordoned and ready")
    elif explanation.could_in_use:
        echo(f"  could     {_some(explanation.could_in_use)} would hold it, with its GPUs in use again")
    else:
        echo("  could     no node that admits it would hold it, even if empty")
    for holder in explanation.held_by[:MOST_HOLDERS]:
        echo(f"  held by   {_holder(holder, now)}")
    if (more := len(explanation.held_by) - MOST_HOLDERS) > 0:
        echo(f"  held by   {more} more: -o json names them")
    if explanation.rollout:
        echo(f"  rollout   {explanation.rollout}")


def _holder(holder: Holder, now: datetime) -> str:
    who = f"pod {holder.pod}" if holder.pod else "slices that InstaSlice did not create"
    owner = f" ({holder.owner})" if holder.owner else ""
    since = age(holder.since, now)
    ending = f"; it {holder.ending}, and its slices are about to be free" if holder.ending else ""
    return f"{who}{owner}: {_slices(holder.holds)} on {holder.node}{f', for {since}' if since else ''}{ending}"


def _are(count: int) -> str:
    return "pod is" if count == 1 else "pods are"


def _slices(asks: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {profile}" for profile, count in asks.items())


def _first_clause(message: str) -> str:
    """Up to the first semicolon that is not inside parentheses: the rest says what would help."""
    depth = 0
    for index, letter in enumerate(message):
        depth += (letter == "(") - (letter == ")")
        if letter == ";" and not depth:
            return message[:index]
    return message


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NODES
    return ", ".join(names[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")
