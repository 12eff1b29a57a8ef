"""The states that pods with slices have reached, each with the second at which it was first seen.

Pure: pods, Instaslice objects and the time come in, transitions come out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.table import Table
from rich.text import Text

from instaslice.api import names
from instaslice.api.instaslice import Allocation, Instaslice, PreparedSlice
from instaslice.api.pods import gated
from instaslice.api.reasons import PodReason
from instaslice.controller.lifecycle import Phase, phase_of
from instaslice.kube.core import Pod
from instaslice.kube.meta import Key, key_of

GATED: Final = "gated"
CREATING: Final = "creating"
CREATED: Final = "created"
UNGATED: Final = "ungated"
RUNNING: Final = "Running"
ENDED: Final = "ended"
RELEASED: Final = "released"
STATES: Final = (GATED, CREATING, CREATED, UNGATED, RUNNING, ENDED, RELEASED)
"""In the order in which a pod goes through them."""
WAITS: Final = "waits"
"""The transition of a gated pod whose reason to wait has changed."""


@dataclass
class PodTimeline:
    """One pod so far."""

    key: Key
    times: dict[str, float] = field(default_factory=dict)
    node: str = ""
    phase: str = ""
    had_slices: bool = False
    """Slices of the pod were seen; once there are none any more, they have been released."""
    waits: str = ""
    """Why it waits, as the controller says; empty when it does not."""

    @property
    def state(self) -> str:
        return next((state for state in reversed(STATES) if state in self.times), "")


@dataclass(frozen=True)
class Transition:
    """A pod was seen in a state for the first time, or its reason to wait has changed."""

    timeline: PodTimeline
    state: str
    at: float

    def __str__(self) -> str:
        pod = self.timeline
        texts = {WAITS: f"waits: {pod.waits}", RUNNING: f"Running on {pod.node}", ENDED: pod.phase}
        return f"pod {pod.key.name}: {texts.get(self.state, self.state)}"


class Timelines:
    """The timelines of all pods seen."""

    def __init__(self) -> None:
        self.pods: dict[Key, PodTimeline] = {}

    def update(self, pod: Pod, nodes: Iterable[Instaslice], at: float) -> list[Transition]:
        """Compare a pod with the Instaslice objects as they are now; return its new transitions, in order.

        Safe to repeat. A later state implies the earlier ones: two watches may report them in any order.
        """
        timeline = self.pods.setdefault(key_of(pod), PodTimeline(key_of(pod)))
        timeline.node = pod.spec.node_name or timeline.node
        timeline.phase = pod.status.phase
        slices = _slices(pod, nodes)
        timeline.had_slices = timeline.had_slices or bool(slices)
        reached = STATES.index(_reached(pod, slices, had_slices=timeline.had_slices))
        transitions: list[Transition] = []
        for state in STATES[: reached + 1]:
            if state not in timeline.times:
                timeline.times[state] = at
                transitions.append(Transition(timeline, state, at))
        condition = pod.condition(names.SLICE_READY)
        before, timeline.waits = timeline.waits, ""
        # `Creating` is not a wait: the condition of the pod may arrive before the object of its node.
        if (
            condition
            and condition.status == "False"
            and condition.reason != PodReason.CREATING
            and timeline.state == GATED
        ):
            timeline.waits = condition.message
        if timeline.waits and timeline.waits != before:
            transitions.append(Transition(timeline, WAITS, at))
        return transitions

    def between(self, one: tuple[Key, str], other: tuple[Key, str]) -> float:
        """Seconds from the state of one pod to that of another."""
        return self.pods[other[0]].times[other[1]] - self.pods[one[0]].times[one[1]]


def _slices(pod: Pod, nodes: Iterable[Instaslice]) -> list[tuple[Allocation, PreparedSlice | None]]:
    """The pod's allocations, each with what the agent reports of it."""
    found = []
    for node in nodes:
        mine = [each for each in node.spec.allocations if each.pod.uid == pod.metadata.uid]
        if mine:
            reported = {each.id: each for each in node.status.slices}
            found += [(each, reported.get(each.id)) for each in mine]
    return found


def _reached(pod: Pod, slices: Sequence[tuple[Allocation, PreparedSlice | None]], *, had_slices: bool) -> str:
    match phase_of(pod, slices):
        case Phase.DELETING:
            return ENDED
        case Phase.DELETED:
            return RELEASED if had_slices else ENDED
        case Phase.WAITING:
            return GATED
        case Phase.CREATED:
            return CREATED
        case _ if gated(pod):
            return CREATING
    return RUNNING if pod.status.phase == RUNNING else UNGATED


def table(pods: Iterable[PodTimeline], requested: Mapping[Key, str], colours: Mapping[Key, str]) -> Table:
    """One line per pod: when it was created, and how many seconds later it reached each further state."""
    rows = Table("POD", "SLICES", "NODE", "asked", *STATES[1:], box=None, padding=(0, 1, 0, 0), header_style="dim")
    for pod in pods:
        began = pod.times[GATED]
        later = [f"+{pod.times[state] - began:.2f}" if state in pod.times else "" for state in STATES[1:]]
        name = Text(pod.key.name, style=f"bold {colours.get(pod.key, 'white')}")
        ended = "red" if pod.phase == "Failed" else "green" if pod.phase == "Succeeded" else ""
        cells = [
            Text(text, style=ended if state == ENDED else "") for state, text in zip(STATES[1:], later, strict=True)
        ]
        rows.add_row(name, requested.get(pod.key, ""), pod.node, f"{began:.1f}", *cells)
    return rows


def waiting(pods: Iterable[PodTimeline]) -> list[Text]:
    """One line for each pod that says why it waits."""
    return [Text(f"pod {pod.key.name} waits: {pod.waits}", style="yellow") for pod in pods if pod.waits]
