"""Of several nodes that report one GPU, which has it.

A machine that was registered under a new name reports the GPUs of its former node, and so does a machine that was
cloned from another's image, or one that lies. Nothing that it says tells these apart. So the node on which slices of
the GPU are reserved has it, otherwise the node that was there first, for as long as its Node exists, ready or not: pods
may run there. Pure.
"""

from datetime import datetime
from typing import NamedTuple

from instaslice.api.instaslice import Instaslice


class GpuClaim(NamedTuple):
    """What decides. The API server writes when the Instaslice object was created, and we what is reserved: no node can
    claim to be older than it is, nor take a GPU that is in use from one that came later."""

    node: str
    exists: bool
    """Whether there is a Node of that name."""
    reserved: bool
    """Whether slices of the GPU are reserved there."""
    created: datetime | None

    @classmethod
    def of(cls, instaslice: Instaslice, gpu: str, *, exists: bool) -> "GpuClaim":
        meta, reserved = instaslice.metadata, any(each.gpu == gpu for each in instaslice.spec.allocations)
        return cls(meta.name, exists, reserved, meta.creation_timestamp)

    def outranks(self, holder: "GpuClaim") -> bool:
        """Whether a GPU goes from its holder to this node. The answer does not depend on who was seen first."""
        if self.exists != holder.exists:
            return self.exists
        if self.reserved != holder.reserved:
            return self.exists and self.reserved
        if self.created is None or holder.created is None:
            return False
        return self.exists and (self.created, self.node) < (holder.created, holder.node)


def reported_too(holder: str) -> str:
    """Why a GPU is not used on any other node than its holder."""
    return (
        f"node {holder} has the same GPU: it has slices on it, or was first; if this is that machine under a new name, "
        f"`kubectl delete node {holder}`, otherwise one of the two is a copy: find out which, and take it out"
    )
