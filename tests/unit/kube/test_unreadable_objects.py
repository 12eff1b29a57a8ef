"""An object that does not have the form of its kind, edited past its schema, say: it costs itself and nothing else."""

import asyncio
import json
import random
from contextlib import asynccontextmanager

import pytest

from instaslice.kube.cache import Cache
from instaslice.kube.client import Client
from instaslice.kube.core import NODES
from instaslice.kube.errors import Invalid, Unreadable
from instaslice.kube.meta import Key
from instaslice.kube.observer import UNOBSERVED
from instaslice.kube.watch import Reflector

BAD = {"status": {"allocatable": {"cpu": [1]}}}


def node(name, version, uid="", **more):
    meta = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version), "labels": {}}
    return {"metadata": meta, **more}


def event(kind, thing):
    return json.dumps({"type": kind, "object": thing}, separators=(",", ":")).encode() + b"\n"


def mark(version, **annotations):
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


END = {"k8s.io/initial-events-end": "true"}


class Server:
    """Answers each list and each watch with what comes next, and leaves the last watch open."""

    observer = UNOBSERVED

    def __init__(self, watches, lists=()):
        self._watches, self._lists = list(watches), list(lists)
        self.asked = []

    async def pages(self, resource, selector):
        version, items = self._lists.pop(0)
        body = {"metadata": {"resourceVersion": str(version)}, "items": items}
        yield resource.read_page("list nodes", json.dumps(body).encode())

    async def version(self, resource, selector):
        return "5"

    @asynccontextmanager
    async def watch(self, resource, selector, params, *, silent_after):
        if "sendInitialEvents" in params and self._lists:
            raise Invalid("a server without watch lists")
        self.asked.append(params.get("resourceVersion"))
        self._lines = list(self._watches.pop(0)) if self._watches else None
        yield self

    async def read(self):
        if self._lines is None:
            await asyncio.Event().wait()
        return self._lines.pop(0) if self._lines else b""

    async def gather(self, seconds): ...


async def heard(clock, server, turns=300):
    """What a cache holds in the end, what its handlers were told and what could not be read."""
    cache, told, left_out = Cache(), [], []
    cache.on_change(lambda old, new: told.append((old and old.metadata.name, new and new.metadata.name)))
    reflector = Reflector(
        server, NODES, cache, clock=clock, rng=random.Random(1), unreadable=lambda meta, _: left_out.append(meta.name)
    )
    running = asyncio.create_task(reflector.run())
    for _ in range(turns):
        await asyncio.sleep(0)
        clock.advance(0.1)
    assert not running.done(), running.exception()
    running.cancel()
    return {each.metadata.name: each.metadata.resource_version for each in cache}, told, left_out


async def test_a_change_that_cannot_be_read_is_told_and_the_watch_goes_on(clock):
    server = Server(
        [
            [
                event("ADDED", node("a", 1)) + event("ADDED", node("b", 2)) + mark(3, **END),
                event("MODIFIED", node("a", 4, **BAD)) + event("MODIFIED", node("b", 5)),
            ]
        ]
    )
    assert await heard(clock, server) == ({"a": "1", "b": "5"}, [(None, "a"), (None, "b"), ("b", "b")], ["a"])
    assert server.asked[1] == "5", "it is resumed after what could not be read"


async def test_the_end_of_what_cannot_be_read_is_an_end(clock):
    server = Server([[event("ADDED", node("a", 1)) + mark(3, **END), event("DELETED", node("a", 4, **BAD))]])
    assert await heard(clock, server) == ({}, [(None, "a"), ("a", None)], [])


async def test_what_can_be_read_again_is_told_as_a_change(clock):
    server = Server(
        [
            [event("ADDED", node("a", 1)) + mark(3, **END), event("MODIFIED", node("a", 4, **BAD))],
            [event("MODIFIED", node("a", 6))],
        ]
    )
    assert await heard(clock, server) == ({"a": "6"}, [(None, "a"), ("a", "a")], ["a"])


GONE = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


@pytest.mark.parametrize("lists", [True, False], ids=["in pages", "as a watch list"])
@pytest.mark.parametrize(
    "uid, kept",
    [
        pytest.param("uid-a", True, id="the same object"),
        pytest.param("uid-new", False, id="another of its name: what was is gone"),
    ],
)
async def test_of_a_list_that_holds_one_the_others_count_and_it_stays_as_it_was(clock, lists, uid, kept):
    good, bad = [node("a", 1), node("b", 2)], [node("a", 7, uid=uid, **BAD), node("b", 8)]
    if lists:
        server = Server([[GONE]], [(3, good), (9, bad)])
    else:
        first, second = ([event("ADDED", each) for each in things] for things in (good, bad))
        server = Server([[*first, mark(3, **END), GONE], [*second, mark(9, **END)]])
    held, told, left_out = await heard(clock, server)
    assert held == {"b": "8"} | ({"a": "1"} if kept else {})
    assert (("a", None) in told) is not kept
    assert left_out == ["a"]


async def test_one_that_never_could_be_read_is_not_there(clock):
    server = Server([[event("ADDED", node("a", 1, **BAD)) + event("ADDED", node("b", 2)) + mark(3, **END)]])
    assert await heard(clock, server) == ({"b": "2"}, [(None, "b")], ["a"])


@pytest.mark.parametrize(
    "garbage",
    [b"<html>\n", b'{"type":"ADDED"}\n', b'{"type":"ADDED","object":7}\n', b'{"type":"ADDED","object":{"me\n'],
)
async def test_what_is_no_watch_at_all_ends_the_connection_and_not_the_process(clock, garbage):
    server = Server([[event("ADDED", node("a", 1)) + mark(3, **END), garbage], [event("MODIFIED", node("a", 6))]])
    held, _, _ = await heard(clock, server)
    assert held == {"a": "6"}


class Answers:
    def __init__(self, body):
        self._body = body

    async def request(self, *_, **__):
        return json.dumps(self._body).encode()


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda client: client.get(NODES, Key("", "a")), id="get"),
        pytest.param(lambda client: client.merge(NODES, Key("", "a"), {}), id="merge"),
        pytest.param(lambda client: client.patch(NODES, Key("", "a"), []), id="patch"),
        pytest.param(lambda client: client.create(NODES, node("a", 1)), id="create"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_an_error_like_others(ask):
    with pytest.raises(Unreadable, match="nodes a: the response is not a Node that we can read"):
        await ask(Client(Answers(node("a", 1, **BAD))))


async def test_a_list_that_is_not_all_is_none():
    body = {"metadata": {}, "items": [node("a", 1, **BAD), node("b", 2)]}
    with pytest.raises(Unreadable, match="Node a cannot be read"):
        await Client(Answers(body)).list(NODES)
