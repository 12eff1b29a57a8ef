"""How many may be connected to a server of ours, and how long without a request."""

import asyncio
import datetime
import ssl
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import ClientSession, web

from instaslice.kube.config import load_pair
from instaslice.observe import connections
from instaslice.observe.connections import listening
from instaslice.webhook.certificates import Lifetimes, advance

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def state():
    return advance(None, datetime.datetime.now(datetime.UTC), ["127.0.0.1"], Lifetimes())


@pytest.fixture(params=["plain", "tls"])
def tls(request, state):
    if request.param == "plain":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, state.leaf.certificate, state.leaf.key)
    return context


async def greet(_):
    return web.Response(text="hello")


@asynccontextmanager
async def greeting(tls):
    app = web.Application()
    app.add_routes([web.get("/", greet)])
    async with listening(app, "127.0.0.1", 0, tls) as port:
        yield port


async def dropped(reader):
    """Returns once the server has closed the connection without an answer."""
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 8) == b""


async def asked(port, tls, state):
    trusted = ssl.create_default_context(cadata=state.trusted)
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/"
    async with ClientSession() as http, http.get(url, ssl=trusted) as answer:
        return await answer.text()


@pytest.mark.parametrize("limit", ["MOST", "MOST_OF_ONE"])
async def test_one_connection_more_waits_until_another_ends(tls, state, monkeypatch, limit):
    monkeypatch.setattr(connections, limit, 2)
    monkeypatch.setattr(connections, "SECONDS", 3600)
    async with greeting(tls) as port:
        # They say nothing, so with TLS they stay in the handshake: they have to count there.
        quiet = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        waiting = asyncio.create_task(asked(port, tls, state))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.2)
        for _, other in quiet:
            other.close()
        assert await waiting == "hello"


@pytest.mark.parametrize("limit", ["MOST_OPEN", "MOST_OPEN_OF_ONE"])
async def test_those_that_wait_are_closed_above_a_number(tls, monkeypatch, limit):
    monkeypatch.setattr(connections, limit, 2)
    monkeypatch.setattr(connections, "SECONDS", 3600)
    async with greeting(tls) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        await dropped(held[-1][0])
        for _, writer in held:
            writer.close()


async def test_who_waits_too_long_leaves_the_queue(tls, monkeypatch):
    monkeypatch.setattr(connections, "MOST_OF_ONE", 0)
    monkeypatch.setattr(connections, "MOST_OPEN", 1)
    monkeypatch.setattr(connections, "SECONDS", 0.05)
    async with greeting(tls) as port:
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await dropped(reader)
            writer.close()
    assert [each for each in asyncio.all_tasks() if "_serve" in str(each)] == []


@pytest.mark.parametrize("said", [b"", REQUEST[:-2]], ids=["nothing", "half a request"])
async def test_who_sends_no_request_is_disconnected(tls, monkeypatch, said):
    monkeypatch.setattr(connections, "SECONDS", 0.05)
    async with greeting(tls) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if tls is None:
            writer.write(said)
        await dropped(reader)
        writer.close()


async def test_who_was_answered_may_be_idle(state, monkeypatch):
    monkeypatch.setattr(connections, "SECONDS", 0.05)
    async with greeting(None) as port:
        used, idle = await asyncio.open_connection("127.0.0.1", port), await asyncio.open_connection("127.0.0.1", port)
        used[1].write(REQUEST)
        assert (await used[0].readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        await dropped(idle[0])
        used[1].write(REQUEST)
        assert (await used[0].readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        for _, writer in (used, idle):
            writer.close()
