"""`instaslice simulate`: what a fleet would do with a workload, by the placement code that runs in the controller."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from instaslice.cli.terminal.finite_range import FiniteRange
from instaslice.cli.terminal.given_flags import given
from instaslice.cli.terminal.late_progress import LateProgress
from instaslice.errors import BadInput
from instaslice.placement import policies
from instaslice.placement.longest_waiting import PATIENCE
from instaslice.simulate import alibaba, bound, fleets, migbench, mixes, report, sizing, summary, void_flags, workloads
from instaslice.simulate.comparison import Scenario, compare
from instaslice.simulate.fleets import FleetPlan
from instaslice.simulate.fractions import FractionAs
from instaslice.simulate.jobs import Trace
from instaslice.simulate.settings import SimulationSettings, Value
from instaslice.simulate.simulation import QueueDiscipline, Rules
from instaslice.simulate.void_flags import Combination, PodSource

EXAMPLES = """\b
Examples:
  instaslice simulate                                       our policy on 13 nodes of 8 A100-40GB at load 1.0
  instaslice simulate --policy all --seeds 5                every policy on the same pods, with intervals
  instaslice simulate --fleet 4x8xH100-80GB-SXM5 --fleet 2x4xA30 --mix small --load 0.9
  instaslice simulate --mix 1g.5gb=6,3g.20gb=2,2x7g.40gb=1 --queue backfill --load 0.93
  instaslice simulate --fill --load 1.05 --policy all       nothing ends: how full it gets
  instaslice simulate --trace jobs.jsonl --create-ms 250 --destroy-ms 100 --policy dra --policy adaptive
  instaslice simulate --trace pods.csv --fraction-as compute --resample --load 1.0
  instaslice simulate --bound --pods 5000 --report out.html  the bound on any policy, and a page with charts
  instaslice simulate --find-gpus --target 99%              the nodes with which 99 % of that demand find room

\b
Columns, each where it says something:
""" + "\n".join(f"  {name:<15}{meaning}" for name, meaning in summary.MEANINGS.items())

FLEET = "13x8xA100-40GB"
MOST_SEEDS = 1000
MIXES = ", ".join(mixes.names())
POLICIES = ", ".join(policies.names())
MS = click.IntRange(0)


class Patience(FiniteRange):
    """Seconds, or `never`, which is None."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return None if value == "never" else super().convert(value, param, ctx)


@click.command(epilog=EXAMPLES)
@click.option("--fleet", "flags", multiple=True, metavar="NxGxMODEL", help=f"N nodes of G GPUs; repeatable.  [{FLEET}]")
@click.option("--fleet-file", type=click.Path(path_type=Path), metavar="JSON", help="The fleet from a file instead.")
@click.option("--profiles", metavar="P,P,…", help="Allow only these profiles on GPUs given by --fleet.")
@click.option("--mix", default="uniform", show_default=True, help=f"{MIXES}; or like 1g.5gb=4,2x2g.10gb=1.")
@click.option(
    "--load",
    type=FiniteRange(0, workloads.MOST_LOAD, min_open=True),
    default=1.0,
    show_default=True,
    help="1.0 is what fits when packing is ideal.",
)
@click.option(
    "--pods",
    type=click.IntRange(1, workloads.MOST_PODS),
    help=f"How many arrive.  [{workloads.PODS}, or as many more as the load needs]",
)
@click.option(
    "--life",
    type=FiniteRange(0, min_open=True),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Mean life of a pod.",
)
@click.option(
    "--lives",
    type=click.Choice(list(workloads.LIVES)),
    default="exponential",
    show_default=True,
    help="How lives spread around the mean.",
)
@click.option("--fill", is_flag=True, help="Pods never end; as many come as --load times what fits.")
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Pods from a .csv or .jsonl file.")
@click.option(
    "--fraction-as",
    type=click.Choice([each.value for each in FractionAs]),
    default=FractionAs.MEMORY.value,
    show_default=True,
    help="What a fraction of a GPU in a .csv trace is a fraction of.",
)
@click.option("--resample", is_flag=True, help="Draw pods from the trace at --load, not at its own times.")
@click.option(
    "--queue",
    type=click.Choice([each.value for each in QueueDiscipline]),
    help="What happens to a pod that does not fit: rejected, waits in strict order, or waits while others pass.  "
    "[backfill for a trace, else none]",
)
@click.option(
    "--patience",
    type=Patience(0),
    default=PATIENCE,
    show_default=True,
    metavar="SECONDS|never",
    help="With backfill, how long the first in the queue lets others pass before GPUs are reserved for it.",
)
@click.option("--create-ms", type=MS, default=0, show_default=True, help="Time to create a pod's slices.")
@click.option("--destroy-ms", type=MS, default=0, show_default=True, help="Time to destroy them.")
@click.option("--warm-up", type=FiniteRange(0, 0.9), help="Part of the pods not counted.  [0.2; trace, fill: 0]")
@click.option("--policy", "names", multiple=True, help=f"Repeatable: all, {POLICIES}.  [{policies.DEFAULT}]")
@click.option("--unknown-mix", is_flag=True, help="Policies know nothing beforehand and learn as pods arrive.")
@click.option("--moves", type=click.IntRange(0), default=0, show_default=True, help="Most slices moved to make room.")
@click.option(
    "--movable", type=FiniteRange(0, 1), default=1.0, show_default=True, help="Part of the pods that may be moved."
)
@click.option("--seed", default=1, show_default=True, help="The first seed.")
@click.option(
    "--seeds", type=click.IntRange(1, MOST_SEEDS), default=1, show_default=True, help="How many, each on its own pods."
)
@click.option("--find-gpus", is_flag=True, help="Find how many nodes of the last --fleet the same demand needs.")
@click.option(
    "--target",
    metavar="99%|60s",
    help="What --find-gpus reaches: the part of the memory that finds room or, with a queue, the wait that 95 % of the "
    "pods do not exceed.  [99% without a queue]",
)
@click.option("--bound", "with_bound", is_flag=True, help="Also what no policy could exceed (extra `bound`).")
@click.option("--report", "page", type=click.Path(path_type=Path), metavar="HTML", help="Write a page with charts.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@click.pass_context
def command(
    ctx: click.Context,
    flags: tuple[str, ...],
    fleet_file: Path | None,
    profiles: str | None,
    mix: str,
    load: float,
    pods: int | None,
    life: float,
    lives: str,
    fill: bool,
    trace: Path | None,
    fraction_as: str,
    resample: bool,
    queue: str | None,
    patience: float | None,
    create_ms: int,
    destroy_ms: int,
    warm_up: float | None,
    names: tuple[str, ...],
    unknown_mix: bool,
    moves: int,
    movable: float,
    seed: int,
    seeds: int,
    find_gpus: bool,
    target: str | None,
    with_bound: bool,
    page: Path | None,
    output: str,
    as_json: bool,
) -> None:
    """Run pods through a fleet, and report how many fitted, how long they waited and how full it was.

    Exact and repeatable: the same flags print the same numbers. Nothing is started and no cluster is needed.
    """
    source = _source(fill, trace, resample)
    discipline = QueueDiscipline(queue or ("backfill" if source is PodSource.REPLAY else "none"))
    chosen = tuple(dict.fromkeys(names)) or (policies.DEFAULT,)
    for name in chosen:
        _known_policy(name)
    void_flags.refuse(Combination(given(ctx), source, discipline, moves, trace, chosen))
    chosen = policies.names() if chosen == ("all",) else chosen
    aim = _aim(target, discipline) if find_gpus else None

    # Every flag that has an effect is noted here, so that the output says what was simulated.
    values: dict[str, Value] = {}
    plan = _fleet(values, flags, fleet_file, profiles)
    cold = warm_up if warm_up is not None else 0.2 if source in (PodSource.ARRIVALS, PodSource.RESAMPLE) else 0.0
    skipped = 0
    workload: workloads.Workload
    if trace is not None:
        values["trace"] = str(trace)
        if trace.suffix == ".csv":
            values["fraction-as"] = fraction_as
        jobs, skipped = _trace(trace, plan, FractionAs(fraction_as))
        if resample:
            workload = _enough(partial(workloads.resampled, plan, jobs, load), pods, cold)
            values |= {"resample": True, "load": load, "pods": workload.count}
        else:
            workload = workloads.TraceReplay(jobs)
    elif fill:
        values |= {"fill": True, "mix": mix, "load": load}
        workload = workloads.fill_up(plan, mixes.read(mix, plan), load)
    else:
        make = partial(workloads.poisson, plan, mixes.read(mix, plan), load, 1000 * life, lives=lives)
        workload = _enough(make, pods, cold)
        values |= {"mix": mix, "load": load, "pods": workload.count, "life": life, "lives": lives}
    values["queue"] = discipline.value
    if discipline is QueueDiscipline.BACKFILL:
        values["patience"] = "never" if patience is None else patience
    if not fill:
        values |= {"create-ms": create_ms, "destroy-ms": destroy_ms}
    values |= {"warm-up": cold, "policy": chosen, "unknown-mix": unknown_mix, "moves": moves}
    if moves:
        values["movable"] = movable
    values |= {"seed": seed, "seeds": seeds, "bound": with_bound, "find-gpus": find_gpus}
    if aim is not None:
        values["target"] = aim.text
    patience_ms = None if patience is None else round(1000 * patience)
    rules = Rules(discipline, create_ms, destroy_ms, int(cold * workload.count), moves, movable, patience_ms)
    scenario = Scenario(plan, workload, rules, chosen, tuple(range(seed, seed + seeds)), not unknown_mix)
    settings = SimulationSettings({flag: value for flag, value in values.items() if value is not False}, skipped)

    output = "json" if as_json else output
    if aim is not None:
        _find(scenario, settings, aim, output)
    else:
        _compare(scenario, settings, with_bound, page, output)


def _enough(make: Callable[[int], workloads.Workload], pods: int | None, cold: float) -> workloads.Workload:
    """Pods that arrive at a load: as many as were asked for, else enough to meet it."""
    if pods is not None:
        return make(pods)
    return make(workloads.enough_pods(make(workloads.PODS), cold))


def _compare(
    scenario: Scenario, settings: SimulationSettings, with_bound: bool, page: Path | None, output: str
) -> None:
    if page is not None:
        report.check(page)
    if with_bound:
        bound.check(scenario.workload.count, scenario.rules)
    most = partial(bound.most_slices, scenario.plan, rules=scenario.rules) if with_bound else None
    with LateProgress(scenario.workload.count * len(scenario.policies) * len(scenario.seeds)) as progress:
        found = compare(scenario, progress, most)
    if page is not None:
        report.write(page, scenario, settings, found)
    if output != "table":
        _print_data(report.facts(scenario, settings, found), output)
        return
    header, *by_profile = summary.profile_rows(found)
    _print_tables(
        scenario,
        settings,
        [
            ("", summary.results(scenario, found)),
            (summary.profile_title(found), summary.Table([(name, "") for name in header], by_profile)),
        ],
        summary.notes(scenario, settings, found),
    )
    if page is not None:
        click.echo(f"Report: {page}")


def _find(scenario: Scenario, settings: SimulationSettings, target: sizing.Target, output: str) -> None:
    with LateProgress(None) as progress:
        needed = sizing.needed(scenario, target, progress)
    if output != "table":
        _print_data(report.sizing_facts(scenario, settings, target, needed), output)
        return
    tables = [("", summary.sizing(target, needed))]
    _print_tables(scenario, settings, tables, summary.sizing_notes(scenario, target, needed))


def _source(fill: bool, trace: Path | None, resample: bool) -> PodSource:
    if fill:
        return PodSource.FILL
    if trace is None:
        return PodSource.ARRIVALS
    return PodSource.RESAMPLE if resample else PodSource.REPLAY


def _known_policy(name: str) -> None:
    try:
        if name != "all":
            policies.named(name)
    except BadInput as error:
        raise BadInput(f"--policy {name}: {error}; or all") from None


def _aim(target: str | None, queue: QueueDiscipline) -> sizing.Target:
    if target is None and queue is not QueueDiscipline.NONE:
        raise BadInput(
            f"--find-gpus: with --queue {queue} every pod is placed in the end; say with --target, like --target 60s, "
            "how long 95 % of them may wait at most"
        )
    return sizing.read_target(target or "99%", queue)


def _fleet(values: dict[str, Value], flags: tuple[str, ...], file: Path | None, profiles: str | None) -> FleetPlan:
    if file:
        values["fleet-file"] = str(file)
        with _named("--fleet-file"):
            return fleets.from_file(file)
    values["fleet"] = flags or (FLEET,)
    if profiles is not None and not profiles.strip():
        raise BadInput(f"--profiles {profiles!r}: name those that are allowed, like 1g.5gb,3g.20gb, or leave it out")
    if profiles:
        values["profiles"] = profiles
    return fleets.from_flags(flags or (FLEET,), profiles.split(",") if profiles else ())


def _trace(path: Path, plan: FleetPlan, reading: FractionAs) -> Trace:
    with _named("--trace"):
        match path.suffix:
            case ".csv":
                found = alibaba.read(path, plan.main_model, reading)
            case ".jsonl":
                found = migbench.read(path, plan)
            case other:
                raise BadInput(f"{path}: it ends in .csv (Alibaba's pod list) or .jsonl (MIGBench), not {other!r}")
        if not found.jobs:
            raise BadInput(f"{path}: it has no pod that wants a GPU; give a trace that has")
        return found


@contextmanager
def _named(flag: str) -> Iterator[None]:
    """Put the flag before what is wrong with the file that it names."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{flag} {error}") from None


def _print_data(facts: report.Facts, output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(facts)).decode())
        return
    import yaml

    click.echo(yaml.safe_dump(msgspec.to_builtins(facts), sort_keys=False, allow_unicode=True), nl=False)


def _print_tables(
    scenario: Scenario, settings: SimulationSettings, tables: list[tuple[str, summary.Table]], notes: list[str]
) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=True, highlight=False)
    # Rich would shorten columns to the terminal's width, and a pipe's is 80: a long line can still be read.
    console.width = max(console.width, 180)
    for name, value in summary.settings_rows(scenario, settings):
        console.print(f"{name.capitalize():<10}{value}", markup=False)
    for title, (columns, lines) in tables:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column, _ in columns:
            table.add_column(
                column.upper(), justify="left" if column in ("policy", "profile") else "right", no_wrap=True
            )
        for line in lines:
            table.add_row(*line)
        console.print(f"\n{title}:" if title else "")
        console.print(table)
    console.print()
    for note in notes:
        console.print(note, markup=False)
    console.print("Columns: instaslice simulate --help")
    console.print(f"Again: {settings.command}", markup=False)
