"""Which flags another makes void: they are refused, since a result that ignores what was asked for is misleading."""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from instaslice.errors import BadInput
from instaslice.placement import Policy, policies
from instaslice.placement.ranked_policies import ValueTablePolicy
from instaslice.simulate.simulation import QueueDiscipline


class PodSource(Enum):
    """Where pods come from."""

    ARRIVALS = "Poisson arrivals"
    FILL = "--fill"
    REPLAY = "--trace"
    RESAMPLE = "--trace with --resample"


class Combination(NamedTuple):
    """The flags that were given, and what decides whether they have an effect."""

    given: frozenset[str]
    source: PodSource
    queue: QueueDiscipline
    moves: int
    trace: Path | None
    policies: tuple[str, ...]


class _Rule(NamedTuple):
    flag: str
    void: Callable[[Combination], bool]
    why: str
    """With the remedy."""


def _given(flag: str) -> Callable[[Combination], bool]:
    return lambda run: flag in run.given


def _missing(flag: str) -> Callable[[Combination], bool]:
    return lambda run: flag not in run.given


def _from(*sources: PodSource) -> Callable[[Combination], bool]:
    return lambda run: run.source in sources


def _learns(name: str) -> bool:
    """Whether a policy goes by what is asked for; `all` has some that do."""
    policy = None if name == "all" else policies.named(name)
    return policy is None or isinstance(policy, ValueTablePolicy) or type(policy).arrived is not Policy.arrived


_TRACES = _from(PodSource.REPLAY, PodSource.RESAMPLE)
_FILL = _from(PodSource.FILL)

_RULES: Final = (
    _Rule("--fleet", _given("--fleet-file"), "--fleet-file states the whole fleet; leave --fleet away"),
    _Rule(
        "--profiles", _given("--fleet-file"), "--fleet-file states the whole fleet; write `profiles` into its entries"
    ),
    _Rule("--fill", _given("--trace"), "--fill makes its own pods; leave --trace or --fill away"),
    _Rule("--resample", _missing("--trace"), "--resample draws from a trace; name it with --trace"),
    _Rule("--fraction-as", lambda run: run.trace is None or run.trace.suffix != ".csv",
          "only a .csv trace states fractions of a GPU; name one with --trace, or leave --fraction-as away"),
    _Rule("--mix", _TRACES, "the trace says which pods arrive; leave --mix or --trace away"),
    _Rule("--load", _from(PodSource.REPLAY), "a trace has its own times; add --resample to draw from it at a --load"),
    _Rule("--pods", _from(PodSource.REPLAY), "a trace has its number of pods; add --resample to draw --pods from it"),
    _Rule("--pods", _FILL, "--fill computes how many pods come; change that with --load"),
    _Rule("--life", _TRACES, "the trace says how long pods live; leave --life or --trace away"),
    _Rule("--life", _FILL, "pods never end with --fill; leave --life or --fill away"),
    _Rule("--lives", _TRACES, "the trace says how long pods live; leave --lives or --trace away"),
    _Rule("--lives", _FILL, "pods never end with --fill; leave --lives or --fill away"),
    _Rule("--queue", lambda run: run.source is PodSource.FILL and run.queue is not QueueDiscipline.NONE,
          "nothing ends with --fill, so a pod would wait for good; use --queue none"),
    _Rule("--create-ms", _FILL, "pods never end with --fill; leave --create-ms or --fill away"),
    _Rule("--destroy-ms", _FILL, "pods never end with --fill; leave --destroy-ms or --fill away"),
    _Rule("--patience", lambda run: run.queue is not QueueDiscipline.BACKFILL,
          "nobody passes a waiting pod unless --queue backfill is used; add it, or leave --patience away"),
    _Rule("--movable", lambda run: run.moves == 0, "nothing is moved; add --moves 1, or leave --movable away"),
    _Rule("--unknown-mix", lambda run: not any(map(_learns, run.policies)),
          "none of these policies goes by the mix; add --policy adaptive, or leave --unknown-mix away"),
    _Rule("--bound", lambda run: run.queue is not QueueDiscipline.NONE,
          "a bound is on what is accepted; where pods wait, all are. Use --queue none with --bound"),
    _Rule("--target", _missing("--find-gpus"), "it says what --find-gpus is to reach; add --find-gpus"),
    _Rule("--bound", _given("--find-gpus"), "--find-gpus tries many fleets; use --bound with the one that it finds"),
    _Rule("--report", _given("--find-gpus"), "--find-gpus tries many fleets; use --report with the one that it finds"),
    _Rule("--json", _given("--output"), "--json is the same as -o json; leave one of them away"),
)  # fmt: skip


def refuse(run: Combination) -> None:
    """Raises BadInput for the first flag that was given and would have no effect, with the remedy."""
    for rule in _RULES:
        if rule.flag in run.given and rule.void(run):
            raise BadInput(f"{rule.flag} would have no effect: {rule.why}")
    if "all" in run.policies and len(run.policies) > 1:
        raise BadInput("--policy all names every policy; leave the other --policy away")
