"""A small cluster as the API server would show it, legal unless a test breaks it."""

from datetime import UTC, datetime, timedelta

import fitting
import msgspec

from instaslice.api import names
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
from instaslice.doctor import ObservedCluster
from instaslice.geometry import ProfileName, models
from instaslice.kube.meta import ObjectMeta

A100 = models.named("A100-40GB")
GEOMETRY = ModelGeometry.of(A100)
NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
SIZES = {profile.name: profile.size for profile in A100.profiles}
CAPACITY = {
    "cpu": "64",
    "memory": "512Gi",
    "pods": "250",
    "gpu.das.com/mig-1g.5gb": "14",
    "gpu.das.com/mig-1g.5gb.me": "2",
    "gpu.das.com/mig-1g.10gb": "8",
    "gpu.das.com/mig-2g.10gb": "6",
    "gpu.das.com/mig-3g.20gb": "4",
    "gpu.das.com/mig-4g.20gb": "2",
    "gpu.das.com/mig-7g.40gb": "2",
    "gpu.das.com/mig-any": "14",
    "gpu.das.com/mem": "80",
}
"""Of two A100-40GB, written out: the doctor must not be compared with itself."""


def node(name="gpu-0", ready=True, taints=(), **capacity):
    told = {each: text for each, text in {**CAPACITY, **capacity}.items() if text is not None}
    return fitting.node(name, uid=f"uid-{name}", ready=ready, allocatable=told, taints=list(taints))


def pod(name, *profiles, on=None, gates=(), phase="Running", age=600, given=None, pinned=None, condition=None, **more):
    """A slice pod past its gate that runs on node `on`; `gates=[names.GATE]` makes one that waits."""
    limits = {}
    for profile in profiles:
        resource = f"{names.GROUP}/{ProfileName.parse(profile).resource}"
        limits[resource] = str(int(limits.get(resource, 0)) + 1)
    if gb := more.get("by_memory"):
        limits |= {names.MEMORY: str(gb), names.ANY_SLICE: "1"}
    container = {"name": "main", "resources": {"limits": limits, "requests": {"cpu": more.get("cpu", "1")}}}
    spec = {"schedulingGates": [{"name": each} for each in gates], "nodeName": on or ""}
    if pinned or on:
        spec["affinity"] = fitting.affinity([("metadata.name", "In", pinned or on)])
    meta = {
        "namespace": "team-a",
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": (NOW - timedelta(seconds=age)).isoformat(),
        "annotations": {names.MIG_UUIDS: ",".join(given)} if given else {},
    }
    if more.get("deleted"):
        meta["deletionTimestamp"] = NOW.isoformat()
    conditions = [{"type": names.SLICE_READY, "status": condition}] if condition else []
    return fitting.pod(container, meta=meta, status={"phase": phase, "conditions": conditions}, **spec)


def allocation(name, profile, start, *, gpu="GPU-0", state=AllocationState.UNGATED, number=0, **more):
    """For the pod of that name."""
    return Allocation(
        id=f"uid-{name}-x-{number}",
        pod=PodRef(namespace="team-a", name=name, uid=f"uid-{name}"),
        container="main",
        profile=profile,
        gpu=gpu,
        start=start,
        size=more.pop("size", SIZES[profile]),
        state=state,
        **more,
    )


def made(promised, state=SliceState.CREATED, **changes):
    """What the agent reports for an allocation."""
    report = PreparedSlice(
        id=promised.id,
        gpu=promised.gpu,
        profile=promised.profile,
        start=promised.start,
        size=promised.size,
        state=state,
        mig_uuid=uuid(promised) if state is SliceState.CREATED else None,
    )
    return msgspec.structs.replace(report, **changes)


def uuid(promised):
    return f"MIG-{promised.gpu}-{promised.profile}-{promised.start}"


def instaslice(*promised, name="gpu-0", slices=None, gpus=("GPU-0", "GPU-1"), generation=5, observed=5):
    """A node of two A100s whose agent has made everything that is promised, unless `slices` says otherwise."""
    return Instaslice(
        metadata=ObjectMeta(name=name, generation=generation),
        spec=InstasliceSpec(allocations=tuple(promised)),
        status=InstasliceStatus(
            observed_generation=observed,
            models=(GEOMETRY,),
            gpus=tuple(
                GpuStatus(uuid=each, index=index, model=A100.name, health=Health.HEALTHY)
                for index, each in enumerate(gpus)
            ),
            slices=tuple(map(made, promised) if slices is None else slices),
        ),
    )


def world(pods=(), instaslices=None, nodes=None, now=NOW):
    return ObservedCluster(
        pods=list(pods),
        nodes=[node()] if nodes is None else list(nodes),
        instaslices=[instaslice()] if instaslices is None else list(instaslices),
        now=now,
    )
