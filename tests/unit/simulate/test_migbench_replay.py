"""The v3 trace of MIGBench under our model of DRA against the real control plane that its authors measured.

INSTASLICE_TRACES names a folder with `migbench-v3.jsonl`; docs/simulator.md says where it comes from.
"""

import os
from pathlib import Path

import pytest

from instaslice.placement import policies
from instaslice.simulate import fleets, migbench, workloads
from instaslice.simulate.comparison import Scenario, compare
from instaslice.simulate.simulation import Queue, Rules

PUBLISHED_MEAN_WAIT_MS = 2_755_964
SEEDS = tuple(range(1, 21))


@pytest.fixture(scope="module")
def trace() -> Path:
    folder = os.environ.get("INSTASLICE_TRACES")
    path = Path(folder or ".") / "migbench-v3.jsonl"
    if not folder or not path.exists():
        pytest.skip("set INSTASLICE_TRACES to a folder with migbench-v3.jsonl to replay it")
    return path


def test_dra_waits_as_long_as_published_and_ours_no_longer(trace):
    plan = fleets.from_flags(["2x4xH100-80GB-SXM5"], ["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"])
    workload = workloads.Replay(migbench.read(trace, plan).jobs)
    rules = Rules(Queue.BACKFILL, create_ms=250, destroy_ms=100)
    dra, ours = compare(Scenario(plan, workload, rules, ("dra", policies.DEFAULT), SEEDS)).policies
    waited = dra.summary["wait_mean_ms"].mean
    assert abs(waited / PUBLISHED_MEAN_WAIT_MS - 1) < 0.02
    assert ours.summary["wait_mean_ms"].mean <= waited
    assert all(run.accepted == 500 for each in (dra, ours) for run in each.runs)
