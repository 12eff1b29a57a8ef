"""Whether a node could ever hold a pod's slices: when nothing else is on its GPUs."""

import pytest
from fleets import A100

from instaslice.geometry import models
from instaslice.placement import Share, could_hold

A30 = models.named("A30")


@pytest.mark.parametrize(
    "gpus, wants, expected",
    [
        pytest.param([A100], ["7g.40gb"], True, id="one whole GPU"),
        pytest.param([A100], ["7g.40gb", "1g.5gb"], False, id="more than one GPU"),
        pytest.param([A100, A100], ["7g.40gb", "1g.5gb"], True, id="over two GPUs"),
        pytest.param([A100], ["3g.20gb", "4g.20gb"], True, id="side by side, whatever the order"),
        pytest.param([A100], ["4g.20gb", "4g.20gb"], False, id="enough memory, no second start"),
        pytest.param([A100, A30], ["4g.20gb", "4g.24gb"], True, id="each on its own model"),
        pytest.param([A30], ["3g.20gb"], False, id="a profile that none of them has"),
        pytest.param([], ["1g.5gb"], False, id="no GPU"),
        pytest.param([A100], [Share(1000)], False, id="no GPU is shared by memory"),
    ],
)
def test_what_a_node_could_ever_hold(gpus, wants, expected):
    assert could_hold(gpus, wants) is expected
