"""`instaslice simulate`: what a fleet would do with a workload, by the placement code that runs in the controller."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
import msgspec

from instaslice.errors import BadInput
from instaslice.placement import policies
from instaslice.simulate import alibaba, bound, fleets, migbench, mixes, report, summary, workloads
from instaslice.simulate.comparison import Comparison, Progress, Scenario, compare
from instaslice.simulate.fleets import FleetPlan
from instaslice.simulate.fractions import FractionAs
from instaslice.simulate.jobs import Trace
from instaslice.simulate.simulation import QueueDiscipline, Rules

EXAMPLES = """\b
Examples:
  instaslice simulate                                       our policy on 13 nodes of 8 A100-40GB at load 1.0
  instaslice simulate --policy all --seeds 5                every policy on the same pods, with intervals
  instaslice simulate --fleet 4x8xH100-80GB-SXM5 --fleet 2x4xA30 --mix small --load 0.9
  instaslice simulate --mix 1g.5gb=6,3g.20gb=2,2x7g.40gb=1 --queue backfill --load 0.93
  instaslice simulate --fill --load 1.05 --policy all       nothing ends: how full it gets
  instaslice simulate --trace jobs.jsonl --create-ms 250 --destroy-ms 100 --policy dra --policy adaptive
  instaslice simulate --trace pods.csv --fraction-as compute --resample --load 1.0
  instaslice simulate --bound --pods 5000 --report out.html the bound on any policy, and a page with charts
"""

FLEET = "13x8xA100-40GB"
PODS = 20_000
MIXES = ", ".join(mixes.names())
POLICIES = ", ".join(policies.names())
MS = click.IntRange(0)
SHARE = click.FloatRange(0, 1)


@click.command(epilog=EXAMPLES)
@click.option("--fleet", "flags", multiple=True, metavar="NxGxMODEL", help=f"N nodes of G GPUs; repeatable.  [{FLEET}]")
@click.option("--fleet-file", type=click.Path(path_type=Path), metavar="JSON", help="The fleet from a file instead.")
@click.option("--profiles", metavar="P,P,…", help="Allow only these profiles on GPUs given by --fleet.")
@click.option("--mix", default="uniform", show_default=True, help=f"{MIXES}; or like 1g.5gb=4,2x2g.10gb=1.")
@click.option("--load", type=click.FloatRange(0, min_open=True), help="1.0 is what fits when packing is ideal.  [1.0]")
@click.option("--pods", type=click.IntRange(1), help=f"How many arrive.  [{PODS}]")
@click.option("--life", default=3600.0, show_default=True, metavar="SECONDS", help="Mean life of a pod.")
@click.option("--lives", type=click.Choice(list(workloads.LIVES)), default="exponential", show_default=True)
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
@click.option("--create-ms", type=MS, default=0, show_default=True, help="Time to create a pod's slices.")
@click.option("--destroy-ms", type=MS, default=0, show_default=True, help="Time to destroy them.")
@click.option("--warm-up", type=click.FloatRange(0, 0.9), help="Part of the pods not counted.  [0.2; trace, fill: 0]")
@click.option("--policy", "names", multiple=True, help=f"Repeatable: all, {POLICIES}.  [{policies.DEFAULT}]")
@click.option("--unknown-mix", is_flag=True, help="Policies know nothing beforehand and learn as pods arrive.")
@click.option("--moves", type=click.IntRange(0), default=0, show_default=True, help="Most slices moved to make room.")
@click.option("--movable", type=SHARE, default=1.0, show_default=True, help="Part of the pods that may be moved.")
@click.option("--seed", default=1, show_default=True, help="The first seed.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many, each on its own pods.")
@click.option("--bound", "with_bound", is_flag=True, help="Also what no policy could exceed (extra `bound`).")
@click.option("--report", "page", type=click.Path(path_type=Path), metavar="HTML", help="Write a page with charts.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
def command(
    flags: tuple[str, ...],
    fleet_file: Path | None,
    profiles: str | None,
    mix: str,
    load: float | None,
    pods: int | None,
    life: float,
    lives: str,
    fill: bool,
    trace: Path | None,
    fraction_as: str,
    resample: bool,
    queue: str | None,
    create_ms: int,
    destroy_ms: int,
    warm_up: float | None,
    names: tuple[str, ...],
    unknown_mix: bool,
    moves: int,
    movable: float,
    seed: int,
    seeds: int,
    with_bound: bool,
    page: Path | None,
    output: str,
    as_json: bool,
) -> None:
    """Run pods through a fleet, and report how many fitted, how long they waited and how full it was.

    Exact and repeatable: the same flags print the same numbers. Nothing is started and no cluster is needed.
    """
    plan = _fleet(flags, fleet_file, profiles)
    replayed = trace is not None and not resample
    _refuse(resample and trace is None, "--resample draws from a trace; name it with --trace")
    _refuse(fill and trace is not None, "--fill makes its own pods; leave --trace away")
    _refuse(replayed and load is not None, "a trace has its own times; add --resample to draw from it at a --load")
    _refuse((replayed or fill) and pods is not None, "--pods is for Poisson arrivals; a trace or --fill has its number")
    wanted = load or 1.0
    workload: workloads.Workload
    skipped = 0
    if trace is not None:
        jobs, skipped = _trace(trace, plan, FractionAs(fraction_as))
        workload = workloads.resampled(plan, jobs, wanted, pods or PODS) if resample else workloads.TraceReplay(jobs)
    elif fill:
        workload = workloads.fill_up(plan, mixes.read(mix, plan), wanted)
    else:
        workload = workloads.poisson(plan, mixes.read(mix, plan), wanted, 1000 * life, pods or PODS, lives)
    cold = warm_up if warm_up is not None else 0.0 if fill or replayed else 0.2
    discipline = QueueDiscipline(queue) if queue else QueueDiscipline.BACKFILL if replayed else QueueDiscipline.NONE
    rules = Rules(discipline, create_ms, destroy_ms, int(cold * workload.count), moves, movable)
    scenario = Scenario(plan, workload, rules, _policies(names), tuple(range(seed, seed + seeds)), not unknown_mix)
    if page is not None:
        report.check(page)
    if with_bound:
        bound.check(workload.count, rules)
    most = partial(bound.most_slices, plan, rules=rules) if with_bound else None
    with _progress(scenario) as progress:
        found = compare(scenario, progress, most)
    if page is not None:
        report.write(page, scenario, found)
    if as_json or output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report.facts(scenario, found))).decode())
        return
    _table(scenario, found, skipped)
    if page is not None:
        click.echo(f"Report: {page}")


def _fleet(flags: tuple[str, ...], file: Path | None, profiles: str | None) -> FleetPlan:
    _refuse(
        bool(file and (flags or profiles)), "--fleet-file states the whole fleet; leave --fleet and --profiles away"
    )
    if file:
        return fleets.from_file(file)
    return fleets.from_flags(flags or (FLEET,), profiles.split(",") if profiles else ())


def _trace(path: Path, plan: FleetPlan, reading: FractionAs) -> Trace:
    match path.suffix:
        case ".csv":
            return alibaba.read(path, plan.main_model, reading)
        case ".jsonl":
            return migbench.read(path, plan)
        case other:
            raise BadInput(f"{path}: a trace ends in .csv (Alibaba's pod list) or .jsonl (MIGBench), not {other!r}")


def _policies(names: tuple[str, ...]) -> tuple[str, ...]:
    if "all" in names:
        return policies.names()
    chosen = tuple(dict.fromkeys(names)) or (policies.DEFAULT,)
    for name in chosen:
        policies.named(name)
    return chosen


def _refuse(wrong: bool, reason: str) -> None:
    if wrong:
        raise BadInput(reason)


@contextmanager
def _progress(scenario: Scenario) -> Iterator[Progress | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        total = scenario.workload.count * len(scenario.policies) * len(scenario.seeds)
        task = bar.add_task("", total=total)
        yield lambda policy, more: bar.update(task, advance=more, description=policy)


def _table(scenario: Scenario, found: Comparison, skipped: int) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=True, highlight=False)
    # Rich would shorten columns to the terminal's width, and a pipe's is 80: a long line can still be read.
    console.width = max(console.width, 180)
    console.print(summary.headline(scenario, skipped))
    results = (summary.columns(scenario, found), *summary.rows(scenario, found))
    by_profile = summary.profile_rows(scenario, found)
    for title, (header, *lines) in (("", results), (f"{summary.profile_title(scenario)}:", by_profile)):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in header:
            table.add_column(
                column.upper(), justify="left" if column in ("policy", "profile") else "right", no_wrap=True
            )
        for line in lines:
            table.add_row(*line)
        console.print(f"\n{title}" if title else "")
        console.print(table)
    console.print()
    for note in summary.notes(scenario, found):
        console.print(note)
