"""A comparison as text and rows, for both the table on a terminal and the page."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from instaslice.simulate.comparison import Comparison, Scenario
from instaslice.simulate.outcome import Estimate, PolicyOutcome, ProfileOutcome
from instaslice.simulate.settings import SimulationSettings, number
from instaslice.simulate.simulation import QueueDiscipline
from instaslice.simulate.sizing import NeededFleet, Target, TriedFleet
from instaslice.simulate.workloads import too_few_pods

MEANINGS: Final[Mapping[str, str]] = {
    "policy": "how a GPU and a start are chosen",
    "accepted": "pods that found room",
    "slices": "memory slices of the pods that found room, of those of all pods",
    "of bound": "slices, relative to what no policy could exceed",
    "over first": "points of slices above the first policy, on the same pods",
    "wait of first": "mean wait relative to the first policy's, on the same pods",
    "wait mean": "from arrival to running, mean over the pods that ran",
    "wait p95": "95 of 100 pods waited at most so long",
    "wait p99": "99 of 100 pods waited at most so long",
    "GPUs active": "GPUs that hold anything, on average from the warm-up to the last arrival",
    "slices used": "memory slices in use, on average over the same time",
    "fragmented": "free memory slices that the average request could not use, on average over the same time",
    "in pieces": "pods that found no room although as many memory slices were free",
    "moves": "running slices that were moved to make room",
}
"""Every column, in order. A result has only those that say something about it."""

SIZING_MEANINGS: Final[Mapping[str, str]] = {
    "policy": MEANINGS["policy"],
    "nodes": "the fewest that reach the target",
    "GPUs": "on these nodes",
    "slices": MEANINGS["slices"],
    "wait p95": f"{MEANINGS['wait p95']}; never run: more than 5 of 100 do not",
    "one node less": "what one node less would reach",
    "GPUs active": MEANINGS["GPUs active"],
}


def settings_rows(scenario: Scenario, settings: SimulationSettings) -> Iterator[tuple[str, str]]:
    """What was simulated, a line each: name and value."""
    values, plan, rules = settings.values, scenario.plan, scenario.rules
    only = f", only {values['profiles']}" if "profiles" in values else ""
    yield "fleet", f"{plan}{only} ({plan.gpus} GPUs, {plan.slices} memory slices)"
    skipped = f" ({settings.skipped} that want no GPU left out)" if settings.skipped else ""
    warm_up = f"; the first {rules.warm_up} are not counted" if rules.warm_up else ""
    yield "pods", f"{scenario.workload.title}{skipped}{warm_up}"
    if "trace" in values:
        fractions = f", fractions of a GPU as {values['fraction-as']}" if "fraction-as" in values else ""
        yield "trace", f"{values['trace']}{fractions}"
    if "mix" in values:
        shares = ", ".join(f"{name} {share:.2f}" for name, share in scenario.workload.asked.items())
        yield "mix", f"{values['mix']}: slices per pod {shares}"
    if "load" in values:
        at_once = scenario.workload.concurrent
        text = f"{number(float(str(values['load'])))} times what fits with ideal packing"
        yield "load", text if at_once is None else f"{text}: {at_once:.1f} pods at once if none were refused"
    yield "no room", queue_text(scenario)
    if rules.create_ms or rules.destroy_ms:
        yield "hardware", f"slices take {rules.create_ms} ms to create and {rules.destroy_ms} ms to destroy"
    if rules.moves:
        yield "moves", f"at most {rules.moves} slices for a pod; {100 * rules.movable:g} % of the pods may be moved"
    known = "the mix and the load are" if scenario.informed else "nothing is"
    yield "policies", f"{', '.join(scenario.policies)}; {known} known beforehand"
    first, last = scenario.seeds[0], scenario.seeds[-1]
    yield ("seed", str(first)) if first == last else ("seeds", f"{first} to {last}")


def queue_text(scenario: Scenario) -> str:
    """What happens to pods that do not fit."""
    match scenario.rules.queue:
        case QueueDiscipline.NONE:
            return "the pod is rejected"
        case QueueDiscipline.FIFO:
            return "the pod waits, and so do all later ones"
        case QueueDiscipline.BACKFILL:
            patience = scenario.rules.patience_ms
            reserved = "never" if patience is None else f"after {seconds(patience)}"
            return f"the pod waits, and those that fit may pass; GPUs are reserved for the first {reserved}"


class Table(NamedTuple):
    """Column names with their meaning, and rows of cells under them."""

    columns: list[tuple[str, str]]
    rows: list[list[str]]


_ONE_SIDED: Final = 0.75
"""Of the memory slices: what a mix fills at least at load 1.0 where it suits the models of a fleet."""

_Cell = Callable[[PolicyOutcome], str]


def results(scenario: Scenario, found: Comparison) -> Table:
    """One row for each policy."""
    cells: dict[str, _Cell] = {
        "policy": lambda each: each.policy,
        "accepted": lambda each: percent(each.summary["acceptance_by_count"]),
        "slices": lambda each: percent(each.summary["acceptance_by_slices"]),
    }
    if found.bounds:
        cells["of bound"] = lambda each: f"{100 * (each.of_bound or 0.0):.1f} %"
    if waited(found):
        if len(found.policies) > 1:
            cells["wait of first"] = lambda each: _ratio(each.wait_of_first, each is found.policies[0])
        for name, measure in (("mean", "wait_mean_ms"), ("p95", "wait_p95_ms"), ("p99", "wait_p99_ms")):
            cells[f"wait {name}"] = _time_of(measure)
    elif len(found.policies) > 1:
        cells["over first"] = lambda each: _points(each.slices_over_first, each is found.policies[0])
    cells |= {
        "GPUs active": lambda each: f"{each.summary['gpus_active'].mean:.1f}",
        "slices used": lambda each: f"{each.summary['slices_used'].mean:.1f}",
        "fragmented": lambda each: f"{100 * each.summary['fragmentation'].mean:.1f} %",
        "in pieces": lambda each: f"{each.summary['room_in_pieces'].mean:.0f}",
    }
    if scenario.rules.moves:
        cells["moves"] = lambda each: f"{each.summary['moves'].mean:.0f}"
    rows = [[cell(each) for cell in cells.values()] for each in found.policies]
    return Table([(name, MEANINGS[name]) for name in cells], rows)


def _time_of(measure: str) -> _Cell:
    return lambda each: seconds(each.summary[measure].mean)


def _points(over: Estimate | None, first: bool) -> str:
    return "" if over is None or first else f"{100 * over.mean:+.2f}{_spread(100 * over.plus_minus)}"


def _ratio(ratio: Estimate | None, first: bool) -> str:
    return "" if ratio is None or first else f"{ratio.mean:.3f}{_spread(ratio.plus_minus, 3)}"


def waited(found: Comparison) -> bool:
    """Whether any pod waited for room: then all are accepted in the end, and what counts is how long they waited."""
    return any(run.queued for each in found.policies for run in each.runs)


def profile_title(found: Comparison) -> str:
    return "Mean wait, by profile" if waited(found) else "Accepted, by profile"


def profile_rows(found: Comparison) -> list[list[str]]:
    """The header, then one row for each profile with a cell for each policy, over all seeds."""
    names = list(dict.fromkeys(name for each in found.policies for run in each.runs for name in run.profiles))
    table = [["profile", "asked", *(each.policy for each in found.policies)]]
    for name in names:
        asked = sum(of.asked for of in _of_profile(found.policies[0], name))
        table.append([name, str(asked), *(_cell(found, _of_profile(each, name)) for each in found.policies)])
    return table


def _of_profile(each: PolicyOutcome, name: str) -> list[ProfileOutcome]:
    return [run.profiles[name] for run in each.runs if name in run.profiles]


def _cell(found: Comparison, runs: list[ProfileOutcome]) -> str:
    given = sum(of.given for of in runs)
    if waited(found):
        return seconds(sum(of.wait_mean_ms * of.given for of in runs) / given) if given else "never ran"
    return f"{100 * given / sum(of.asked for of in runs):.2f} %"


def notes(scenario: Scenario, settings: SimulationSettings, found: Comparison) -> list[str]:
    """What a reader of the table should know, a line each."""
    found_notes = _impossible_note(found.policies[0].runs[0].impossible)
    short = too_few_pods(scenario.workload, scenario.rules.warm_up)
    if short is not None:
        found_notes.append(f"{short}.")
    load = float(str(settings.values.get("load", 0)))
    if scenario.rules.queue is not QueueDiscipline.NONE and load >= 1:
        found_notes.append(
            f"Load {number(load)} is all that ideal packing holds, or more: the queue grows for as long as pods "
            "arrive, so waits depend on --pods."
        )
    found_notes += _one_sided_note(scenario, settings)
    if scenario.rules.queue is not QueueDiscipline.NONE and not waited(found):
        found_notes.append("No pod waited for room.")
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


def _one_sided_note(scenario: Scenario, settings: SimulationSettings) -> list[str]:
    """Where a mix saturates one model of several long before the others: its load is not that of the fleet."""
    plan, workload = scenario.plan, scenario.workload
    if len(plan.models) < 2 or "mix" not in settings.values or workload.concurrent is None:
        return []
    at_once = workload.concurrent / float(str(settings.values["load"]))
    used = at_once * sum(share * plan.sizes[name] for name, share in workload.asked.items()) / plan.slices
    if used >= _ONE_SIDED:
        return []
    return [
        f"At load 1.0 this mix fills only {100 * used:.0f} % of the memory slices: some models are full long before "
        "others. Give shares that suit the fleet with --mix, or simulate each model alone."
    ]


def _impossible_note(pods: int, count_as: str = "not accepted") -> list[str]:
    return [f"{pods} pods fit no node even when empty; they count as {count_as}."] if pods else []


def sizing(target: Target, answers: tuple[NeededFleet, ...]) -> Table:
    """One row for each policy."""
    share = target.share is not None
    names = ["policy", "nodes", "GPUs", "slices" if share else "wait p95", "one node less", "GPUs active"]
    rows = []
    for each in answers:
        less = each.one_less
        reached = ["-" if tried is None else _reached(tried, share) for tried in (each.found, less)]
        rows.append([each.policy, str(each.nodes), str(each.gpus), *reached, f"{each.found.gpus_active.mean:.1f}"])
    return Table([(name, SIZING_MEANINGS[name]) for name in names], rows)


def _reached(tried: TriedFleet, share: bool) -> str:
    if share:
        return percent(tried.slices)
    return seconds(tried.wait_p95_ms.mean) if tried.wait_p95_ms is not None else "never run"


def sizing_notes(scenario: Scenario, target: Target, answers: tuple[NeededFleet, ...]) -> list[str]:
    share, last = target.share is not None, scenario.plan.groups[-1]
    varied = f"The number of nodes with {last.gpus} {last.model.name} was varied"
    rest = ", that of the others was not" if len(scenario.plan.groups) > 1 else ""
    sure = []
    if any(each.one_less for each in answers):
        some = "" if all(each.one_less for each in answers) else ", where there can be,"
        sure.append(f"one node less{some} misses the target")
    if all(each.one_more for each in answers):
        sure.append("one more reaches it")
    confirmed = f" In each case {', '.join(sure)}." if sure else ""
    mean = " on average over the seeds" if len(scenario.seeds) > 1 else ""
    return [
        f"Target{mean}: {target}.",
        f"{varied}{rest}; the pods and their times stayed the same.{confirmed}",
        *(f"{each.policy}: {each.fleet}" for each in answers if len(scenario.plan.groups) > 1),
        *_impossible_note(answers[0].found.impossible, "not accepted" if share else "waiting without end"),
    ]


def seconds(ms: float) -> str:
    """A time in the largest unit that keeps it above 1."""
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:.2f} {unit}"
    return f"{ms:.0f} ms"


def percent(value: Estimate) -> str:
    return f"{100 * value.mean:.2f}{_spread(100 * value.plus_minus)} %"


def _spread(value: float, digits: int = 2) -> str:
    return f" ±{value:.{digits}f}" if value else ""
