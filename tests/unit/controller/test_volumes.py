"""Where a pod's volumes can be used, and what it waits for while they cannot be used anywhere."""

import pytest
from fitting import made, neighbour, node

from instaslice.controller.scheduling.storage import Storage
from instaslice.controller.scheduling.volumes import ClaimsInUse, pre_filter
from instaslice.kube.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NODES = {
    "a1": node("a1", labels={HOST: "a1", ZONE: "a"}),
    "a2": node("a2", labels={HOST: "a2", ZONE: "a"}),
    "b1": node("b1", labels={HOST: "b1", ZONE: "b"}),
}
DRIVER = "csi.example.com"
DONE = {"pv.kubernetes.io/bind-completed": "yes"}


def claim(name="data", of="wait", size="1Gi", modes=("ReadWriteOnce",), phase="Pending", bound="", spec=None, **meta):
    body = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, "storageClassName": of}
    body |= {"volumeName": bound} if bound else {}
    if bound:
        meta = {"annotations": DONE, **meta}
        phase = "Bound" if phase == "Pending" else phase
    return made(
        PersistentVolumeClaim,
        name,
        "n",
        uid=f"uid-{name}",
        spec={**body, **(spec or {})},
        status={"phase": phase},
        **meta,
    )


def volume(name="pv", at=(), of="wait", size="1Gi", modes=("ReadWriteOnce",), phase="Available", spec=None, **meta):
    body = {"capacity": {"storage": size}, "accessModes": list(modes), "storageClassName": of}
    if at:
        key = ZONE if at[0] in "ab" else HOST
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(at)}]}]
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return made(PersistentVolume, name, spec={**body, **(spec or {})}, status={"phase": phase}, **meta)


def reserved(name, uid=""):
    return {"claimRef": {"namespace": "n", "name": name, "uid": uid}}


def storage_class(name="wait", provisioner="kubernetes.io/no-provisioner", mode="WaitForFirstConsumer", **fields):
    return made(StorageClass, name, provisioner=provisioner, volumeBindingMode=mode, **fields)


WAIT, NOW = storage_class(), storage_class("now", mode="Immediate")
MAKE = storage_class("make", DRIVER)
ONLY_A = storage_class("some", DRIVER, allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}])


def uses(*claims, name="mine", **more):
    volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": each}} for n, each in enumerate(claims)]
    return neighbour(name, volumes=volumes, **more)


def stored(*things):
    storage = Storage()
    for each in things:
        storage.changed(None, each)
    return storage


def refusals(pod, *things, there=(), emptied=False):
    """Node → why not, beside pods that are `there` as (pod, node)."""
    storage = stored(*things)
    used = ClaimsInUse(storage)
    for other, name in there:
        used.add(other, name, NODES[name])
    verdict = pre_filter(pod, storage, used)
    return {name: verdict and verdict.refusal(each, emptied=emptied) for name, each in NODES.items()}


def admitted(pod, *things, **more):
    return [name for name, why in refusals(pod, *things, **more).items() if why is None]


@pytest.mark.parametrize(
    "found, words",
    [
        pytest.param([], "waits for PersistentVolumeClaim n/data, which does not exist", id="absent"),
        pytest.param([claim(of="now"), NOW], "waits for PersistentVolumeClaim n/data to be bound", id="unbound"),
        pytest.param(
            [claim(of="no")],
            "waits for PersistentVolumeClaim n/data to be bound (class no does not exist)",
            id="of no class that there is",
        ),
        pytest.param(
            [claim(of="")],
            "waits for PersistentVolumeClaim n/data to be bound (it names no class)",
            id="of no class",
        ),
        pytest.param(
            [claim(spec={"volumeName": "pv"}), WAIT, volume()],
            "waits for PersistentVolumeClaim n/data to be bound to its volume pv",
            id="bound by halves",
        ),
        pytest.param(
            [claim(bound="pv"), WAIT], "PersistentVolumeClaim n/data: its volume pv does not exist", id="no volume"
        ),
        pytest.param(
            [claim(bound="pv", phase="Lost"), WAIT], "PersistentVolumeClaim n/data has lost its volume pv", id="lost"
        ),
        pytest.param(
            [claim(bound="pv", deletionTimestamp="2026-11-18T12:00:00Z"), WAIT, volume()],
            "PersistentVolumeClaim n/data is being deleted",
            id="being deleted",
        ),
    ],
)
def test_what_is_in_the_way_everywhere(found, words):
    assert set(refusals(uses("data"), *found).values()) == {words}
    storage = stored(*found)
    assert pre_filter(uses("data"), storage, ClaimsInUse(storage)).rules_out_all == words


@pytest.mark.parametrize(
    "found, nodes",
    [
        pytest.param([claim(bound="pv"), volume(at=("a1",))], ["a1"], id="bound to a volume of one node"),
        pytest.param([claim(bound="pv"), volume(at=("b",))], ["b1"], id="of one zone"),
        pytest.param([claim(bound="pv"), volume()], ["a1", "a2", "b1"], id="that can be used anywhere"),
        pytest.param([claim(bound="pv"), volume(labels={ZONE: "a"})], ["a1", "a2"], id="labelled with a zone"),
        pytest.param([claim(bound="pv"), volume(labels={ZONE: "a__b"})], ["a1", "a2", "b1"], id="with two zones"),
        pytest.param([claim(bound="pv"), volume(labels={ZONE: "a____c"})], ["a1", "a2", "b1"], id="with nonsense"),
        pytest.param(
            [claim(bound="pv"), volume(labels={"failure-domain.beta.kubernetes.io/zone": "b"})],
            ["b1"],
            id="with a zone as it was called",
        ),
        pytest.param(
            [claim(bound="pv"), volume(spec={"nodeAffinity": {"required": {"nodeSelectorTerms": [{}]}}})],
            [],
            id="of nowhere",
        ),
        pytest.param([claim(), WAIT, volume(at=("a2",))], ["a2"], id="a volume lies ready on one node"),
        pytest.param([claim(), WAIT], [], id="none lies ready, and none is made"),
        pytest.param([claim(size="2Gi"), WAIT, volume(at=("a2",))], [], id="too small"),
        pytest.param([claim(), WAIT, volume(at=("a2",), phase="Released")], [], id="not free any more"),
        pytest.param([claim(modes=("ReadWriteMany",)), WAIT, volume()], [], id="not for many"),
        pytest.param([claim(), WAIT, volume(of="now")], [], id="of another class"),
        pytest.param([claim(), WAIT, volume(spec={"volumeMode": "Block"})], [], id="a bare device"),
        pytest.param([claim(), WAIT, volume(spec=reserved("other"))], [], id="reserved for another"),
        pytest.param(
            [claim(), WAIT, volume(spec=reserved("data"), at=("a1",), phase="Pending"), volume("free")],
            ["a1"],
            id="reserved for it: there or nowhere",
        ),
        pytest.param([claim(), WAIT, volume(spec=reserved("data", "old"))], [], id="for one of its name that is gone"),
        pytest.param(
            [
                claim(spec={"selector": {"matchLabels": {"kind": "x"}}}),
                WAIT,
                volume(),
                volume("x", ("b",), labels={"kind": "x"}),
            ],
            ["b1"],
            id="of a kind that is selected",
        ),
        pytest.param(
            [claim(), WAIT, volume(deletionTimestamp="2026-11-18T12:00:00Z")], [], id="a volume that is being deleted"
        ),
        pytest.param([claim(of="make"), MAKE], ["a1", "a2", "b1"], id="made anywhere"),
        pytest.param([claim(of="some"), ONLY_A], ["a1", "a2"], id="made in one zone"),
        pytest.param([claim(of="some"), ONLY_A, volume(of="some", at=("b",))], ["a1", "a2", "b1"], id="made or ready"),
        pytest.param(
            [claim(of="make", annotations={"volume.kubernetes.io/selected-node": "a2"}), MAKE],
            ["a2"],
            id="being made for a node",
        ),
        pytest.param(
            [claim(of="wait", annotations={"volume.beta.kubernetes.io/storage-class": "make"}), MAKE, WAIT],
            ["a1", "a2", "b1"],
            id="a class as it was named once",
        ),
    ],
)
def test_where_the_volumes_of_a_pod_can_be_used(found, nodes):
    assert admitted(uses("data"), *found) == nodes


def test_two_claims_take_two_volumes_and_the_small_one_does_not_take_the_large():
    small, large = claim("small", size="1Gi"), claim("large", size="5Gi")
    pod = uses("large", "small")
    assert admitted(pod, small, large, WAIT, volume("l", ("a",), size="5Gi"), volume("s", ("a",), size="1Gi")) == [
        "a1",
        "a2",
    ]
    assert admitted(pod, small, large, WAIT, volume("l", ("a",), size="5Gi"), volume("s", ("b",), size="1Gi")) == []


CAPACITIES = [
    made(CSIDriver, DRIVER, spec={"storageCapacity": True}),
    made(
        CSIStorageCapacity,
        "a",
        "n",
        storageClassName="make",
        capacity="10Gi",
        nodeTopology={"matchLabels": {ZONE: "a"}},
    ),
    made(
        CSIStorageCapacity,
        "b",
        "n",
        storageClassName="make",
        capacity="10Gi",
        maximumVolumeSize="1Gi",
        nodeTopology={"matchLabels": {ZONE: "b"}},
    ),
]


@pytest.mark.parametrize(
    "size, nodes",
    [
        pytest.param("1Gi", ["a1", "a2", "b1"], id="room everywhere"),
        pytest.param("2Gi", ["a1", "a2"], id="more than the largest volume"),
        pytest.param("11Gi", [], id="more than there is"),
    ],
)
def test_what_a_driver_has_left(size, nodes):
    assert admitted(uses("data"), claim(of="make", size=size), MAKE, *CAPACITIES) == nodes


def limited(count, name="a1", driver=DRIVER):
    return made(CSINode, name, spec={"drivers": [{"name": driver, "allocatable": {"count": count}}]})


def csi(name, handle=None):
    return volume(name, spec={"csi": {"driver": DRIVER, "volumeHandle": handle or name}})


@pytest.mark.parametrize(
    "things, there, nodes",
    [
        pytest.param([limited(1)], [], ["a1", "a2", "b1"], id="the first"),
        pytest.param([limited(0)], [], ["a2", "b1"], id="none may be attached"),
        pytest.param([limited(1)], [(uses("other", name="o"), "a1")], ["a2", "b1"], id="another is attached"),
        pytest.param([limited(2)], [(uses("other", name="o"), "a1")], ["a1", "a2", "b1"], id="two may be"),
        pytest.param([limited(1)], [(uses("data", name="o"), "a1")], ["a1", "a2", "b1"], id="the same is attached"),
        pytest.param([limited(1)], [(uses("new", name="o"), "a1")], ["a2", "b1"], id="one that is still to be made"),
        pytest.param(
            [
                limited(1),
                made(
                    VolumeAttachment,
                    "va",
                    spec={"attacher": DRIVER, "nodeName": "a1", "source": {"persistentVolumeName": "pv2"}},
                ),
            ],
            [],
            ["a2", "b1"],
            id="one of a pod that is gone is attached still",
        ),
        pytest.param([limited(1, driver="else")], [(uses("other", name="o"), "a1")], ["a1", "a2", "b1"], id="no limit"),
        pytest.param(
            [limited(5), made(CSIDriver, DRIVER, spec={"preventPodSchedulingIfMissing": True})],
            [],
            ["a1"],
            id="only where the driver is",
        ),
    ],
)
def test_how_many_volumes_a_driver_may_attach(things, there, nodes):
    bound = [claim(bound="pv1"), claim("other", bound="pv2"), claim("new", of="make")]
    assert admitted(uses("data"), *bound, csi("pv1"), csi("pv2"), MAKE, *things, there=there) == nodes


def test_a_claim_for_one_pod_is_used_by_one():
    alone = claim(bound="pv", modes=("ReadWriteOncePod",))
    other = uses("data", name="other")
    assert admitted(uses("data"), alone, volume(), there=[(other, "a1")]) == []
    assert admitted(uses("data"), alone, volume(), there=[(other, "a1")], emptied=True) == ["a1"]
    assert admitted(uses("data"), alone, volume(), there=[(uses("data"), "a1")]) == ["a1", "a2", "b1"], "itself"
    assert admitted(uses("data"), claim(bound="pv"), volume(), there=[(other, "a1")]) == ["a1", "a2", "b1"]


def test_two_pods_are_not_sent_after_one_volume_and_the_second_gets_it_when_the_first_is_gone():
    found = [claim("one"), claim("two"), WAIT, volume(at=("a1",))]
    first, second = uses("one", name="first"), uses("two", name="second")
    assert admitted(second, *found) == ["a1"]
    assert admitted(second, *found, there=[(first, "a1")]) == []
    storage = stored(*found)
    used = ClaimsInUse(storage)
    used.add(first, "a1", NODES["a1"])
    used.remove(first, "a1")
    assert pre_filter(second, storage, used).refusal(NODES["a1"]) is None
    assert not (used._taken or used._selected or used._users or used._on or used._expected)


def test_two_pods_of_one_claim_go_where_the_first_has_its_volume_made_or_lying_ready():
    first, second = uses("data", name="first"), uses("data", name="second")
    assert admitted(second, claim(of="make"), MAKE, there=[(first, "a2")]) == ["a2"]
    ready = [claim(), WAIT, volume("x", ("a1",)), volume("y", ("b1",))]
    assert admitted(second, *ready) == ["a1", "b1"]
    assert admitted(second, *ready, there=[(first, "b1")]) == ["b1"]


def ephemeral(name="mine"):
    return neighbour(name, volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}])


OWNED = {"apiVersion": "v1", "kind": "Pod", "name": "mine", "uid": "uid-mine", "controller": True}


@pytest.mark.parametrize(
    "found, told",
    [
        pytest.param(
            [],
            "waits for PersistentVolumeClaim n/mine-scratch, which Kubernetes has to create for volume scratch",
            id="not made yet",
        ),
        pytest.param(
            [claim("mine-scratch", of="make"), MAKE],
            "PersistentVolumeClaim n/mine-scratch, which volume scratch needs, belongs to another owner",
            id="somebody's own",
        ),
        pytest.param([claim("mine-scratch", of="make", owners=[OWNED]), MAKE], None, id="made for it"),
    ],
)
def test_a_claim_that_kubernetes_makes_for_a_pod(found, told):
    assert set(refusals(ephemeral(), *found).values()) == {told}


def test_what_is_said_of_a_volume_elsewhere():
    told = refusals(uses("data"), claim(bound="pv"), volume(at=("b",)))
    assert told["a1"] == "volume claim data: its volume pv is elsewhere"
    told = refusals(uses("data"), claim(bound="pv"), volume(labels={ZONE: "b"}))
    assert told["a1"] == "volume claim data: its volume pv is in b"


def test_storage_forgets_what_is_gone():
    storage = Storage()
    things = [claim(), volume(), WAIT, limited(1), *CAPACITIES, made(VolumeAttachment, "va", spec={"nodeName": "a1"})]
    for each in things:
        storage.changed(None, each)
    assert list(storage.volumes_of("wait"))
    for each in things:
        storage.changed(each, None)
    assert not any(vars(storage).values())
