"""Volumes that a pod names itself: who may write to which at a time."""

import pytest
from fitting import neighbour, node

from instaslice.controller.scheduling.disks import DisksInUse


def gce(name="one", readonly=False):
    return {"gcePersistentDisk": {"pdName": name, "readOnly": readonly}}


def rbd(*monitors, image="i", pool="rbd", readonly=False):
    return {"rbd": {"monitors": list(monitors), "image": image, "pool": pool, "readOnly": readonly}}


ISCSI = {"iscsi": {"iqn": "iqn.2000-01.com.example:a"}}
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": True}}


@pytest.mark.parametrize(
    "there, comes, conflict",
    [
        pytest.param(gce(), gce(), True, id="two write"),
        pytest.param(gce(readonly=True), gce(readonly=True), False, id="two read"),
        pytest.param(gce(readonly=True), gce(), True, id="one writes"),
        pytest.param(gce(), gce("two"), False, id="two disks"),
        pytest.param(EBS, EBS, True, id="of Amazon's not even two readers"),
        pytest.param(ISCSI, ISCSI, True, id="iSCSI"),
        pytest.param(rbd("a", "b"), rbd("b", "c"), True, id="a common monitor"),
        pytest.param(rbd("a"), rbd("b"), False, id="two clusters"),
        pytest.param(rbd("a"), rbd("a", image="j"), False, id="two images"),
        pytest.param(rbd("a"), rbd("a", pool="p"), False, id="two pools"),
        pytest.param(gce(), EBS, False, id="two kinds"),
        pytest.param({"emptyDir": {}}, {"emptyDir": {}}, False, id="no disks at all"),
    ],
)
def test_who_may_share_a_disk(there, comes, conflict):
    disks = DisksInUse()
    other = neighbour("other", volumes=[{"name": "v", **there}])
    pod = neighbour("mine", volumes=[{"name": "data", **comes}])
    disks.add(other, "gpu-0")
    disks.add(pod, "gpu-0")
    verdict = disks.pre_filter(pod)
    told = verdict and verdict.refusal(node("gpu-0"))
    assert told == ("volume data: another pod there uses its disk" if conflict else None)
    assert (verdict and verdict.refusal(node("gpu-1"))) is None
    disks.remove(other, "gpu-0")
    assert (verdict and verdict.refusal(node("gpu-0"))) is None
