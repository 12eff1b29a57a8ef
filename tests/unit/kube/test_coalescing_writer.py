"""One object, one patch in flight: what is known after an answer, without one, and when the object is gone."""

import pytest
from fake_clock import FakeClock

from instaslice.kube.client import JsonOp
from instaslice.kube.coalescing_writer import CoalescingWriter
from instaslice.kube.core import NODES, Node
from instaslice.kube.errors import NotFound, Unreachable
from instaslice.kube.meta import Key, ObjectMeta

OPS = [JsonOp(op="add", path="/spec", value="new")]


class Server:
    """Takes two seconds for every patch."""

    def __init__(self, clock):
        self.clock, self.error, self.patches = clock, None, []

    async def patch(self, resource, key, ops, *, manager, subresource):
        self.patches.append((resource, key, list(ops), manager, subresource))
        self.clock.advance(2)
        if self.error:
            raise self.error
        return Node(metadata=ObjectMeta(name=key.name, resource_version="2"))


@pytest.fixture
def server():
    return Server(FakeClock())


@pytest.fixture
def writer(server):
    return CoalescingWriter(
        server, NODES, "a", "uid", manager="me", clock=server.clock, cooldown=lambda took: 5 * took, written="old"
    )


async def test_after_a_write_changes_gather_as_long_as_its_duration_says(server, writer):
    began = server.clock.monotonic()
    answer = await writer.patch("new", OPS)
    assert answer.metadata.resource_version == "2"
    assert (writer.written, writer.unanswered, writer.took) == ("new", None, 2)
    assert (writer.wrote_at - began, writer.free_at - began) == (2, 12)
    same = JsonOp(op="test", path="/metadata/uid", value="uid")
    assert server.patches == [(NODES, Key("", "a"), [same, *OPS], "me", "")]


async def test_after_a_write_without_an_answer_nobody_knows_what_the_server_holds(server, writer):
    server.error = Unreachable("reset")
    with pytest.raises(Unreachable):
        await writer.patch("new", OPS)
    assert (writer.written, writer.unanswered) == (None, "new")
    writer.confirm("old")
    assert (writer.written, writer.unanswered) == ("old", None)


async def test_an_object_that_is_gone_was_not_written(server, writer):
    server.error = NotFound("gone")
    assert await writer.patch("new", OPS) is None
    assert (writer.written, writer.unanswered, writer.free_at) == ("old", None, 0.0)
