"""How many nodes a workload needs: the smallest fleet of a shape that reaches a target.

The demand is fixed: the same pods arrive at the same times whatever the fleet. Only the number of nodes of the last
group varies; the other groups stay. Fewer nodes are not always worse for a policy, so the answer is confirmed: one
node less misses the target, one node more reaches it too.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

from instaslice.errors import BadInput
from instaslice.simulate.comparison import Progress, Scenario, compare
from instaslice.simulate.errors import BadWorkload
from instaslice.simulate.fleets import MOST_GPUS, FleetPlan
from instaslice.simulate.jobs import Wants
from instaslice.simulate.outcome import WAITING_PART, Estimate, estimate
from instaslice.simulate.simulation import QueueDiscipline
from instaslice.simulate.workloads import pods_at_once, too_few_pods

_TARGET = re.compile(r"(?P<number>\d+(\.\d+)?) ?(?P<unit>%|ms|s|min|h)")
_MS: Final = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}


@dataclass(frozen=True, slots=True)
class Target:
    """What a fleet has to reach, on average over the seeds: a `share` of the requested memory slices that find room or,
    where pods wait, a 95th percentile of the waits of at most `wait_ms`. Pods that never run wait without end."""

    text: str
    share: float | None
    wait_ms: float | None

    def met(self, slices: Estimate, wait_p95: Estimate | None) -> bool:
        # A mean of shares is rounded, and a quantile of waits is right to a thousandth: 20 s must not miss 20 s.
        if self.share is not None:
            return slices.mean >= self.share - 1e-12
        return self.wait_ms is not None and wait_p95 is not None and wait_p95.mean <= self.wait_ms * 1.001

    def __str__(self) -> str:
        if self.share is not None:
            return f"{self.text} of the requested memory slices find room"
        return f"95 % of the pods wait at most {self.text}"


def read_target(text: str, queue: QueueDiscipline) -> Target:
    """`99%`, or `90s` where pods wait. Raises BadInput where the text is neither or the other one is needed."""
    found = _TARGET.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"--target {text!r}: write a part of the memory like 99%, or a wait like 90s, 5min or 1h")
    number, unit, waits = float(found["number"]), found["unit"], queue is not QueueDiscipline.NONE
    if unit == "%" and waits:
        raise BadInput(
            f"--target {text}: with --queue {queue} every pod is placed in the end; give a wait like 60s, or use "
            "--queue none"
        )
    if unit != "%" and not waits:
        raise BadInput(
            f"--target {text}: nobody waits with --queue none; give a part like 99%, or use --queue backfill"
        )
    if unit == "%":
        if not 0 < number <= 100:
            raise BadInput(f"--target {text}: give a part above 0% and up to 100%")
        return Target(text.strip(), number / 100, None)
    return Target(text.strip(), None, number * _MS[unit])


@dataclass(frozen=True, slots=True)
class TriedFleet:
    """What a fleet with that many nodes in its last group came to, over all seeds. `impossible` pods of the first seed
    fit no node; `wait_p95_ms` is None where more than 5 % of the pods never run."""

    nodes: int
    gpus: int
    meets: bool
    slices: Estimate
    wait_p95_ms: Estimate | None
    gpus_active: Estimate
    impossible: int


@dataclass(frozen=True, slots=True)
class NeededFleet:
    """The smallest fleet with which a policy reaches the target; `nodes` and `gpus` are those of all groups."""

    policy: str
    fleet: str
    nodes: int
    gpus: int
    found: TriedFleet
    tried: tuple[TriedFleet, ...]
    """By number of nodes, the found one included."""

    @property
    def one_less(self) -> TriedFleet | None:
        return self._tried(self.found.nodes - 1)

    @property
    def one_more(self) -> TriedFleet | None:
        """None where more nodes could not help."""
        return self._tried(self.found.nodes + 1)

    def _tried(self, nodes: int) -> TriedFleet | None:
        return next((each for each in self.tried if each.nodes == nodes), None)


def needed(scenario: Scenario, target: Target, progress: Progress | None = None) -> tuple[NeededFleet, ...]:
    """For each policy the smallest fleet. Raises BadWorkload where no number of nodes could reach the target."""
    pods = _check(scenario, target)
    plan, last = scenario.plan, scenario.plan.groups[-1]
    varied = FleetPlan([last])
    not_there = sorted(wants for wants in pods if not varied.can_ever_hold(wants))
    fixed = plan.gpus - last.number * last.gpus
    least = 0 if fixed else 1
    # With a node for each pod there is always an empty one; where they hold none of the pods, none helps.
    enough = scenario.workload.count if len(not_there) < len(pods) else least
    most = max(min(enough, (MOST_GPUS - fixed) // last.gpus), least)
    answers = []
    for policy in scenario.policies:
        tried: dict[int, TriedFleet] = {}
        one = replace(scenario, policies=(policy,))

        def meets(nodes: int, tried: dict[int, TriedFleet] = tried, one: Scenario = one) -> bool:
            if nodes not in tried:
                tried[nodes] = _try(one, nodes, target, progress)
            return tried[nodes].meets

        found = smallest(meets, _first_guess(scenario), least, most)
        if found is None:
            why = ""
            if not_there:
                why = (
                    f", and more {last.model.name} would not help, as their nodes could not hold "
                    f"{', '.join(map(_text, not_there))}; put the --fleet that is to grow last, or lower the target"
                )
            raise BadWorkload(f"--target {target.text}: {policy} does not reach it with {tried[most].gpus} GPUs{why}")
        answer = plan.with_nodes(found)
        nodes = sum(group.number for group in answer.groups)
        by_nodes = tuple(tried[number] for number in sorted(tried))
        answers.append(NeededFleet(policy, str(answer), nodes, answer.gpus, tried[found], by_nodes))
    return tuple(answers)


def smallest(meets: Callable[[int], bool], start: int, least: int, most: int) -> int | None:
    """A number that meets, as does the next one, while the one before does not; None where doubling up to `most` finds
    none. It is the smallest that meets if larger numbers are never worse. `meets` should remember its answers."""
    low, high = least - 1, min(max(start, least), most)
    step = max(high, 1)
    while True:
        while not meets(high):
            if high == most:
                return None
            low, high, step = high, min(high + step, most), 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if meets(middle) else (middle, high)
        if high == most or meets(high + 1):
            return high
        low, high, step = high + 1, min(high + 2, most), 1


def _try(scenario: Scenario, nodes: int, target: Target, progress: Progress | None) -> TriedFleet:
    plan = scenario.plan.with_nodes(nodes)

    def report(policy: str, more: int) -> None:
        if progress is not None:
            progress(f"{policy} on {plan.gpus} GPUs", more)

    (each,) = compare(replace(scenario, plan=plan), report).policies
    slices, active = each.summary["acceptance_by_slices"], each.summary["gpus_active"]
    waits = [run.wait_p95_of_all_ms for run in each.runs if run.wait_p95_of_all_ms is not None]
    wait = estimate(waits) if len(waits) == len(each.runs) else None
    meets = target.met(slices, wait)
    return TriedFleet(nodes, plan.gpus, meets, slices, wait, active, each.runs[0].impossible)


def _first_guess(scenario: Scenario) -> int:
    """The number of nodes that would hold what runs at once with ideal packing."""
    plan, workload = scenario.plan, scenario.workload
    if workload.concurrent is None:
        return plan.groups[-1].number
    ratio = workload.concurrent / pods_at_once(plan, workload.asked)
    fixed = sum(group.number * group.gpus for group in plan.groups[:-1])
    return round((plan.gpus * ratio - fixed) / plan.groups[-1].gpus)


def _check(scenario: Scenario, target: Target) -> set[Wants]:
    """Whether enough nodes could reach the target at all, before minutes are spent on trying. Returns the pods that
    count, each once, without those that no node could hold."""
    if target.wait_ms is not None and target.wait_ms < scenario.rules.create_ms:
        raise BadWorkload(
            f"--target {target.text}: creating slices alone takes {scenario.rules.create_ms} ms; give a longer wait "
            "or a shorter --create-ms"
        )
    short = too_few_pods(scenario.workload, scenario.rules.warm_up)
    if short is not None:
        raise BadWorkload(f"--find-gpus: it would find GPUs for less than the load, since {short}")
    found = [_reachable(scenario, seed) for seed in scenario.seeds]
    pods = set().union(*(each.possible for each in found))
    impossible = sorted(set().union(*(each.impossible for each in found)))
    remedy = f"since no node could hold {', '.join(map(_text, impossible))}; use nodes with more GPUs, or another model"
    if target.share is not None:
        most = fmean(each.slices for each in found)
        if most < target.share - 1e-12:
            raise BadWorkload(
                f"--target {target.text}: at most {100 * most:.1f} % find room on any number of nodes, {remedy}"
            )
        return pods
    most = min(each.pods for each in found)
    if most < WAITING_PART:
        raise BadWorkload(
            f"--target {target.text}: at most {100 * most:.1f} % of the pods ever run on any number of nodes, {remedy}"
        )
    return pods


class _Reachable(NamedTuple):
    """What could run if there were nodes enough: parts of the pods and of their memory slices; which pods do, and
    which never do."""

    pods: float
    slices: float
    possible: set[Wants]
    impossible: set[Wants]


def _reachable(scenario: Scenario, seed: int) -> _Reachable:
    pods = possible_pods = slices = possible_slices = 0
    possible: set[Wants] = set()
    impossible: set[Wants] = set()
    for number, job in enumerate(scenario.workload.jobs(Random(f"{seed} jobs"))):
        if number < scenario.rules.warm_up:
            continue
        size = sum(scenario.plan.sizes[want] for want in job.wants)
        pods += 1
        slices += size
        if scenario.plan.can_ever_hold(job.wants):
            possible.add(job.wants)
            possible_pods += 1
            possible_slices += size
        else:
            impossible.add(job.wants)
    shares = (possible_pods / pods if pods else 1.0, possible_slices / slices if slices else 1.0)
    return _Reachable(*shares, possible, impossible)


def _text(wants: Wants) -> str:
    counts: Mapping[str, int] = {want: wants.count(want) for want in dict.fromkeys(wants)}
    return " + ".join(f"{count}x{want}" if count > 1 else want for want, count in counts.items())
