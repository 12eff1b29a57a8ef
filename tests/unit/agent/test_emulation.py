"""Emulated GPUs, from what a Node object says."""

import pytest

from instaslice.agent.emulation import MOST_GPUS, EmulatedGpus, Emulation
from instaslice.api import names
from instaslice.errors import BadInput
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


def a_node(labels=None, **annotations):
    meta = ObjectMeta(name="gpu-0", uid="one", labels=labels or {names.EMULATED: "A30"}, annotations=annotations)
    return Node(metadata=meta)


@pytest.mark.parametrize("count", ["0", str(MOST_GPUS + 1), "-1", "two", ""])
def test_a_number_of_gpus_that_no_node_has_is_refused_by_its_label(count):
    with pytest.raises(BadInput, match=f"give a number from 1 to {MOST_GPUS}"):
        Emulation().gpus(a_node({names.EMULATED: "A30", names.GPU_COUNT: count}))


@pytest.mark.parametrize("count", [1, MOST_GPUS])
def test_a_node_has_as_many_gpus_as_its_label_says(count):
    node = a_node({names.EMULATED: "A30", names.GPU_COUNT: str(count)})
    assert Emulation().gpus(node) == EmulatedGpus("A30", count)
    assert len(Emulation().driver(node).discover()) == count


def test_what_every_node_has_goes_before_labels():
    assert Emulation(fixed=EmulatedGpus("H100-80GB", 2)).gpus(a_node()) == EmulatedGpus("H100-80GB", 2)


def played():
    said = []
    driver, apply = Emulation().connect(a_node(), lambda *words: said.append(words), lambda: None)
    return driver, apply, said


def test_a_machine_is_started_anew_once_for_each_word_of_its_annotation_and_never_without():
    driver, apply, _ = played()
    boots = [driver.boot_id()]
    for word in ("", "a", "a", "b"):
        apply(a_node(**{names.BOOT: word} if word else {}))
        boots.append(driver.boot_id())
    first, without, a, same, b = boots
    assert first == without and a == same and len({first, a, b}) == 3


def test_a_fault_is_in_force_while_it_is_written_and_one_that_cannot_be_read_is_said_once():
    driver, apply, said = played()
    (gpu,) = driver.discover()

    def unhealthy():
        return driver.watch_health(gpu.uuid, None, 0)

    apply(a_node(**{names.FAULT: "0 lost Xid 79"}))
    assert unhealthy().message.endswith("Xid 79")
    for _ in range(2):
        apply(a_node(**{names.FAULT: "nonsense"}))
    assert unhealthy() is None
    ((reason, action, note),) = said
    assert (reason, action) == ("BadFault", "Emulate")
    assert f"annotation {names.FAULT}" in note and "'nonsense' is not a fault" in note
    apply(a_node(**{names.FAULT: "0 lost"}))
    assert unhealthy()
    apply(a_node())
    assert unhealthy() is None
