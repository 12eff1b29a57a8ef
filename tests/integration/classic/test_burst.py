"""Many pods at once over many nodes: none is lost, no slot is given twice, all come back."""

import random
from collections import Counter

from stage import pod

from instaslice.api import names

PROFILES = ["1g.5gb", "1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]
PODS = 200


async def test_200_pods_over_10_nodes(stage):
    """More than fits at once. Whether two ever hold one slot is seen by the invariants, write by write."""
    await stage.some_nodes(10, gpus=2)
    rng = random.Random(5)
    await stage.create(
        *(pod(f"p{number}", rng.choice(PROFILES), run_for=f"{rng.randint(500, 1500)}ms") for number in range(PODS))
    )

    def phases():
        return Counter(each.status.phase for each in stage.pods)

    await stage.until("200 ends", lambda: phases() == {"Succeeded": PODS}, seconds=240)
    await stage.free()
    await stage.pruned()
    assert all(each.metadata.annotations[names.MIG_UUIDS] for each in stage.pods)
    assert len({each.spec.node_name for each in stage.pods}) == 10
