"""The two trace formats: what a good line becomes, and what is said about a bad one."""

import pytest
from small_runs import ONE_GPU

from instaslice.errors import BadInput
from instaslice.simulate import alibaba, migbench
from instaslice.simulate.fleets import from_flags
from instaslice.simulate.fractions import FractionAs
from instaslice.simulate.jobs import Job

HEADER = "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
H100S = from_flags(["2x4xH100-80GB-SXM5"], ["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"])


@pytest.fixture
def pods(tmp_path):
    return lambda text: alibaba.read(_written(tmp_path / "pods.csv", text), ONE_GPU.main_model, FractionAs.MEMORY)


@pytest.fixture
def jobs(tmp_path):
    return lambda text, plan=ONE_GPU: migbench.read(_written(tmp_path / "jobs.jsonl", text), plan)


def _written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_pods_of_a_csv_come_by_arrival_with_lives_from_their_scheduling(pods):
    rows = "b,1,1000,20,50,30\na,1,125,10,15,\nno-gpu,0,0,0,9,0\nthree,3,1000,20,21,20\n"
    found = pods(HEADER + rows)
    assert found.skipped == 1
    assert found.jobs == [
        Job(10_000, 5_000, ("1g.5gb",)),
        Job(20_000, 20_000, ("7g.40gb",)),
        Job(20_000, 1_000, ("7g.40gb",) * 3),
    ]


@pytest.mark.parametrize(
    ("milli", "reading", "profile"),
    [
        pytest.param(125, FractionAs.MEMORY, "1g.5gb", id="an eighth of the memory is the smallest"),
        pytest.param(
            130, FractionAs.MEMORY, "1g.10gb", id="a little more takes two memory slices, and no more compute"
        ),
        pytest.param(500, FractionAs.MEMORY, "3g.20gb", id="half the memory"),
        pytest.param(510, FractionAs.MEMORY, "7g.40gb", id="more than half is the whole"),
        pytest.param(140, FractionAs.COMPUTE, "1g.5gb", id="a seventh of the compute is the smallest"),
        pytest.param(200, FractionAs.COMPUTE, "2g.10gb", id="two sevenths"),
        pytest.param(500, FractionAs.COMPUTE, "4g.20gb", id="half the compute is four sevenths"),
        pytest.param(200, FractionAs.BOTH, "2g.10gb", id="both: as much compute as memory"),
    ],
)
def test_how_a_fraction_becomes_a_profile(tmp_path, milli, reading, profile):
    path = _written(tmp_path / "pods.csv", f"{HEADER}a,1,{milli},0,1,0\n")
    assert alibaba.read(path, ONE_GPU.main_model, reading).jobs[0].wants == (profile,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("name,num_gpu,colour\n", r"line 1: unknown column 'colour'; known are", id="unknown column"),
        pytest.param("name,num_gpu\n", r"line 1: column 'gpu_milli' is missing", id="missing column"),
        pytest.param("", r"line 1: column 'num_gpu' is missing", id="empty file"),
        pytest.param(HEADER + "a,1,1000,-5,9,0\n", r"line 2: creation_time -5 is below 0", id="negative time"),
        pytest.param(HEADER + "a,1,500,0,9,0\nb,one,500,0,9,0\n", r"line 3: num_gpu 'one' is not", id="no number"),
        pytest.param(HEADER + "a,1,1000,9,3,9\n", r"line 2: deletion_time 3 is before its start", id="ends too early"),
        pytest.param(HEADER + "a,1,1001,0,9,0\n", r"line 2: gpu_milli 1001 is no part of one", id="more than a GPU"),
        pytest.param(HEADER + "a,1,0,0,9,0\n", r"line 2: gpu_milli 0 is no part of one", id="nothing of a GPU"),
        pytest.param(HEADER + "a,1\n", r"line 2: 2 values for 6 columns", id="short line"),
    ],
)
def test_what_is_said_about_a_bad_csv(pods, text, said):
    with pytest.raises(BadInput, match=r"pods\.csv, " + said) as raised:
        pods(text)
    assert "\n" not in str(raised.value)


def test_jobs_of_jsonl_by_memory_and_work_or_by_profile_and_duration(jobs):
    lines = (
        '{"jobID": "b", "arrivalMS": 7, "profile": "mig-1g.5gb.me", "durationMS": 90}\n\n'
        '{"jobID": "a", "format": "resource-bound-v2", "arrivalMS": 5, "computeCoreMS": 1401, "memoryMB": 5120}\n'
        '{"jobID": "c", "arrivalMS": 8, "profiles": ["1g.5gb", "3g.20gb"], "durationMS": 90}\n'
    )
    assert jobs(lines).jobs == [
        Job(5, 101, ("1g.5gb",)),
        Job(7, 90, ("1g.5gb+me",)),
        Job(8, 90, ("1g.5gb", "3g.20gb")),
    ]


@pytest.mark.parametrize(
    ("memory", "profile", "life"),
    [(10240, "1g.10gb", 3000), (20480, "2g.20gb", 1500), (40960, "3g.40gb", 1000), (81920, "7g.80gb", 420)],
)
def test_work_takes_as_long_as_the_profile_needs(jobs, memory, profile, life):
    line = f'{{"arrivalMS": 0, "computeCoreMS": 42000, "memoryMB": {memory}}}'
    assert jobs(line, H100S).jobs == [Job(0, life, (profile,))]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param('{"arrivalMS": 0, "colour": 1}', "unknown field `colour`", id="unknown key"),
        pytest.param('{"jobID": "a"}', "missing required field `arrivalMS`", id="missing key"),
        pytest.param("{", "malformed|truncated", id="no JSON"),
        pytest.param('{"arrivalMS": "now"}', "Expected `int`", id="no number"),
        pytest.param('{"arrivalMS": -1, "profile": "1g.5gb", "durationMS": 1}', "arrivalMS -1 is below 0", id="time"),
        pytest.param('{"arrivalMS": 0, "profile": "1g.5gb"}', "durationMS 0 of a job with a profile", id="no duration"),
        pytest.param('{"arrivalMS": 0, "profile": "1g.6gb", "durationMS": 1}', "1g.6gb does not exist", id="profile"),
        pytest.param('{"arrivalMS": 0}', "needs a profile and durationMS, or computeCoreMS", id="nothing asked"),
        pytest.param('{"arrivalMS": 0, "computeCoreMS": 1, "memoryMB": 90000}', "no profile of A100-40GB", id="memory"),
    ],
)
def test_what_is_said_about_a_bad_line(jobs, line, said):
    good = '{"arrivalMS": 0, "profile": "1g.5gb", "durationMS": 1}\n'
    with pytest.raises(BadInput, match=rf"(?i)jobs\.jsonl, line 2: .*({said})") as raised:
        jobs(good + line)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "read", [lambda p: alibaba.read(p, ONE_GPU.main_model, FractionAs.MEMORY), lambda p: migbench.read(p, ONE_GPU)]
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, read):
    with pytest.raises(BadInput, match=r"nowhere.*no such file or directory"):
        read(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="directory"):
        read(tmp_path)


def test_a_csv_that_is_not_text_is_one_line(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="utf-8"):
        alibaba.read(tmp_path / "x.csv", ONE_GPU.main_model, FractionAs.MEMORY)
