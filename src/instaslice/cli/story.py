"""What became of pods with slices, state by state, with the second at which each was seen.

Pure: pods, Instaslice objects and the time come in; who watches them decides what is done with the news.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.table import Table
from rich.text import Text

from instaslice.api import names
from instaslice.api.instaslice import Allocation, AllocationState, Instaslice, PreparedSlice, SliceState
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
"""News of one that is gated."""


@dataclass
class Life:
    """One pod so far."""

    key: Key
    times: dict[str, float] = field(default_factory=dict)
    node: str = ""
    phase: str = ""
    held: bool = False
    """Slices of it were seen; when there are none any more, it has given them back."""
    waits: str = ""
    """Why it waits, in the controller's words; empty when it does not."""

    @property
    def state(self) -> str:
        return next((state for state in reversed(STATES) if state in self.times), "")


@dataclass(frozen=True)
class News:
    """A pod was seen in a state for the first time, or says something new of its wait."""

    life: Life
    state: str
    at: float

    def __str__(self) -> str:
        life = self.life
        words = {WAITS: f"waits: {life.waits}", RUNNING: f"Running on {life.node}", ENDED: life.phase}
        return f"pod {life.key.name}: {words.get(self.state, self.state)}"


class Story:
    """The lives of the pods seen."""

    def __init__(self) -> None:
        self.lives: dict[Key, Life] = {}

    def see(self, pod: Pod, nodes: Iterable[Instaslice], at: float) -> list[News]:
        """Take in a pod beside the Instaslice objects as they are now; returns what is new, in order.

        Safe to repeat. A later state implies the earlier ones: two watches may tell of them in another order.
        """
        life = self.lives.setdefault(key_of(pod), Life(key_of(pod)))
        life.node = pod.spec.node_name or life.node
        life.phase = pod.status.phase
        slices = _slices(pod, nodes)
        life.held = life.held or bool(slices)
        reached = STATES.index(_reached(pod, slices, held=life.held))
        news: list[News] = []
        for state in STATES[: reached + 1]:
            if state not in life.times:
                life.times[state] = at
                news.append(News(life, state, at))
        told = pod.condition(names.SLICE_READY)
        # `Creating` is no wait, only told by the pod before its node tells of it.
        waiting = told is not None and told.status == "False" and told.reason != "Creating" and life.state == GATED
        waits = told.message if told and waiting else ""
        said, life.waits = life.waits, waits
        if waits and waits != said:
            news.append(News(life, WAITS, at))
        return news

    def between(self, one: tuple[Key, str], other: tuple[Key, str]) -> float:
        """Seconds from the state of one pod to that of another."""
        return self.lives[other[0]].times[other[1]] - self.lives[one[0]].times[one[1]]


def _slices(pod: Pod, nodes: Iterable[Instaslice]) -> list[tuple[Allocation, PreparedSlice | None]]:
    """What is promised to the pod, and what the agent has made of it. A slice that is destroyed is given back, whenever
    the controller strikes it off its list."""
    found = []
    for node in nodes:
        mine = [each for each in node.spec.allocations if each.pod.uid == pod.metadata.uid]
        if mine:
            reported = {each.id: each for each in node.status.slices}
            found += [(each, reported.get(each.id)) for each in mine]
    return [(mine, made) for mine, made in found if made is None or made.state is not SliceState.DELETED]


def _reached(pod: Pod, slices: Sequence[tuple[Allocation, PreparedSlice | None]], *, held: bool) -> str:
    if pod.ended:
        return ENDED if slices or not held else RELEASED
    if pod.status.phase == RUNNING:
        return RUNNING
    if not any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ()):
        return UNGATED
    wanted = [(mine, made) for mine, made in slices if mine.state is not AllocationState.DELETING]
    if wanted and all(made is not None and made.state is SliceState.CREATED for _, made in wanted):
        return CREATED
    return CREATING if wanted else GATED


def timetable(lives: Iterable[Life], asked: Mapping[Key, str], shades: Mapping[Key, str]) -> Table:
    """A line a pod: when it was asked for, and how many seconds after that it came into each further state."""
    table = Table("POD", "SLICES", "NODE", "asked", *STATES[1:], box=None, padding=(0, 1, 0, 0), header_style="dim")
    for life in lives:
        began = life.times[GATED]
        later = [f"+{life.times[state] - began:.2f}" if state in life.times else "" for state in STATES[1:]]
        name = Text(life.key.name, style=f"bold {shades.get(life.key, 'white')}")
        ended = "red" if life.phase == "Failed" else "green" if life.phase == "Succeeded" else ""
        cells = [
            Text(text, style=ended if state == ENDED else "") for state, text in zip(STATES[1:], later, strict=True)
        ]
        table.add_row(name, asked.get(life.key, ""), life.node, f"{began:.1f}", *cells)
    return table


def waiting(lives: Iterable[Life]) -> list[Text]:
    """A line for each pod that says why it waits."""
    return [Text(f"pod {life.key.name} waits: {life.waits}", style="yellow") for life in lives if life.waits]
