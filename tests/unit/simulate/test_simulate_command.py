"""`instaslice simulate` from the outside: the table, JSON, the page, and one line for what is wrong."""

import json
import re

import pytest
from click.testing import CliRunner

from instaslice.cli.simulate import command
from instaslice.errors import BadInput, InstasliceError
from instaslice.placement import policies

SMALL = ("--fleet", "1x2xA100-40GB", "--pods", "300")


def told(*words: str) -> str:
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_policy_side_by_side():
    table = told(*SMALL, "--policy", "all")
    assert all(re.search(rf"^{name} +\d", table, re.MULTILINE) for name in policies.names())
    assert re.search(r"^Fleet +1x2xA100-40GB \(2 GPUs, 16 memory slices\)$", table, re.MULTILINE)
    assert re.search(r"^Pods +300 pods, Poisson arrivals", table, re.MULTILINE)
    assert re.search(r"^7g\.40gb +\d+ +\d", table, re.MULTILINE)
    assert "…" not in table, "nothing is cut off when the output is no terminal"


@pytest.mark.parametrize("how", [("-o", "json"), ("--json",)])
def test_json_is_the_same_each_time_and_adds_up(how):
    words = (*SMALL, "--policy", "dra", "--policy", "adaptive", "--seeds", "2", *how)
    facts = json.loads(told(*words))
    assert facts == json.loads(told(*words))
    assert [each["policy"] for each in facts["policies"]] == ["dra", "adaptive"]
    for each in facts["policies"]:
        assert [run["seed"] for run in each["runs"]] == [1, 2]
        for run in each["runs"]:
            assert run["arrived"] == run["accepted"] + run["rejected"] + run["waiting"] == 240


def test_policies_are_compared_on_the_same_pods():
    facts = json.loads(told(*SMALL, "--policy", "all", "--json"))
    assert len({each["runs"][0]["slices_asked"] for each in facts["policies"]}) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--fill", "--load", "1.05"),
        ("--queue", "backfill", "--pods", "200", "--create-ms", "250", "--destroy-ms", "100"),
        ("--queue", "fifo", "--pods", "100", "--lives", "lognormal"),
        ("--moves", "1", "--movable", "0.5", "--pods", "200"),
        ("--unknown-mix", "--pods", "700"),
    ],
)
def test_the_regimes(words):
    run = json.loads(told("--fleet", "1x2xA100-40GB", *words, "--json"))["policies"][0]["runs"][0]
    assert run["arrived"] == run["accepted"] + run["rejected"] + run["waiting"] > 0


def test_a_bound_is_put_in_words(tmp_path):
    table = told(*SMALL, "--bound", "--load", "1.5")
    assert re.search(r"adaptive gives \d+\.\d % of the bound", table)


def test_the_page_loads_nothing_and_holds_all(tmp_path):
    page = tmp_path / "out.html"
    told(*SMALL, "--policy", "dra", "--policy", "adaptive", "--report", str(page))
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"https?://|src=|@import|url\(|<link", text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert [line["policy"] for line in data["lines"]] == ["dra", "adaptive"]
    assert len(data["gpus"]) == 2
    for line in data["lines"]:
        assert len(line["at"]) == len(line["used"]) == len(line["states"]) > 10
        for states in line["states"]:
            layouts = [data["geometries"][gpu["geometry"]]["layouts"] for gpu in data["gpus"]]
            assert all(str(state) in layout for state, layout in zip(states, layouts, strict=True))


@pytest.mark.parametrize(
    ("mix", "noted"),
    [
        pytest.param("uniform", True, id="equal shares fill the small model first"),
        pytest.param("1g.18gb=14,1g.6gb=1", False, id="shares as there are GPUs"),
    ],
)
def test_a_mix_that_fills_only_one_of_two_models_says_so(mix, noted):
    fleet = ("--fleet", "2x8xH200", "--fleet", "1x2xA30", "--pods", "300", "--policy", "first-fit")
    table = told(*fleet, "--mix", mix)
    assert (
        bool(re.search(r"^At load 1\.0 this mix fills only \d\d % of the memory slices", table, re.MULTILINE)) == noted
    )
    assert "this mix fills only" not in told(*SMALL)


def test_the_page_names_the_model_of_each_gpu(tmp_path):
    page = tmp_path / "out.html"
    told("--fleet", "1x2xH200", "--fleet", "1x1xA30", "--pods", "100", "--report", str(page))
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)[1])
    assert [each["model"] for each in data["gpus"]] == ["H200-141GB", "H200-141GB", "A30"]
    slices = [data["geometries"][each["geometry"]]["slices"] for each in data["gpus"]]
    assert slices == [8, 8, 4]


def test_a_trace_is_replayed_at_its_own_times_or_resampled_at_a_load(tmp_path):
    trace = tmp_path / "jobs.jsonl"
    trace.write_text('{"arrivalMS": 0, "profile": "7g.40gb", "durationMS": 1000}\n' * 3)
    fleet = ("--fleet", "1x1xA100-40GB", "--trace", str(trace))
    replayed = json.loads(told(*fleet, "--json"))["policies"][0]["runs"][0]
    assert (replayed["accepted"], replayed["wait_mean_ms"], replayed["makespan_ms"]) == (3, 1000.0, 3000)
    drawn = json.loads(told(*fleet, "--resample", "--load", "2", "--pods", "100", "--json"))["policies"][0]["runs"][0]
    assert drawn["arrived"] == 80
    assert 0.2 < drawn["accepted"] / drawn["arrived"] < 0.5


def test_a_run_too_short_for_its_load_says_so():
    fleet = ("--fleet", "100x8xA100-40GB", "--policy", "first-fit")
    short = told(*fleet, "--pods", "500")
    assert re.search(
        r"^500 pods meet 1\d\.\d % of the load on average, .* give --pods 40000 to meet it\.$", short, re.MULTILINE
    )
    facts = json.loads(told(*fleet, "--json"))
    assert facts["settings"]["pods"] == 40_000
    assert facts["policies"][0]["summary"]["slices_used"]["mean"] > 0.8 * facts["memory_slices"]
    assert "of the load on average" not in told(*SMALL)


@pytest.mark.parametrize(("load", "grows"), [("1", True), ("1.5", True), ("0.9", False)])
def test_a_queue_that_grows_without_end_says_so(load, grows):
    assert (
        "the queue grows for as long as pods arrive" in told(*SMALL, "--queue", "backfill", "--load", load)
    ) == grows
    assert "the queue grows" not in told(*SMALL, "--load", load)


@pytest.mark.parametrize(
    "words",
    [
        ("--load", "0"),
        ("--load", "nan"),
        ("--load", "1e308"),
        ("--pods", "0"),
        ("--pods", "99999999999999999999"),
        ("--life", "-1"),
        ("--life", "inf"),
        ("--lives", "long"),
        ("--queue", "lifo"),
        ("--patience", "-1"),
        ("--patience", "inf"),
        ("--create-ms", "-1"),
        ("--destroy-ms", "x"),
        ("--warm-up", "0.95"),
        ("--moves", "-1"),
        ("--movable", "1.5"),
        ("--seeds", "0"),
        ("--seeds", "100000000"),
        ("--seed", "x"),
        ("--output", "xml"),
        ("--fraction-as", "cores"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_flag(words):
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2
    assert f"{words[0]}'" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ("--policy", "best"), "--policy best: no placement policy 'best'; there are .*; or all", id="policy"
        ),
        pytest.param(
            ("--trace", "pods.txt"), r"--trace pods.txt: it ends in \.csv .* or \.jsonl", id="unknown kind of trace"
        ),
        pytest.param(("--trace", "nowhere.csv"), "--trace nowhere.csv cannot be read: no such file", id="no trace"),
        pytest.param(
            ("--fleet-file", "nowhere.json"), "--fleet-file nowhere.json cannot be read: no such file", id="no fleet"
        ),
        pytest.param(("--fleet", "8xA30"), "--fleet '8xA30': write NODESxGPUSxMODEL", id="fleet"),
        pytest.param(("--mix", "huge"), "--mix 'huge': 'huge' is no profile; write", id="mix"),
        pytest.param(("--profiles", ""), "--profiles '': name those that are allowed", id="no profile"),
        pytest.param(("--profiles", "9g.90gb"), "--profiles 9g.90gb: profile 9g.90gb does not exist", id="profile"),
        pytest.param(
            (*SMALL, "--report", "/nowhere/out.html"), "--report /nowhere/out.html .* there is no folder", id="page"
        ),
    ],
)
def test_bad_input_is_one_line(words, said):
    with pytest.raises(BadInput, match=said) as raised:
        told(*words)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, InstasliceError)
