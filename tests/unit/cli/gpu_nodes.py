"""Instaslice objects and pods by hand, as the view sees them."""

from datetime import UTC, datetime

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
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.controller.fleet_status import fleet_status
from instaslice.geometry import models
from instaslice.kube.meta import ObjectMeta
from instaslice.placement import policies

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
A100 = models.named("A100-40GB")
SIZES = {profile.name: profile.size for profile in A100.profiles}


def allocation(pod, profile="1g.5gb", start=0, state=AllocationState.CREATING, gpu="GPU-0"):
    ref = PodRef(namespace="default", name=pod, uid=f"uid-{pod}")
    held = {"container": "main", "profile": profile, "gpu": gpu, "start": start, "size": SIZES[profile]}
    return Allocation(id=f"{pod}-{start}", pod=ref, state=state, **held)


def made(pod, profile="1g.5gb", start=0, state=SliceState.CREATED, gpu="GPU-0"):
    """What the agent reports of that allocation."""
    return PreparedSlice(id=f"{pod}-{start}", gpu=gpu, profile=profile, start=start, size=SIZES[profile], state=state)


def node(allocations=(), slices=(), name="gpu-0", health=Health.HEALTHY, reason=""):
    """A node with one A100-40GB: GPU-0 where something is on it, otherwise one of its own."""
    uuid = "GPU-0" if allocations or slices else f"GPU-of-{name}"
    gpu = GpuStatus(uuid=uuid, index=0, model=A100.name, health=health, reason=reason)
    status = InstasliceStatus(
        observed_generation=1, models=(ModelGeometry.of(A100),), gpus=(gpu,), slices=tuple(slices)
    )
    return Instaslice(
        metadata=ObjectMeta(name=name), spec=InstasliceSpec(allocations=tuple(allocations)), status=status
    )


def fleet(*instaslices, **changes):
    """What `instaslice status` knows of these nodes; `changes` are fields of the FleetStatus."""
    cluster = ClusterSnapshot(pods=[], nodes=[], instaslices=instaslices, now=NOW, forbidden=["nodes"])
    found = fleet_status(cluster, policies.named(policies.DEFAULT))
    return msgspec.structs.replace(found, **{"missing": {}, **changes})


def pod(name="train", *, gated=True, phase="Pending", on="", says=None):
    """A pod; `says` is the reason and the message of its condition SliceReady."""
    meta = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
    conditions = says and [{"type": names.SLICE_READY, "status": "False", "reason": says[0], "message": says[1]}]
    gates = [{"name": names.GATE}] if gated else None
    return fitting.pod(meta=meta, status={"phase": phase, "conditions": conditions}, schedulingGates=gates, nodeName=on)
