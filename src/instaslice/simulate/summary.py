"""A comparison as text and rows, for both the table on a terminal and the page."""

from instaslice.simulate.comparison import Comparison, Scenario
from instaslice.simulate.outcome import Estimate, PolicyOutcome, ProfileOutcome
from instaslice.simulate.simulation import QueueDiscipline


def headline(scenario: Scenario, skipped: int = 0) -> str:
    """The fleet, the workload and the seeds in one line."""
    seeds = f"seed {scenario.seeds[0]}"
    if len(scenario.seeds) > 1:
        seeds = f"seeds {scenario.seeds[0]} to {scenario.seeds[-1]}"
    skipped_text = f" ({skipped} that want no GPU left out)" if skipped else ""
    gpus = scenario.plan.gpus
    return f"{scenario.plan} ({gpus} GPUs): {scenario.workload.title}{skipped_text}, {queue_text(scenario)}, {seeds}"


def queue_text(scenario: Scenario) -> str:
    """What happens to pods that do not fit."""
    match scenario.rules.queue:
        case QueueDiscipline.NONE:
            return "pods that do not fit are rejected"
        case QueueDiscipline.FIFO:
            return "pods wait in strict order"
        case QueueDiscipline.BACKFILL:
            return "pods wait, those that fit may pass"


def columns(scenario: Scenario, found: Comparison) -> list[str]:
    names = ["policy", "accepted", "slices"]
    names += ["of bound"] if found.bounds else []
    if len(found.policies) > 1:
        names.append("wait of first" if waits(scenario) else "over first")
    return [*names, "wait mean", "p95", "p99", "GPUs active", "slices used", "fragmented", "in pieces", "moves"]


def rows(scenario: Scenario, found: Comparison) -> list[list[str]]:
    """One for each policy, under `columns`."""
    return [_row(scenario, found, each) for each in found.policies]


def _row(scenario: Scenario, found: Comparison, each: PolicyOutcome) -> list[str]:
    of = each.summary
    cells = [each.policy, _percent(of["acceptance_by_count"]), _percent(of["acceptance_by_slices"])]
    if each.of_bound is not None:
        cells.append(f"{100 * each.of_bound:.1f} %")
    if len(found.policies) > 1:
        cells.append("" if each is found.policies[0] else _against_first(scenario, each))
    return [
        *cells,
        *(seconds(of[name].mean) for name in ("wait_mean_ms", "wait_p95_ms", "wait_p99_ms")),
        f"{of['gpus_active'].mean:.1f}",
        f"{of['slices_used'].mean:.1f}",
        f"{100 * of['fragmentation'].mean:.1f} %",
        f"{of['room_in_pieces'].mean:.0f}",
        f"{of['moves'].mean:.0f}",
    ]


def _against_first(scenario: Scenario, each: PolicyOutcome) -> str:
    if not waits(scenario):
        over = each.slices_over_first
        return "" if over is None else f"{100 * over.mean:+.2f}{_spread(100 * over.plus_minus)}"
    ratio = each.wait_of_first
    return "" if ratio is None else f"{ratio.mean:.3f}{_spread(ratio.plus_minus, 3)}"


def waits(scenario: Scenario) -> bool:
    """Whether pods that do not fit wait: then all are accepted in the end, and what counts is how long they waited."""
    return scenario.rules.queue is not QueueDiscipline.NONE


def profile_title(scenario: Scenario) -> str:
    return "Mean wait, by profile" if waits(scenario) else "Accepted, by profile"


def profile_rows(scenario: Scenario, found: Comparison) -> list[list[str]]:
    """The header, then one row for each profile with a cell for each policy, over all seeds."""
    names = list(dict.fromkeys(name for each in found.policies for run in each.runs for name in run.profiles))
    table = [["profile", "asked", *(each.policy for each in found.policies)]]
    for name in names:
        asked = sum(of.asked for of in _of_profile(found.policies[0], name))
        table.append([name, str(asked), *(_cell(scenario, _of_profile(each, name)) for each in found.policies)])
    return table


def _of_profile(each: PolicyOutcome, name: str) -> list[ProfileOutcome]:
    return [run.profiles[name] for run in each.runs if name in run.profiles]


def _cell(scenario: Scenario, runs: list[ProfileOutcome]) -> str:
    given = sum(of.given for of in runs)
    if waits(scenario):
        return seconds(sum(of.wait_mean_ms * of.given for of in runs) / given) if given else "never ran"
    return f"{100 * given / sum(of.asked for of in runs):.2f} %"


def notes(scenario: Scenario, found: Comparison) -> list[str]:
    """What a reader of the table should know, a line each."""
    found_notes = []
    first = found.policies[0].runs[0]
    if first.impossible:
        found_notes.append(f"{first.impossible} pods fit no node even when empty; they count as not accepted.")
    if any(run.waiting for each in found.policies for run in each.runs):
        found_notes.append("Some pods still waited at the end; waits are of those that ran.")
    if found.bounds:
        best = max(found.policies, key=lambda each: each.of_bound or 0.0)
        found_notes.append(
            f"{best.policy} gives {100 * (best.of_bound or 0.0):.1f} % of the bound: no policy, even one that knows "
            f"the future and moves freely, could give more than {sum(found.bounds):.0f} slices."
        )
    if len(scenario.seeds) > 1:
        found_notes.append("± is the half-width of a 95 % interval over the seeds; comparisons are paired by seed.")
    return found_notes


def seconds(ms: float) -> str:
    """A time in the largest unit that keeps it above 1."""
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:.2f} {unit}"
    return f"{ms:.0f} ms"


def _percent(value: Estimate) -> str:
    return f"{100 * value.mean:.2f}{_spread(100 * value.plus_minus)} %"


def _spread(value: float, digits: int = 2) -> str:
    return f" ±{value:.{digits}f}" if value else ""
