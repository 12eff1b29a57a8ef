"""The output says what was simulated, by the flags that have an effect and the command; others are refused."""

import json
import re
import shlex
from itertools import combinations

import pytest
import yaml
from click.testing import CliRunner

from instaslice.cli import simulate
from instaslice.cli.simulate import command
from instaslice.errors import BadInput

SMALL = ("--fleet", "1x2xA100-40GB", "--pods", "60", "--policy", "fgd")


def told(*words):
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def files(tmp_path):
    """Inputs by flag, each small."""
    (tmp_path / "pods.csv").write_text(
        "num_gpu,gpu_milli,creation_time,deletion_time\n0,0,0,1\n" + "1,460,5,30\n" * 9 + "1,1000,6,90\n"
    )
    (tmp_path / "jobs.jsonl").write_text('{"arrivalMS": 0, "profile": "7g.40gb", "durationMS": 1000}\n' * 3)
    (tmp_path / "fleet.json").write_text('{"nodes": [{"count": 1, "gpus": 2, "model": "A100-40GB"}]}')
    return tmp_path


def choices(files):
    """For each flag that can decide something, a value other than its default."""
    return [
        ("--fleet", "1x1xA100-40GB"),
        ("--fleet-file", str(files / "fleet.json")),
        ("--profiles", "1g.5gb,3g.20gb,7g.40gb"),
        ("--mix", "small"),
        ("--load", "0.8"),
        ("--pods", "50"),
        ("--life", "60"),
        ("--lives", "fixed"),
        ("--fill",),
        ("--trace", str(files / "pods.csv")),
        ("--trace", str(files / "jobs.jsonl")),
        ("--fraction-as", "compute"),
        ("--resample",),
        ("--queue", "fifo"),
        ("--queue", "backfill"),
        ("--patience", "60"),
        ("--create-ms", "250"),
        ("--destroy-ms", "100"),
        ("--warm-up", "0.1"),
        ("--policy", "fgd"),
        ("--policy", "first-fit"),
        ("--unknown-mix",),
        ("--moves", "1"),
        ("--movable", "0.5"),
        ("--seed", "7"),
        ("--seeds", "2"),
        ("--bound",),
        ("--find-gpus",),
        ("--target", "90%"),
    ]


def test_no_pair_of_flags_is_accepted_of_which_one_has_no_effect(files, monkeypatch):
    """Refused, or both are among the settings, from which the command is made that repeats the result."""
    noted = []
    for run in ("_compare", "_find"):
        monkeypatch.setattr(simulate, run, lambda scenario, settings, *_: noted.append(settings.values))
    accepted = 0
    for first, second in combinations(choices(files), 2):
        if first[0] == second[0] and first[0] != "--policy":
            continue
        try:
            told(*first, *second, *(() if {"--policy"} & {first[0], second[0]} else ("--policy", "fgd")))
        except BadInput as error:
            assert "--" in str(error), "it names the flag"
            continue
        accepted += 1
        for flag, *value in (first, second):
            found = noted[-1].get(flag.removeprefix("--"))
            listed = found if isinstance(found, tuple) else [str(found).removesuffix(".0")]
            assert (value or ["True"])[0] in listed, (*first, *second)
    assert accepted > 150, "not everything is refused"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fleet-file", "x.json", "--fleet", "1x1xA30"), "--fleet would have no effect: .* leave --fleet away"),
        (("--fleet-file", "x.json", "--profiles", "1g.5gb"), "--profiles would have no effect: .* into its entries"),
        (("--trace", "x.csv", "--mix", "uniform"), "--mix would have no effect: the trace says which pods arrive"),
        (("--trace", "x.csv", "--load", "1"), "--load would have no effect: .* add --resample"),
        (("--trace", "x.csv", "--pods", "9"), "--pods would have no effect: .* add --resample"),
        (("--trace", "x.csv", "--life", "9"), "--life would have no effect: the trace says how long"),
        (("--trace", "x.csv", "--resample", "--lives", "fixed"), "--lives would have no effect: the trace says how"),
        (("--trace", "x.csv", "--fill"), "--fill would have no effect: .* leave --trace or --fill away"),
        (("--trace", "x.jsonl", "--fraction-as", "both"), "--fraction-as would have no effect: only a .csv trace"),
        (("--resample",), "--resample would have no effect: .* name it with --trace"),
        (("--fill", "--pods", "9"), "--pods would have no effect: .* change that with --load"),
        (("--fill", "--life", "9"), "--life would have no effect: pods never end"),
        (("--fill", "--queue", "fifo"), "--queue would have no effect: .* use --queue none"),
        (("--fill", "--destroy-ms", "9"), "--destroy-ms would have no effect: pods never end"),
        (("--movable", "0.5"), "--movable would have no effect: nothing is moved; add --moves 1"),
        (("--queue", "fifo", "--patience", "9"), "--patience would have no effect: .* --queue backfill"),
        (("--policy", "dra", "--unknown-mix"), "--unknown-mix would have no effect: .* add --policy adaptive"),
        (("--bound", "--queue", "fifo"), "--bound would have no effect: .* Use --queue none"),
        (("--target", "99%"), "--target would have no effect: .* add --find-gpus"),
        (("--find-gpus", "--report", "x.html"), "--report would have no effect"),
        (("--json", "-o", "yaml"), "--json would have no effect"),
        (("--policy", "all", "--policy", "dra"), "--policy all names every policy; leave the other"),
    ],
)
def test_a_flag_that_another_makes_void_is_refused_with_the_remedy(words, said):
    with pytest.raises(BadInput, match=said) as raised:
        told(*words)
    assert "\n" not in str(raised.value)


def test_a_default_is_no_flag_that_was_given():
    assert "--movable" not in json.loads(told(*SMALL, "-o", "json"))["command"]


@pytest.mark.parametrize(
    "words",
    [
        SMALL,
        (*SMALL, "--queue", "backfill", "--patience", "never", "--create-ms", "250", "--seeds", "2", "--seed", "3"),
        (*SMALL, "--moves", "1", "--movable", "0.25", "--warm-up", "0", "--load", "1.23456789"),
        ("--fleet", "1x1xA30", "--fleet", "1x2xA100-40GB", "--fill", "--mix", "1g.6gb=2,1g.5gb/3g.20gb=1"),
        (*SMALL, "--find-gpus", "--target", "95%"),
    ],
)
def test_the_printed_command_repeats_the_result(words):
    first = json.loads(told(*words, "-o", "json"))
    program, name, *again = shlex.split(first["command"])
    assert (program, name) == ("instaslice", "simulate")
    assert json.loads(told(*again, "-o", "json")) == first
    assert told(*words).splitlines()[-1] == f"Again: {first['command']}"


def test_table_data_and_page_say_what_was_simulated(tmp_path):
    page = tmp_path / "out.html"
    words = (*SMALL, "--load", "0.7", "--mix", "small", "--seed", "5", "--moves", "2", "--queue", "backfill")
    table = told(*words, "--report", str(page))
    text = page.read_text(encoding="utf-8")
    on_page = dict(json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])["settings"])
    for name, said in {
        "fleet": "1x2xA100-40GB (2 GPUs, 16 memory slices)",
        "pods": "60 pods, Poisson arrivals, exponential lives of 3600 s; the first 12 are not counted",
        "mix": "small: slices per pod 1g.5gb 0.38",
        "load": "0.7 times what fits with ideal packing",
        "no room": "GPUs are reserved for the first after 5.00 min",
        "moves": "at most 2 slices for a pod; 100 % of the pods may be moved",
        "policies": "fgd; the mix and the load are known beforehand",
        "seed": "5",
    }.items():
        assert said in on_page[name]
        assert re.search(rf"^{name.capitalize()} .*{re.escape(said)}", table, re.MULTILINE)
    settings = json.loads(told(*words, "-o", "json"))["settings"]
    assert settings["policy"] == ["fgd"]
    assert (settings["load"], settings["mix"], settings["seed"], settings["moves"]) == (0.7, "small", 5, 2)
    assert settings["patience"] == 300.0


def test_rows_of_a_trace_that_were_left_out_are_counted(files):
    trace = ("--trace", str(files / "pods.csv"), "--fleet", "1x2xA100-40GB", "--policy", "fgd")
    assert "10 pods of a trace at their own times (1 that want no GPU left out)" in told(*trace)
    assert json.loads(told(*trace, "-o", "json"))["skipped"] == 1


def test_yaml_says_the_same_as_json():
    assert yaml.safe_load(told(*SMALL, "-o", "yaml")) == json.loads(told(*SMALL, "-o", "json"))


@pytest.mark.parametrize(
    ("words", "waits"),
    [
        pytest.param((), False, id="pods that do not fit are rejected"),
        pytest.param(("--create-ms", "250"), False, id="the time to create slices is no wait for room"),
        pytest.param(("--queue", "backfill", "--load", "0.01"), False, id="a queue in which nobody waits"),
        pytest.param(("--queue", "backfill"), True, id="pods wait"),
    ],
)
def test_waits_are_shown_where_pods_wait(words, waits, tmp_path):
    page = tmp_path / "out.html"
    table = told(*SMALL, *words, "--report", str(page))
    assert ("WAIT MEAN" in table) == ("Mean wait, by profile" in table) == waits
    assert ("No pod waited for room." in table) == (not waits and "backfill" in words)
    assert ('"wait mean"' in page.read_text(encoding="utf-8")) == waits


def test_every_column_is_explained_on_the_page_and_in_help(tmp_path):
    page = tmp_path / "out.html"
    words = (*SMALL, "--policy", "dra", "--moves", "1")
    columns = [told(*words, "--report", str(page)).splitlines()]
    shown = told("--help")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)[1])
    header = next(line for line in columns[0] if line.startswith("POLICY"))
    assert re.split(r" {2,}", header.strip()) == [name.upper() for name, _ in data["columns"]]
    for name, meaning in data["columns"]:
        assert len(meaning) > 10
        assert re.search(rf"^ +{name} +{re.escape(meaning)}$", shown, re.MULTILINE), name
    assert all(len(row) == len(data["columns"]) for row in data["rows"])
