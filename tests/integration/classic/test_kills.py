"""Parts of the cluster are killed at random moments while pods come and go, and nobody notices but by the wait.

A failure names its seed: `INSTASLICE_SEED=7 pytest tests/integration/classic/test_kills.py` draws from the same dice.
The moments are not the same, they are the machine's; and while the leader is stopped, which lasts as long as it lasts,
it is not drawn. INSTASLICE_ROUNDS makes it longer, INSTASLICE_LATENCY=none the GPUs faster.
"""

import asyncio
import os
import random
import shutil
import time

import pytest
from chaos_load import LONG, NAMESPACE, WORKERS, Load, Witness, lives
from chaos_rounds import Rounds
from invariants import monitored

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES, SliceState
from instaslice.doctor import wait_until_settled
from instaslice.drivers.state_file import StateFile
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS
from instaslice.kube.watch import Reflector
from instaslice.local.binaries import Source
from instaslice.local.cluster import ClusterSpec

SEED = int(os.environ.get("INSTASLICE_SEED", "1"))
ROUNDS = int(os.environ.get("INSTASLICE_ROUNDS", "100"))
LATENCY = os.environ.get("INSTASLICE_LATENCY", "h200")
RATE = 2.0
"""Pods a second."""
ENDS_WITHIN = 180.0
SETTLES_WITHIN = 60.0


@pytest.fixture
def cluster(new_cluster, tmp_path):
    """Its logs stay behind: they tell what went wrong."""
    made = new_cluster("kills")
    made.up(ClusterSpec(nodes=4, gpus=2, latency=LATENCY), Source())
    yield made
    shutil.copytree(made.layout.logs, tmp_path / "logs")


@pytest.fixture
async def client(cluster):
    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as made:
        yield made


@pytest.fixture
def invariants():
    """In place of the folder's own: here they are checked before the long pods go and again after."""


def not_begun(pods):
    """Long pods that do not run yet."""
    running = {pod.metadata.name for pod in pods if pod.status.phase == "Running"}
    return [name for number in range(len(LONG)) if (name := f"long-{number}") not in running]


def unfinished(load):
    """Who is to succeed and has not, who is to go and is there."""

    def told(pods):
        there = {pod.metadata.name: pod for pod in pods if pod.metadata.namespace == NAMESPACE}
        missing = [f"{name} is gone" for name in sorted(load.finite - there.keys())]
        phases = {name: there[name].status.phase for name in sorted(load.finite & there.keys())}
        waiting = [f"{name} is {phase}" for name, phase in phases.items() if phase != "Succeeded"]
        left = [name for name in sorted(there) if name in load.deleted or name.startswith(WORKERS)]
        return missing + waiting + [f"{name} is not gone" for name in left]

    return told


async def held(client, cluster):
    """Places by the specs, and by the emulated hardware: (GPU, profile, start). Entries of slices that are gone are
    pruned with the controller's next write."""
    promised = {
        (each.gpu, each.profile, each.start)
        for thing in await client.list(INSTASLICES)
        for each in thing.spec.allocations
        if SliceState.DELETED not in {made.state for made in thing.status.slices if made.id == each.id}
    }
    hardware = {
        (gpu, made.profile, made.start)
        for file in cluster.layout.gpus.glob("*.gpus")
        for gpu, card in StateFile(file).contents.gpus.items()
        for made in card.instances.values()
    }
    return promised, hardware


async def healthy(client):
    """The doctor finds nothing and nothing is under way."""
    assert [str(each) for each in await wait_until_settled(client, SETTLES_WITHIN)] == []


async def test_a_hundred_kills_disturb_nobody(cluster, client, tmp_path, record_property):
    load, witness = Load(client, random.Random(SEED)), Witness()
    rounds = Rounds(cluster, client, random.Random(SEED + 1))
    began = time.monotonic()
    reflector = Reflector(client, PODS, witness, clock=SystemClock(), rng=random.Random(0))
    watching = asyncio.create_task(reflector.run())
    try:
        async with monitored(client) as overseer:
            overseer.settles = False  # below, with words of our own
            await load.begin()
            await witness.until(not_begun, 60, "not running")
            before = await lives(client)
            arriving = asyncio.create_task(load.run(RATE))
            await rounds.run(ROUNDS)
            lasted = time.monotonic() - began
            arriving.cancel()
            await rounds.mend()
            rounds.say("all is mended")
            await arriving
            await load.scale(0)
            await witness.until(unfinished(load), ENDS_WITHIN, "not as they should be")
            rounds.say("all pods have ended")
        await healthy(client)
        rounds.say("settled")
        assert rounds.ended == [], "nothing of ours ends by itself"
        assert load.ungated == [], "every pod came gated"
        assert witness.passed == [], "and none got past its gate without us"
        assert await lives(client) == before, "the long pods were not disturbed"
        told = await client.list(PODS, Selector(namespace=NAMESPACE))
        ready = {
            each.metadata.name for each in told if (said := each.condition(names.SLICE_READY)) and said.status == "True"
        }
        assert before.keys() <= ready, "and say that they have their slices"
        promised, hardware = await held(client, cluster)
        assert promised == hardware
        assert len(promised) == sum(count for shape in LONG for wants in shape for count in wants.values())
        for name in before:
            await load.delete(name)
        await healthy(client)
        assert await held(client, cluster) == (set(), set()), "all is free again"
    except BaseException as error:
        error.add_note(f"seed {SEED}, latency {LATENCY}, round {rounds.number}; logs: {tmp_path / 'logs'}")
        error.add_note("\n".join([*rounds.told[-25:], *rounds.ended]))
        raise
    finally:
        watching.cancel()
        (tmp_path / "rounds.txt").write_text("\n".join(rounds.told))
    record_property(
        "told",
        f"seed {SEED}: {ROUNDS} rounds in {lasted:.0f} s, {len(load.finite)} pods succeeded, "
        f"{len(load.deleted)} deleted, {time.monotonic() - began:.0f} s in all",
    )
