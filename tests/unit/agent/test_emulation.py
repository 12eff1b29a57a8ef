"""Emulated GPUs, from what a Node object says."""

import pytest

from instaslice.agent.emulation import Emulation
from instaslice.api import names
from instaslice.kube.core import Node
from instaslice.kube.meta import ObjectMeta


@pytest.mark.parametrize("name", ["gpu-0", ".".join(["n" * 63] * 4)[:253]], ids=["short", "as long as it may be"])
def test_gpus_are_remembered_whatever_the_name_of_the_node(tmp_path, name):
    node = Node(metadata=ObjectMeta(name=name, uid="9ad9cff0-9f6f", labels={names.EMULATED: "A30"}))
    emulation = Emulation(tmp_path)
    (gpu,) = emulation.driver(node).discover()
    made = emulation.driver(node).create(gpu.uuid, "1g.6gb", 0)
    assert emulation.driver(node).slices(gpu.uuid) == (made,)
    emulation.forget(node)
    assert not list(tmp_path.iterdir())
