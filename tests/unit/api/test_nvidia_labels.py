"""The labels of a static MIG layout that follow from the GPUs of a node."""

import re
from dataclasses import replace

import pytest

from instaslice.api import nvidia_labels
from instaslice.api.nvidia_labels import static_layout
from instaslice.geometry import models

A100, H100 = models.named("A100-40GB"), models.named("H100-80GB-SXM5")


def test_what_two_gpus_of_a_node_say():
    labels = static_layout([A100, A100])
    assert labels["nvidia.com/mig.capable"] == "true"
    assert labels["nvidia.com/mig.strategy"] == "mixed"
    one = {name.removeprefix("nvidia.com/mig-3g.20gb."): value for name, value in labels.items() if "3g.20gb" in name}
    assert one == {
        "count": "4",
        "product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",
        "replicas": "1",
        "slices.gi": "3",
        "slices.ci": "3",
        "engines.copy": "3",
        "engines.decoder": "2",
        "engines.encoder": "0",
        "engines.jpeg": "0",
        "engines.ofa": "0",
    }


def test_media_engines_are_written_as_in_a_resource():
    labels = static_layout([A100])
    assert labels["nvidia.com/mig-1g.5gb.me.count"] == "1"
    assert labels["nvidia.com/mig-1g.5gb.me.product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me"


def test_a_profile_of_several_models_is_counted_on_all_and_described_by_the_first():
    a100 = models.named("A100-80GB")
    labels = static_layout([a100, H100])
    assert labels["nvidia.com/mig-1g.10gb.count"] == "14"
    assert labels["nvidia.com/mig-1g.10gb.product"] == "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"


def test_a_product_that_a_driver_names_is_kept():
    labels = static_layout([replace(A100, name="NVIDIA A100-PCIE-40GB")])
    assert labels["nvidia.com/mig-7g.40gb.product"] == "NVIDIA-A100-PCIE-40GB-MIG-7g.40gb"


def test_a_node_without_gpus_says_nothing():
    assert static_layout([]) == {}


@pytest.mark.parametrize("model", [each for each in models.known() if each.memory_slices], ids=lambda model: model.name)
def test_every_label_is_one_that_the_server_takes(model):
    labels = static_layout([model])
    name, value = r"nvidia\.com/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?"
    assert labels
    assert not [each for each in labels.items() if not (re.fullmatch(name, each[0]) and re.fullmatch(value, each[1]))]
    assert all(map(nvidia_labels.of_static_layout, labels))
    assert nvidia_labels.CONFIG not in labels, "NVIDIA's MIG manager acts on it"


@pytest.mark.parametrize(
    "label, expected",
    [
        ("nvidia.com/mig.strategy", True),
        ("nvidia.com/mig-1g.5gb.count", True),
        ("nvidia.com/gpu.product", False),
        ("example.com/mig.strategy", False),
    ],
)
def test_which_labels_are_of_a_static_layout(label, expected):
    assert nvidia_labels.of_static_layout(label) is expected
