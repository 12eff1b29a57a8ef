"""The v3 trace of MIGBench under our model of DRA against the real control plane that its authors measured.

INSTASLICE_TRACES names a folder with `migbench-v3.jsonl`; docs/simulator.md says where it comes from.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from instaslice.geometry import Model, models
from instaslice.placement import policies
from instaslice.simulate import migbench, workloads
from instaslice.simulate.comparison import Scenario, compare
from instaslice.simulate.fleets import FleetPlan, NodeGroup
from instaslice.simulate.simulation import QueueDiscipline, Rules

PUBLISHED_MEAN_WAIT_MS = 2_755_964
SEEDS = tuple(range(1, 21))
H100 = models.named("H100-80GB-SXM5").only(["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"])


@pytest.fixture(scope="module")
def trace() -> Path:
    folder = os.environ.get("INSTASLICE_TRACES")
    path = Path(folder or ".") / "migbench-v3.jsonl"
    if not folder or not path.exists():
        pytest.skip("set INSTASLICE_TRACES to a folder with migbench-v3.jsonl to replay it")
    return path


def scenario(trace: Path, model: Model, *names: str) -> Scenario:
    plan = FleetPlan([NodeGroup(2, 4, model)])
    workload = workloads.TraceReplay(migbench.read(trace, plan).jobs)
    # kube-scheduler reserves nothing for a pod that waits.
    rules = Rules(QueueDiscipline.BACKFILL, create_ms=250, destroy_ms=100, patience_ms=None)
    return Scenario(plan, workload, rules, names, SEEDS)


def test_dra_waits_as_long_as_published_and_ours_no_longer(trace):
    dra, ours = compare(scenario(trace, H100, "dra", policies.DEFAULT)).policies
    waited = dra.summary["wait_mean_ms"].mean
    assert abs(waited / PUBLISHED_MEAN_WAIT_MS - 1) < 0.02
    assert ours.summary["wait_mean_ms"].mean <= waited
    assert all(run.accepted == 500 for each in (dra, ours) for run in each.runs)


def test_so_it_does_on_the_fake_gpu_that_was_measured(trace):
    """MIGBench's GPU has seven slots; its 3g takes three of them, and its 7g all."""
    sizes = {"3g.40gb": 3, "7g.80gb": 7}
    profiles = tuple(replace(profile, size=sizes.get(profile.name, profile.size)) for profile in H100.profiles)
    fake = replace(H100, memory_slices=7, profiles=profiles)
    (dra,) = compare(scenario(trace, fake, "dra")).policies
    assert abs(dra.summary["wait_mean_ms"].mean / PUBLISHED_MEAN_WAIT_MS - 1) < 0.02
