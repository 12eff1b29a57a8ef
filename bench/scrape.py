"""What Prometheus costs the controller: one scrape while every GPU is cut into seven slices.

    RESULT scrape_ms_100=<GPUs> scrape_ms_1000=<…> scrape_ms_10000=<…>

Processor time of this thread, the median of many scrapes. The event loop does nothing else meanwhile.

    python bench/scrape.py [--gpus 100 1000 10000]
"""

import argparse
import asyncio
import time
from random import Random
from statistics import median
from typing import cast

from prometheus_client import generate_latest

from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    Allocation,
    AllocationState,
    GpuStatus,
    Health,
    Instaslice,
    InstasliceSpec,
    InstasliceStatus,
    PodRef,
    PreparedSlice,
    SliceState,
)
from instaslice.controller.controller import Controller, Settings
from instaslice.geometry import models
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.meta import ObjectMeta, key_of
from instaslice.placement import policies

MODEL = models.named("A100-40GB")
GPUS_PER_NODE, SLICES_PER_GPU = 8, 7
SCRAPES = 50


def node(number: int) -> Instaslice:
    """Its object: every slice is allocated and exists."""
    name = f"node-{number:05}"
    allocations = tuple(
        Allocation(
            id=f"{name}-{gpu}-{start}",
            pod=PodRef(namespace="team", name=f"{name}-{gpu}-{start}", uid=f"{name}-{gpu}-{start}"),
            container="main",
            profile="1g.5gb",
            gpu=f"{name}/{gpu}",
            start=start,
            size=1,
            state=AllocationState.UNGATED,
        )
        for gpu in range(GPUS_PER_NODE)
        for start in range(SLICES_PER_GPU)
    )
    slices = tuple(
        PreparedSlice(
            id=each.id,
            gpu=each.gpu,
            profile=each.profile,
            start=each.start,
            size=each.size,
            state=SliceState.CREATED,
            mig_uuid=f"MIG-{each.id}",
        )
        for each in allocations
    )
    gpus = tuple(
        GpuStatus(uuid=f"{name}/{gpu}", index=gpu, model=MODEL.name, health=Health.HEALTHY)
        for gpu in range(GPUS_PER_NODE)
    )
    status = InstasliceStatus(observed_generation=1, models=(ModelGeometry.of(MODEL),), gpus=gpus, slices=slices)
    meta = ObjectMeta(name=name, uid=name, resource_version=str(number + 1))
    return Instaslice(metadata=meta, spec=InstasliceSpec(allocations=allocations), status=status)


async def measured(gpus: int) -> float:
    """Milliseconds of a scrape."""
    nobody = cast(Client, None)  # nothing is written: no queue has a worker
    controller = Controller(
        nobody, policies.named(policies.DEFAULT), clock=SystemClock(), rng=Random(1), settings=Settings()
    )
    nodes = map(node, range(gpus // GPUS_PER_NODE or 1))
    controller.instaslices.replace({key_of(each): each for each in nodes})
    # As `start`, without what it orders: the pods are not there, and would be released.
    controller.instaslices.on_change(controller._instaslice_changed)
    controller.started = True
    timed = []
    for _ in range(SCRAPES):
        begun = time.thread_time_ns()
        text = generate_latest(controller.registry)
        timed.append((time.thread_time_ns() - begun) / 1e6)
    assert f'instaslice_allocations{{state="created"}} {gpus // GPUS_PER_NODE * GPUS_PER_NODE * SLICES_PER_GPU}' in (
        text.decode()
    )
    return median(timed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=(100, 1_000, 10_000))
    options = parser.parse_args()
    result = {f"scrape_ms_{gpus}": asyncio.run(measured(gpus)) for gpus in options.gpus}
    print("RESULT", *(f"{key}={value:.2f}" for key, value in result.items()))


if __name__ == "__main__":
    main()
