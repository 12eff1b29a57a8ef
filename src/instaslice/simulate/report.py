"""A comparison as data for programs, and as one HTML page that loads nothing from anywhere."""

from importlib import resources
from pathlib import Path

import msgspec

from instaslice.errors import BadInput
from instaslice.geometry import Placement, States
from instaslice.simulate.comparison import Comparison, Scenario
from instaslice.simulate.outcome import PolicyOutcome, RunHistory
from instaslice.simulate.summary import columns, headline, notes, profile_rows, profile_title, rows, seconds, waits


class Facts(msgspec.Struct):
    """What `-o json` prints. Times are milliseconds; `rules` are the latencies and the queue discipline."""

    fleet: str
    gpus: int
    memory_slices: int
    workload: str
    asked: dict[str, float]
    rules: dict[str, object]
    seeds: tuple[int, ...]
    policies: tuple[PolicyOutcome, ...]
    bounds: tuple[float, ...]


def facts(scenario: Scenario, found: Comparison) -> Facts:
    return Facts(
        fleet=str(scenario.plan),
        gpus=scenario.plan.gpus,
        memory_slices=scenario.plan.slices,
        workload=scenario.workload.title,
        asked=scenario.workload.asked,
        rules=scenario.rules._asdict(),
        seeds=scenario.seeds,
        policies=found.policies,
        bounds=found.bounds,
    )


class MapGpu(msgspec.Struct):
    """A GPU on the map: `geometry` numbers the entries of `Page.geometries`."""

    name: str
    geometry: int


class Geometry(msgspec.Struct):
    """Memory slices of a GPU, and for each state that occurs its slices as (profile, start, size)."""

    slices: int
    layouts: dict[int, list[Placement]]


class TimeSeries(msgspec.Struct):
    """One policy over time, a list for each quantity, all as long as `at`; `states` has one list for each time."""

    policy: str
    at: list[int]
    used: list[float]
    active: list[int]
    waiting: list[int]
    fragmentation: list[float]
    states: list[tuple[int, ...]]


class Bar(msgspec.Struct):
    """One policy: how long its bar is, of 1, with an interval around its end; and what stands beside it."""

    policy: str
    length: float
    plus_minus: float
    text: str


class ReportPage(msgspec.Struct):
    """All that the page is drawn from."""

    headline: str
    columns: list[str]
    rows: list[list[str]]
    profile_title: str
    profiles: list[list[str]]
    notes: list[str]
    bar_title: str
    bars: list[Bar]
    bound: float | None
    gpus_in_all: int
    gpus: list[MapGpu]
    geometries: list[Geometry]
    lines: list[TimeSeries]


def check(path: Path) -> None:
    """Whether a page can be written there, before minutes are spent on what is in it. Raises BadInput."""
    if path.is_dir():
        raise BadInput(f"{path} cannot be written: it is a folder")
    if not path.parent.is_dir():
        raise BadInput(f"{path} cannot be written: there is no folder {path.parent}")


def write(path: Path, scenario: Scenario, found: Comparison) -> None:
    """Write the page. Raises BadInput where the file cannot be written."""
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    # Inside a script element only `<` could end it; JSON may write it as an escape.
    data = msgspec.json.encode(_page(scenario, found)).decode().replace("<", "\\u003c")
    try:
        path.write_text(template.replace("{{data}}", data), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None


def _page(scenario: Scenario, found: Comparison) -> ReportPage:
    first = found.histories[0]
    geometries = list(dict.fromkeys(first.geometries))
    asked = sum(run.slices_asked for run in found.policies[0].runs)
    return ReportPage(
        headline=headline(scenario),
        columns=columns(scenario, found),
        rows=rows(scenario, found),
        profile_title=profile_title(scenario),
        profiles=profile_rows(scenario, found),
        notes=notes(scenario, found),
        bar_title="Mean wait" if waits(scenario) else "Memory slices given, of those asked for",
        bars=_wait_bars(found) if waits(scenario) else _slice_bars(found),
        bound=sum(found.bounds) / asked if found.bounds else None,
        gpus_in_all=scenario.plan.gpus,
        gpus=[MapGpu(name, geometries.index(of)) for name, of in zip(first.gpus, first.geometries, strict=True)],
        geometries=[Geometry(states.slices, _layouts(states, found.histories)) for states in geometries],
        lines=[
            _lines(each.policy, history, scenario.plan.slices)
            for each, history in zip(found.policies, found.histories, strict=True)
        ],
    )


def _slice_bars(found: Comparison) -> list[Bar]:
    shares = [(each.policy, each.summary["acceptance_by_slices"]) for each in found.policies]
    return [Bar(name, share.mean, share.plus_minus, f"{100 * share.mean:.1f} %") for name, share in shares]


def _wait_bars(found: Comparison) -> list[Bar]:
    means = [(each.policy, each.summary["wait_mean_ms"]) for each in found.policies]
    longest = max(wait.mean + wait.plus_minus for _, wait in means) or 1.0
    return [Bar(name, wait.mean / longest, wait.plus_minus / longest, seconds(wait.mean)) for name, wait in means]


def _layouts(states: States, histories: tuple[RunHistory, ...]) -> dict[int, list[Placement]]:
    seen = {
        state
        for history in histories
        for sample in history.samples
        for state, of in zip(sample.states, history.geometries, strict=True)
        if of is states
    }
    return {state: list(states.held(state)) for state in sorted(seen)}


def _lines(policy: str, history: RunHistory, slices: int) -> TimeSeries:
    samples = history.samples
    return TimeSeries(
        policy=policy,
        at=[sample.at for sample in samples],
        used=[round(sample.used / slices, 4) for sample in samples],
        active=[sample.active for sample in samples],
        waiting=[sample.waiting for sample in samples],
        fragmentation=[round(sample.fragmentation, 4) for sample in samples],
        states=[sample.states for sample in samples],
    )
