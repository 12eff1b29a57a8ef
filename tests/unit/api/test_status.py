"""What a status says of a node: its geometry read back, and the words that tables print."""

import msgspec
import pytest

from instaslice.api.bounds import MAX_MESSAGE, truncated
from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import GpuStatus, Health, Instaslice, InstasliceStatus, PreparedSlice, SliceState
from instaslice.api.summary import summary
from instaslice.geometry import States, models
from instaslice.kube.meta import ObjectMeta

A100 = models.named("A100-40GB")
PLACEABLE = [model for model in models.known() if any(profile.starts for profile in model.profiles)]


@pytest.mark.parametrize("model", PLACEABLE, ids=lambda model: model.name)
def test_the_controller_places_by_the_same_states_as_the_node_has(model):
    sent = msgspec.json.encode(ModelGeometry.of(model))
    received = msgspec.json.decode(sent, type=ModelGeometry).model()
    known = model.only(profile.name for profile in model.profiles if profile.starts)
    assert States.of(received) is States.of(known)


def test_a_field_of_an_earlier_version_does_not_disturb():
    """Agents wrote the CPU and memory of their node once, and objects of that time are still there."""
    sent = b'{"metadata":{"name":"a"},"status":{"observedGeneration":1,"node":{"cpu":64000,"memory":1}}}'
    assert msgspec.json.decode(sent, type=Instaslice).status == InstasliceStatus(observed_generation=1)


def gpu(index, health=Health.HEALTHY, model="A100-40GB"):
    return GpuStatus(uuid=f"GPU-{index}", index=index, model=model, health=health)


def held(gpu, start, size, state=SliceState.CREATED):
    return PreparedSlice(id=f"{gpu}/{start}", gpu=gpu, profile="1g.5gb", start=start, size=size, state=state)


@pytest.mark.parametrize(
    "gpus, slices, printed",
    [
        pytest.param([], [], ("none", 0, "0/0 GB"), id="no GPU"),
        pytest.param([gpu(0), gpu(1)], [], ("2x A100-40GB", 0, "80/80 GB"), id="two, both empty"),
        pytest.param([gpu(0)], [held("GPU-0", 4, 4)], ("1x A100-40GB", 1, "20/40 GB"), id="half of one taken"),
        pytest.param(
            [gpu(0)],
            [held("GPU-0", 0, 1, SliceState.DELETED), held("GPU-0", 1, 1, SliceState.FAILED)],
            ("1x A100-40GB", 0, "40/40 GB"),
            id="what is gone or was never made takes nothing",
        ),
        pytest.param(
            [gpu(0)],
            [held("GPU-0", 0, 1, SliceState.FOREIGN), held("GPU-0", 1, 1, SliceState.DELETING)],
            ("1x A100-40GB", 2, "30/40 GB"),
            id="a foreign slice and one that is still being destroyed take their slot",
        ),
        pytest.param(
            [gpu(0), gpu(1, Health.UNHEALTHY)],
            [],
            ("2x A100-40GB (1 unhealthy)", 0, "40/80 GB"),
            id="an unhealthy GPU has nothing free",
        ),
    ],
)
def test_the_summary(gpus, slices, printed):
    made = summary(
        InstasliceStatus(
            observed_generation=1, models=(ModelGeometry.of(A100),), gpus=tuple(gpus), slices=tuple(slices)
        )
    )
    assert (made.gpus, made.slices, made.free_memory) == printed


def test_an_object_that_says_nothing_sends_nothing_so_that_its_writer_owns_nothing():
    bare = Instaslice(metadata=ObjectMeta(name="gpu-0"))
    assert msgspec.to_builtins(bare) == {"metadata": {"name": "gpu-0"}}


def test_a_long_message_is_cut_to_what_the_server_takes():
    assert truncated("short") == "short"
    assert len(truncated("x" * 5000)) == MAX_MESSAGE
