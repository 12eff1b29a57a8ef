"""From bytes to objects: lines cut anywhere, objects with fields we do not know, bookmarks with nulls."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instaslice.kube.core import EVENTS, LEASES, NODES, PODS, Event, Lease, LeaseSpec, ObjectReference, Pod
from instaslice.kube.lines import Lines
from instaslice.kube.meta import Key, ObjectMeta


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=10), st.data())
def test_lines_come_whole_however_the_stream_is_cut(lines, data):
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=15)))
    splitter, found = Lines(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        if end > start:
            found += splitter.feed(stream[start:end])
    assert found == lines


def test_a_line_of_many_small_chunks_is_one_line():
    splitter = Lines()
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
