"""Which slices pods still use although no allocation names them: checked before such an orphan is destroyed.

Allocations can be lost while their pods run: somebody deletes the object of the node, or the node registers again, and
no controller runs that would restore them. Two sources are asked, and each of them can keep a slice:

- The kubelet knows who holds which device, including pods that were deleted by force. Right after its start it may know
  nothing yet.
- The API server has the pods of the node, annotated with their slices. For nodes without a kubelet that is all.

Where one of them does not answer, nothing is destroyed: unknown is not free.
"""

from collections.abc import Sequence

from instaslice.agent.kubelet.node_devices import NodeDevices
from instaslice.api import names
from instaslice.drivers import Slice
from instaslice.errors import InstasliceError
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import PODS, Pod


async def in_use(client: Client, devices: NodeDevices | None, node: str, orphans: Sequence[Slice]) -> dict[Slice, str]:
    """Those of the slices that must stay, and why. Costs one list of the node's pods; call it only before a destroy."""
    try:
        held = await devices.holders.in_use(orphans) if devices is not None else {}
        pods = await client.list(PODS, Selector(fields=f"spec.nodeName={node}"))
    except InstasliceError as error:
        return dict.fromkeys(orphans, f"kept: it is unknown whether a pod uses it ({error})")
    return {
        each: f"kept: {who} uses it, though no allocation names it"
        for each, who in {**held, **_annotated(pods, orphans)}.items()
    }


def _annotated(pods: Sequence[Pod], orphans: Sequence[Slice]) -> dict[Slice, str]:
    """By the annotations of the pods that have not ended."""
    by: dict[str, Slice] = {each.mig_uuid: each for each in orphans if each.mig_uuid is not None}
    found = {}
    for pod in pods:
        for uuid in () if pod.ended else pod.metadata.annotations.get(names.MIG_UUIDS, "").split(","):
            if uuid in by:
                found[by[uuid]] = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    return found
