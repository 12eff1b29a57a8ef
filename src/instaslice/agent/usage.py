"""Which slices pods still use although no allocation names them: asked before such an orphan is destroyed.

Allocations can be lost while their pods run: somebody deletes the object of the node, or the node registers again, and
no controller is there to write them again. Two sources are asked, and each of them can keep a slice:

- The kubelet knows who holds which device, also of pods that were removed by force. Right after its start it may know
  nothing yet.
- The API server has the pods of the node, annotated with their slices. It is all there is for nodes without a kubelet.

Where one of them does not answer, nothing is destroyed: unknown is not free.
"""

from collections.abc import Sequence

from instaslice.agent.seating import Seating
from instaslice.api.pods import mig_uuids
from instaslice.drivers import Slice
from instaslice.errors import InstasliceError
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import PODS, Pod


async def in_use(client: Client, seating: Seating | None, node: str, orphans: Sequence[Slice]) -> dict[Slice, str]:
    """Those of the slices that have to stay, and why. Costs one list of the node's pods; ask only before a destroy."""
    try:
        held = await seating.holders(orphans) if seating is not None else {}
        pods = await client.list(PODS, Selector(fields=f"spec.nodeName={node}"))
    except InstasliceError as error:
        return dict.fromkeys(orphans, f"kept: nobody can say whether a pod uses it ({error})")
    return {
        each: f"kept: {who} uses it, though no allocation names it"
        for each, who in {**held, **_told(pods, orphans)}.items()
    }


def _told(pods: Sequence[Pod], orphans: Sequence[Slice]) -> dict[Slice, str]:
    """By what is written on the pods that have not ended."""
    by: dict[str, Slice] = {each.mig_uuid: each for each in orphans if each.mig_uuid is not None}
    found = {}
    for pod in pods:
        for uuid in () if pod.ended else mig_uuids(pod):
            if uuid in by:
                found[by[uuid]] = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    return found
