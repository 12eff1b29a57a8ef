"""A comparison in words and rows: what the table on a terminal and the page both say."""

from instaslice.simulate.comparison import Comparison, Scenario
from instaslice.simulate.outcome import Estimate, OfPolicy
from instaslice.simulate.simulation import Queue


def headline(scenario: Scenario, passed_over: int = 0) -> str:
    """The fleet, the workload and the seeds in one line."""
    seeds = f"seed {scenario.seeds[0]}"
    if len(scenario.seeds) > 1:
        seeds = f"seeds {scenario.seeds[0]} to {scenario.seeds[-1]}"
    passed = f" ({passed_over} that want no GPU left out)" if passed_over else ""
    gpus = scenario.plan.gpus
    return f"{scenario.plan} ({gpus} GPUs): {scenario.workload.title}{passed}, {line(scenario)}, {seeds}"


def line(scenario: Scenario) -> str:
    """What becomes of pods without room."""
    match scenario.rules.queue:
        case Queue.NONE:
            return "pods without room go away"
        case Queue.FIFO:
            return "pods wait in line"
        case Queue.BACKFILL:
            return "pods wait, those that fit may pass"


def columns(found: Comparison) -> list[str]:
    names = ["policy", "accepted", "slices"]
    names += ["of bound"] if found.bounds else []
    names += ["over first"] if len(found.policies) > 1 else []
    return [*names, "wait mean", "p95", "p99", "GPUs active", "slices used", "fragmented", "in pieces", "moves"]


def rows(found: Comparison) -> list[list[str]]:
    """One for each policy, under `columns`."""
    return [_row(found, each) for each in found.policies]


def _row(found: Comparison, each: OfPolicy) -> list[str]:
    of = each.summary
    cells = [each.policy, _percent(of["acceptance_by_count"]), _percent(of["acceptance_by_slices"])]
    if each.of_bound is not None:
        cells.append(f"{100 * each.of_bound:.1f} %")
    if len(found.policies) > 1:
        over = each.slices_over_first
        cells.append("" if over is None or each is found.policies[0] else _points(over))
    return [
        *cells,
        *(seconds(of[name].mean) for name in ("wait_mean_ms", "wait_p95_ms", "wait_p99_ms")),
        f"{of['gpus_active'].mean:.1f}",
        f"{of['slices_used'].mean:.1f}",
        f"{100 * of['fragmentation'].mean:.1f} %",
        f"{of['room_in_pieces'].mean:.0f}",
        f"{of['moves'].mean:.0f}",
    ]


def profile_rows(found: Comparison) -> list[list[str]]:
    """The header, then one row for each profile: how much of it each policy accepted, over all seeds."""
    names = list(dict.fromkeys(name for each in found.policies for run in each.runs for name in run.profiles))
    table = [["profile", "asked", *(each.policy for each in found.policies)]]
    for name in names:
        asked = sum(run.profiles[name].asked for run in found.policies[0].runs if name in run.profiles)
        cells = [name, str(asked)]
        for each in found.policies:
            given = sum(run.profiles[name].given for run in each.runs if name in run.profiles)
            cells.append(f"{100 * given / asked:.2f} %")
        table.append(cells)
    return table


def notes(scenario: Scenario, found: Comparison) -> list[str]:
    """What a reader of the table should know, a line each."""
    said = []
    first = found.policies[0].runs[0]
    if first.impossible:
        said.append(f"{first.impossible} pods fit no node even when empty; they count as not accepted.")
    if any(run.waiting for each in found.policies for run in each.runs):
        said.append("Some pods still waited at the end; waits are of those that ran.")
    if found.bounds:
        best = max(found.policies, key=lambda each: each.of_bound or 0.0)
        said.append(
            f"{best.policy} gives {100 * (best.of_bound or 0.0):.1f} % of the bound: no policy, even one that knows "
            f"the future and moves freely, could give more than {sum(found.bounds):.0f} slices."
        )
    if len(scenario.seeds) > 1:
        said.append("± is the half-width of a 95 % interval over the seeds; `over first` is paired by seed.")
    return said


def seconds(ms: float) -> str:
    """A time in the largest unit that keeps it above 1."""
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:.2f} {unit}"
    return f"{ms:.0f} ms"


def _percent(value: Estimate) -> str:
    spread = f" ±{100 * value.plus_minus:.2f}" if value.plus_minus else ""
    return f"{100 * value.mean:.2f}{spread} %"


def _points(value: Estimate) -> str:
    spread = f" ±{100 * value.plus_minus:.2f}" if value.plus_minus else ""
    return f"{100 * value.mean:+.2f}{spread}"
