"""From bytes to objects: lines cut anywhere, objects with fields we do not know, bookmarks with nulls."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instaslice.kube import core, storage
from instaslice.kube.core import (
    EVENTS,
    LEASES,
    NODES,
    PODS,
    Condition,
    Container,
    Event,
    Lease,
    LeaseSpec,
    Node,
    NodeStatus,
    ObjectReference,
    Pod,
    PodStatus,
)
from instaslice.kube.lines import LineSplitter
from instaslice.kube.meta import Key, ObjectMeta


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=10), st.data())
def test_lines_come_whole_however_the_stream_is_cut(lines, data):
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=15)))
    splitter, found = LineSplitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        if end > start:
            found += splitter.feed(stream[start:end])
    assert found == lines


def test_a_line_of_many_small_chunks_is_one_line():
    splitter = LineSplitter()
    assert all(splitter.feed(b"x" * 100) == [] for _ in range(15_000))
    assert splitter.feed(b"\nrest") == [b"x" * 1_500_000]


def test_a_pod_decodes_with_fields_we_do_not_know_and_nulls_where_lists_belong():
    wire = b"""{"kind":"Pod","apiVersion":"v1","metadata":{"name":"train","namespace":"team-a","resourceVersion":"7",
        "creationTimestamp":null,"managedFields":[{"manager":"kubectl","fieldsV1":{"f:spec":{}}}]},
        "spec":{"containers":null,"nodeName":"n1","volumes":[{"name":"v"}]},"status":{"phase":"Running"}}"""
    pod = PODS.decoder.decode(wire)
    assert (pod.metadata.name, pod.spec.node_name, pod.status.phase) == ("train", "n1", "Running")
    assert pod.spec.containers is None
    assert not hasattr(pod.metadata, "managed_fields")


def test_only_fields_that_were_set_are_sent():
    key, document = PODS.document(Pod(metadata=ObjectMeta(namespace="team-a", name="train", labels={"x": "y"})))
    assert key == Key("team-a", "train")
    assert msgspec.json.decode(document) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "team-a", "name": "train", "labels": {"x": "y"}},
    }


def test_the_type_of_an_event_is_always_sent():
    event = Event(metadata=ObjectMeta(name="e"), regarding=ObjectReference(name="train"), type="Normal")
    assert msgspec.json.decode(EVENTS.document(event)[1])["type"] == "Normal"


def test_releasing_a_lease_sends_no_holder():
    lease = Lease(metadata=ObjectMeta(name="l"), spec=LeaseSpec(holder_identity="", lease_duration_seconds=1))
    assert msgspec.json.decode(LEASES.document(lease)[1])["spec"] == {"leaseDurationSeconds": 1}


@pytest.mark.parametrize(
    "path, expected",
    [
        pytest.param(PODS.path(), "/api/v1/pods", id="all namespaces"),
        pytest.param(PODS.path("a", "b", "status"), "/api/v1/namespaces/a/pods/b/status", id="a subresource"),
        pytest.param(NODES.path("", "n1"), "/api/v1/nodes/n1", id="cluster-scoped"),
        pytest.param(
            LEASES.path("a", "l"), "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", id="a group of its own"
        ),
    ],
)
def test_where_a_resource_lives(path, expected):
    assert path == expected


@pytest.mark.parametrize(
    "resource, of_one",
    [
        (core.NAMESPACES, "/api/v1/namespaces/x"),
        (core.NODES, "/api/v1/nodes/x"),
        (core.PODS, "/api/v1/namespaces/team/pods/x"),
        (core.LEASES, "/apis/coordination.k8s.io/v1/namespaces/team/leases/x"),
        (core.EVENTS, "/apis/events.k8s.io/v1/namespaces/team/events/x"),
        (storage.CLAIMS, "/api/v1/namespaces/team/persistentvolumeclaims/x"),
        (storage.VOLUMES, "/api/v1/persistentvolumes/x"),
        (storage.CLASSES, "/apis/storage.k8s.io/v1/storageclasses/x"),
        (storage.CSI_NODES, "/apis/storage.k8s.io/v1/csinodes/x"),
        (storage.CSI_DRIVERS, "/apis/storage.k8s.io/v1/csidrivers/x"),
        (storage.CSI_CAPACITIES, "/apis/storage.k8s.io/v1/namespaces/team/csistoragecapacities/x"),
        (storage.ATTACHMENTS, "/apis/storage.k8s.io/v1/volumeattachments/x"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_which_kinds_live_in_namespaces(resource, of_one):
    assert resource.path("team", "x") == of_one


@pytest.mark.parametrize("phase, ended", [("", False), ("Running", False), ("Succeeded", True), ("Failed", True)])
def test_when_a_pod_has_ended(phase, ended):
    assert Pod(metadata=ObjectMeta(), status=PodStatus(phase=phase)).ended is ended


def test_a_condition_of_a_pod_is_found_by_its_type():
    scheduled = Condition(type="PodScheduled", status="True")
    pod = Pod(metadata=ObjectMeta(), status=PodStatus(conditions=[Condition(type="Ready", status="True"), scheduled]))
    assert pod.condition("PodScheduled") is scheduled
    assert pod.condition("Initialized") is None
    assert Pod(metadata=ObjectMeta()).condition("Ready") is None


@pytest.mark.parametrize(
    "conditions, ready",
    [
        pytest.param(None, False, id="nobody has looked yet"),
        pytest.param([Condition(type="Ready", status="True")], True, id="ready"),
        pytest.param([Condition(type="Ready", status="Unknown")], False, id="its kubelet is silent"),
        pytest.param([Condition(type="DiskPressure", status="True")], False, id="another condition"),
    ],
)
def test_when_a_node_is_ready(conditions, ready):
    assert Node(metadata=ObjectMeta(), status=NodeStatus(conditions=conditions)).ready is ready


@pytest.mark.parametrize("policy, sidecar", [("Always", True), ("", False), ("OnFailure", False)])
def test_which_init_containers_are_sidecars(policy, sidecar):
    assert Container(name="c", restart_policy=policy).sidecar is sidecar


BOUND = {storage.BIND_COMPLETED: "yes"}


@pytest.mark.parametrize(
    "volume, annotations, bound",
    [
        pytest.param("v", BOUND, True, id="both sides know"),
        pytest.param("v", {}, False, id="the volume does not know yet"),
        pytest.param("", BOUND, False, id="without a volume"),
    ],
)
def test_when_a_claim_is_bound(volume, annotations, bound):
    meta = ObjectMeta(name="c", annotations=annotations)
    claim = storage.PersistentVolumeClaim(metadata=meta, spec=storage.ClaimSpec(volume_name=volume))
    assert claim.bound is bound


@pytest.mark.parametrize("kind", [storage.CLAIMS, storage.VOLUMES], ids=lambda kind: kind.kind)
def test_the_class_of_storage_in_an_annotation_comes_first(kind):
    spec = {"storageClassName": "new"}
    old = {"annotations": {storage.BETA_CLASS: "old"}}
    for meta, name in (({}, "new"), (old, "old")):
        assert kind.decoder.decode(msgspec.json.encode({"metadata": meta, "spec": spec})).class_name == name


@pytest.mark.parametrize(
    "spec, amount",
    [
        (storage.StorageRequests(), ""),
        (storage.StorageRequests(requests={"storage": "1Gi"}), "1Gi"),
        (storage.VolumeSpec(), ""),
        (storage.VolumeSpec(capacity={"storage": "2Gi"}), "2Gi"),
    ],
    ids=str,
)
def test_how_much_storage(spec, amount):
    assert spec.storage == amount
