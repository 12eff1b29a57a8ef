"""A comparison as data for programs, and as one HTML page that loads nothing from anywhere."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from instaslice import __version__
from instaslice.errors import BadInput
from instaslice.geometry import Placement, States
from instaslice.simulate.comparison import Comparison, Scenario
from instaslice.simulate.outcome import PolicyOutcome, RunHistory
from instaslice.simulate.settings import SimulationSettings, Value
from instaslice.simulate.sizing import NeededFleet, Target
from instaslice.simulate.summary import notes, profile_rows, profile_title, results, seconds, settings_rows, waited


class Facts(msgspec.Struct, kw_only=True):
    """What was simulated: `settings` are all flags that determine the result, `command` repeats it, `fleet` and
    `workload` say it in words, `asked` is the slices of each profile in an average pod, `pods_at_once` how many would
    run if none were refused, `load_met` the part of these that do on average, in so short a run. Times are
    milliseconds; `rules` are the latencies, the queue and the patience."""

    version: str
    command: str
    settings: Mapping[str, Value]
    fleet: str
    gpus: int
    memory_slices: int
    workload: str
    skipped: int
    asked: dict[str, float]
    pods_at_once: float | None
    load_met: float
    rules: dict[str, object]
    informed: bool
    seeds: tuple[int, ...]


class ComparisonFacts(Facts, kw_only=True):
    """What `-o json` prints."""

    policies: tuple[PolicyOutcome, ...]
    bounds: tuple[float, ...]


class SizingFacts(Facts, kw_only=True):
    """What `-o json` prints with --find-gpus."""

    target: Target
    needed: tuple[NeededFleet, ...]


def facts(scenario: Scenario, settings: SimulationSettings, found: Comparison) -> ComparisonFacts:
    return ComparisonFacts(**_simulated(scenario, settings), policies=found.policies, bounds=found.bounds)


def sizing_facts(
    scenario: Scenario, settings: SimulationSettings, target: Target, needed: tuple[NeededFleet, ...]
) -> SizingFacts:
    return SizingFacts(**_simulated(scenario, settings), target=target, needed=needed)


def _simulated(scenario: Scenario, settings: SimulationSettings) -> dict[str, Any]:
    return {
        "version": __version__,
        "command": settings.command,
        "settings": settings.values,
        "fleet": str(scenario.plan),
        "gpus": scenario.plan.gpus,
        "memory_slices": scenario.plan.slices,
        "workload": scenario.workload.title,
        "skipped": settings.skipped,
        "asked": scenario.workload.asked,
        "pods_at_once": scenario.workload.concurrent,
        "load_met": scenario.workload.load_met(scenario.rules.warm_up, scenario.workload.count),
        "rules": scenario.rules._asdict(),
        "informed": scenario.informed,
        "seeds": scenario.seeds,
    }


class MapGpu(msgspec.Struct):
    """A GPU on the map: `geometry` numbers the entries of `Page.geometries`."""

    name: str
    model: str
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

    settings: list[tuple[str, str]]
    command: str
    columns: list[tuple[str, str]]
    """Names with their meaning."""
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
        raise BadInput(f"--report {path} cannot be written: it is a folder")
    if not path.parent.is_dir():
        raise BadInput(f"--report {path} cannot be written: there is no folder {path.parent}")


def write(path: Path, scenario: Scenario, settings: SimulationSettings, found: Comparison) -> None:
    """Write the page. Raises BadInput where the file cannot be written."""
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    # Inside a script element only `<` could end it; JSON may write it as an escape.
    data = msgspec.json.encode(_page(scenario, settings, found)).decode().replace("<", "\\u003c")
    try:
        path.write_text(template.replace("{{data}}", data), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--report {path} cannot be written: {error.strerror}") from None


def _page(scenario: Scenario, settings: SimulationSettings, found: Comparison) -> ReportPage:
    first, table = found.histories[0], results(scenario, found)
    geometries = list(dict.fromkeys(first.geometries))
    asked = sum(run.slices_asked for run in found.policies[0].runs)
    return ReportPage(
        settings=[*settings_rows(scenario, settings), ("version", f"InstaSlice {__version__}")],
        command=settings.command,
        columns=table.columns,
        rows=table.rows,
        profile_title=profile_title(found),
        profiles=profile_rows(found),
        notes=notes(scenario, settings, found),
        bar_title="Mean wait" if waited(found) else "Memory slices given, of those asked for",
        bars=_wait_bars(found) if waited(found) else _slice_bars(found),
        bound=sum(found.bounds) / asked if found.bounds else None,
        gpus_in_all=scenario.plan.gpus,
        gpus=[
            MapGpu(name, model, geometries.index(of))
            for name, model, of in zip(first.gpus, first.models, first.geometries, strict=True)
        ],
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
