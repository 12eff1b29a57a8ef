"""How many nodes a workload needs: the search, what it is asked for, and what it says where no number would do."""

import json
import re

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from small_runs import job

from instaslice.cli.simulate import command
from instaslice.errors import BadInput
from instaslice.simulate import fleets, sizing
from instaslice.simulate.comparison import Scenario
from instaslice.simulate.simulation import QueueDiscipline, Rules
from instaslice.simulate.sizing import needed, read_target, smallest
from instaslice.simulate.workloads import TraceReplay

WHOLE = "7g.40gb"
NONE, BACKFILL = QueueDiscipline.NONE, QueueDiscipline.BACKFILL


def found(jobs, target, *shapes, queue=NONE, seeds=(1,), **rules):
    """The answer for first-fit, and the numbers of nodes that were tried."""
    plan = fleets.from_flags(shapes or ["1x1xA100-40GB"])
    scenario = Scenario(plan, TraceReplay(jobs), Rules(queue, **rules), ("first-fit",), seeds)
    (answer,) = needed(scenario, read_target(target, queue))
    return answer


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 1))
def test_the_smallest_number_is_found_wherever_the_search_begins(answer, start, least):
    asked = []
    assert smallest(lambda n: asked.append(n) or n >= answer, start, least, 1000) == answer
    assert len(set(asked)) <= 24, "doubling and bisection"
    assert {answer - 1, answer, answer + 1} - {least - 1} <= set(asked), "its neighbours are confirmed"


@pytest.mark.parametrize(
    ("good", "start", "answer"),
    [
        pytest.param({5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, 6, 7, id="five reach it, six do not: seven is sure"),
        pytest.param({3, 10, 11, 12, 13, 14, 15, 16}, 3, 10, id="a lone number below is luck"),
        pytest.param(set(), 4, None, id="none"),
        pytest.param({16}, 1, 16, id="the most that there may be"),
    ],
)
def test_one_more_must_reach_it_too(good, start, answer):
    assert smallest(good.__contains__, start, 1, 16) == answer


def test_five_whole_gpus_at_once_need_five():
    jobs = [job(0, 10, WHOLE) for _ in range(5)]
    answer = found(jobs, "100%")
    assert (answer.nodes, answer.gpus, answer.fleet) == (5, 5, "5x1xA100-40GB")
    assert (answer.one_less.slices.mean, answer.found.slices.mean) == (0.8, 1.0)
    assert found(jobs, "80%").nodes == 4
    assert found(jobs, "81%").nodes == 5


def test_nodes_of_two_gpus_are_counted_as_nodes():
    answer = found([job(0, 10, WHOLE) for _ in range(5)], "100%", "9x2xA100-40GB")
    assert (answer.nodes, answer.gpus) == (3, 6)


def test_only_the_last_group_grows_and_may_not_be_needed_at_all():
    jobs = [job(0, 10, WHOLE) for _ in range(5)]
    answer = found(jobs, "100%", "3x1xA100-40GB", "7x1xA100-40GB")
    assert (answer.fleet, answer.nodes) == ("3x1xA100-40GB, 2x1xA100-40GB", 5)
    assert found(jobs, "100%", "5x1xA100-40GB", "1x1xA30").fleet == "5x1xA100-40GB, 0x1xA30"


@pytest.mark.parametrize(
    ("target", "nodes"),
    [
        pytest.param("20s", 1, id="each of three waits for those before it: 0, 10 and 20 s"),
        pytest.param("19s", 2, id="with two, the third waits 10 s"),
        pytest.param("9s", 3, id="nobody waits"),
    ],
)
def test_with_a_queue_the_target_is_a_wait(target, nodes):
    assert found([job(0, 10_000, WHOLE) for _ in range(3)], target, queue=BACKFILL).nodes == nodes


def test_pods_that_never_run_wait_without_end():
    """Nodes of one GPU hold no pair, so without a node of the last group one pod of ten never runs."""
    jobs = [job(1000 * number, 500, WHOLE) for number in range(9)] + [job(9000, 500, WHOLE, WHOLE)]
    answer = found(jobs, "60s", "3x1xA100-40GB", "1x2xA100-40GB", queue=BACKFILL)
    assert answer.fleet == "3x1xA100-40GB, 1x2xA100-40GB"
    assert answer.one_less.wait_p95_ms is None
    assert answer.found.impossible == 0


def test_a_few_pods_that_never_run_are_in_the_wait_and_are_named():
    """Of 40, each waiting 10 s longer than the one before: the 38th is the 95th percentile of all, the 37th of the rest
    would be."""
    jobs = [job(0, 10_000, WHOLE) for _ in range(39)] + [job(0, 1, WHOLE, WHOLE)]
    answer = found(jobs, "371s", queue=BACKFILL, patience_ms=None)
    assert (answer.nodes, answer.found.wait_p95_ms.mean, answer.found.impossible) == (
        1,
        pytest.approx(370_000, 1e-3),
        1,
    )
    assert found(jobs, "369s", queue=BACKFILL, patience_ms=None).nodes == 2
    words = ("--fleet", "1x1xA30", "--mix", "1g.6gb=97,2x4g.24gb=3", "--queue", "backfill", "--pods", "300")
    said = CliRunner().invoke(command, (*words, "--find-gpus", "--target", "1h"), catch_exceptions=False).stdout
    assert re.search(r"^\d+ pods fit no node even when empty; they count as waiting without end\.$", said, re.MULTILINE)


def test_the_demand_stays_while_the_fleet_grows():
    """The load is relative to the fleet that was given: twice the fleet, twice the answer."""

    def gpus(nodes, load):
        words = ("--fleet", f"{nodes}x8xA100-40GB", "--load", load, "--pods", "2000", "--policy", "first-fit")
        done = CliRunner().invoke(command, (*words, "--find-gpus", "--json"), catch_exceptions=False)
        return json.loads(done.stdout)["needed"][0]["gpus"]

    assert gpus(2, "1.0") == gpus(4, "0.5") == gpus(1, "2.0")
    assert gpus(8, "1.0") >= 2 * gpus(2, "1.0")


def test_each_policy_has_its_own_answer_in_the_table_and_as_data():
    words = ("--fleet", "1x4xA100-40GB", "--pods", "400", "--policy", "spread", "--policy", "best-fit", "--seeds", "2")
    words = (*words, "--find-gpus", "--target", "99%")
    facts = json.loads(CliRunner().invoke(command, (*words, "-o", "json"), catch_exceptions=False).stdout)
    table = CliRunner().invoke(command, words, catch_exceptions=False).stdout
    assert [each["policy"] for each in facts["needed"]] == ["spread", "best-fit"]
    assert facts["target"]["share"] == 0.99
    for each in facts["needed"]:
        assert re.search(rf"^{each['policy']} +{each['nodes']} +{each['gpus']} +\d", table, re.MULTILINE)
        by_nodes = {tried["nodes"]: tried for tried in each["tried"]}
        assert by_nodes[each["nodes"]]["meets"]
        assert by_nodes[each["nodes"] + 1]["meets"]
        assert not by_nodes[each["nodes"] - 1]["meets"]
        assert by_nodes[each["nodes"]]["slices"]["mean"] >= 0.99
    assert "Target on average over the seeds: 99% of the requested memory slices find room." in table


@pytest.mark.parametrize(
    ("text", "queue", "said"),
    [
        ("99", NONE, "--target '99': write a part of the memory like 99%, or a wait like 90s"),
        ("fast", NONE, "--target 'fast': write"),
        ("0%", NONE, "--target 0%: give a part above 0% and up to 100%"),
        ("101%", NONE, "up to 100%"),
        ("99%", BACKFILL, "with --queue backfill every pod is placed in the end; give a wait like 60s"),
        ("60s", NONE, "nobody waits with --queue none; give a part like 99%"),
    ],
)
def test_a_target_that_cannot_be_is_refused(text, queue, said):
    with pytest.raises(BadInput, match=said):
        read_target(text, queue)


def test_a_queue_needs_a_target_of_its_own():
    with pytest.raises(BadInput, match="say with --target, like --target 60s"):
        CliRunner().invoke(command, ("--find-gpus", "--queue", "backfill"), catch_exceptions=False)


def test_what_no_number_of_nodes_could_reach_is_said_before_anything_is_tried():
    jobs = [job(0, 10, WHOLE, WHOLE), job(0, 10, WHOLE), job(0, 10, WHOLE)]
    said = r"--target 99%: at most 50.0 % find room on any number of nodes, since no node could hold 2x7g.40gb; use"
    with pytest.raises(BadInput, match=said):
        found(jobs, "99%")
    assert found(jobs, "50%").nodes == 2, "what can be reached is searched for"
    said = (
        r"--target 60s: at most 66.7 % of the pods ever run on any number of nodes, since no node could hold 2x7g.40gb"
    )
    with pytest.raises(BadInput, match=said):
        found(jobs, "60s", queue=BACKFILL)
    with pytest.raises(BadInput, match="creating slices alone takes 250 ms; give a longer wait"):
        found(jobs, "100ms", queue=BACKFILL, create_ms=250)


def test_pods_too_few_for_the_load_are_refused_and_enough_are_the_default():
    words = ("--fleet", "40x8xA100-40GB", "--policy", "first-fit", "--find-gpus")
    said = (
        r"--find-gpus: it would find GPUs for less than the load, since 300 pods meet \d\d\.\d % of the load on average"
    )
    with pytest.raises(BadInput, match=rf"{said}, as the fleet begins empty; give --pods 20000 to meet it$"):
        CliRunner().invoke(command, (*words, "--pods", "300"), catch_exceptions=False)
    done = CliRunner().invoke(command, (*words, "--target", "80%", "--json"), catch_exceptions=False)
    facts = json.loads(done.stdout)
    assert facts["settings"]["pods"] == 20_000
    assert facts["load_met"] > 0.99


def test_nodes_that_could_hold_none_of_the_pods_are_not_added(monkeypatch):
    tried, jobs = [], [job(0, 10, WHOLE), job(0, 10, WHOLE)]
    monkeypatch.setattr(sizing, "_try", lambda *words, try_=sizing._try: tried.append(words[1]) or try_(*words))
    said = (
        "--target 99%: first-fit does not reach it with 1 GPUs, and more H200-141GB would not help, as their nodes "
        "could not hold 7g.40gb; put the --fleet that is to grow last, or lower the target"
    )
    with pytest.raises(BadInput, match=f"^{said}$"):
        found(jobs, "99%", "1x1xA100-40GB", "1x1xH200")
    assert tried == [0]
    with pytest.raises(BadInput, match=r"with 5 GPUs, and more H200-141GB would not help, .* not hold 7g.40gb; "):
        found([*jobs, job(0, 10, "1g.18gb"), job(0, 10, "1g.18gb")], "99%", "1x1xA100-40GB", "1x1xH200")
    assert tried[-1] == 4, "a node for each pod is enough"


@pytest.mark.parametrize(
    ("load", "fleets_", "said"),
    [
        ("1.5", ["1x1xA100-40GB"], "In each case one node less misses the target, one more reaches it."),
        ("0.01", ["1x1xA100-40GB"], "stayed the same. In each case one more reaches it."),
        ("0.01", ["1x1xA100-40GB", "1x1xA30"], "stayed the same.\n"),
    ],
)
def test_only_the_neighbours_that_were_tried_confirm_the_answer(load, fleets_, said):
    words = [word for each in fleets_ for word in ("--fleet", each)]
    words += ["--mix", "7g.40gb", "--load", load, "--pods", "300", "--find-gpus", "--target", "90%"]
    assert said in CliRunner().invoke(command, words, catch_exceptions=False).stdout
