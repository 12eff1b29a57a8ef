"""How many may be connected to a server of ours, how long without a request, and who has to go for whom."""

import asyncio
import datetime
import ssl
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from fake_clock import FakeClock
from waiting import until

from instaslice.kube.config import load_pair
from instaslice.observe import connections
from instaslice.observe.connections import PATIENCE, SECONDS, listening
from instaslice.observe.fair_semaphore import PermitState
from instaslice.webhook.certificates import Lifetimes, advance

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = REQUEST[:-2]
LONG = b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"
POSTED = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx"
"""Its last byte is missing."""
OTHER = "127.0.0.2"


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


class Answering:
    """A server, the clients that a test connects to it, and the time, which only the test moves."""

    def __init__(self, port, clock, trusted):
        self.clock = clock
        self.port = port
        self.served = []
        """The server's end of each connection that has asked for `/long`."""
        self.working = asyncio.Event()
        """Set, `/long` is answered."""
        self._trusted = trusted
        self._writers = []

    async def connect(self, said=b"", *, host="127.0.0.1", handshake=True):
        tls = self._trusted if handshake else None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls, local_addr=(host, 0))
        self._writers.append(writer)
        if said:
            writer.write(said)
            await writer.drain()
        return reader, writer

    async def stall(self, host="127.0.0.1"):
        """A connection whose client stops in the middle: with TLS of the handshake."""
        return await self.connect(b"" if self._trusted else HALF, host=host, handshake=False)

    async def idle(self, host="127.0.0.1"):
        """A connection that was answered, as an API server keeps it."""
        reader, writer = await self.connect(REQUEST, host=host)
        await answered(reader)
        self.clock.advance(0.01)
        return reader, writer

    async def ask(self, host="127.0.0.1"):
        """The answer that a newcomer gets."""
        reader, writer = await self.connect(REQUEST, host=host)
        answer = await answered(reader)
        writer.close()
        return answer

    async def long(self, request):
        self.served.append(request.transport.get_protocol())
        await self.working.wait()
        return web.Response(text="hello")

    def close(self):
        self.working.set()
        for writer in self._writers:
            writer.close()


async def greet(request):
    await request.read()
    return web.Response(text="hello")


async def large(_):
    return web.Response(body=b"x" * (32 << 20))


@pytest.fixture
def serve(tls, state):
    trusted = ssl.create_default_context(cadata=state.trusted) if tls else None
    if trusted:
        trusted.check_hostname = False

    @asynccontextmanager
    async def serving():
        clock = FakeClock()
        made = Answering(0, clock, trusted)
        app = web.Application()
        app.add_routes([web.get("/", greet), web.post("/", greet), web.get("/long", made.long)])
        app.add_routes([web.get("/large", large)])
        async with listening(app, "127.0.0.1", 0, tls, clock=clock) as made.port:
            yield made
            made.close()

    return serving


async def answered(reader):
    """One answer: `close` in its headers, or not."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    assert head.startswith(b"HTTP/1.1 200"), head
    assert await reader.readexactly(5) == b"hello"
    return "close" if b"Connection: close" in head else "kept"


async def ended(reader):
    """Returns once the server has closed the connection without an answer."""
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 30) == b""


@pytest.fixture(autouse=True)
def limited(monkeypatch):
    """Servers tell what they count."""

    class Told(connections._Limited):
        def __init__(self, server, tls, clock):
            super().__init__(server, tls, clock)
            made.append(self)

    made = []
    monkeypatch.setattr(connections, "GRACE", 0)
    monkeypatch.setattr(connections, "_Limited", Told)
    return made


def permits(limited):
    return limited[-1].served


@pytest.mark.parametrize("limit", ["MOST", "MOST_OF_ONE"])
async def test_one_connection_more_waits_until_another_ends(serve, limited, monkeypatch, limit):
    monkeypatch.setattr(connections, limit, 2)
    async with serve() as served:
        # With TLS they stay in the handshake: they have to count there.
        quiet = [await served.stall() for _ in range(2)]
        newcomer = asyncio.create_task(served.ask())
        await until(lambda: permits(limited).waiting == 1)
        quiet[0][1].close()
        assert await newcomer == "kept"


@pytest.mark.parametrize("limit", ["MOST", "MOST_OF_ONE"])
async def test_idle_connections_that_hold_every_place_make_room_the_longest_idle_first(serve, monkeypatch, limit):
    monkeypatch.setattr(connections, limit, 3)
    async with serve() as served:
        first, second, third = [await served.idle() for _ in range(3)]
        first[1].write(REQUEST)
        await answered(first[0])
        assert await served.ask() == "kept"
        await ended(second[0])
        for reader, writer in (first, third):
            writer.write(REQUEST)
            assert await answered(reader) == "kept", "one made room, and it was enough"


async def test_an_idle_connection_does_not_end_in_the_middle_of_a_burst(serve, limited, monkeypatch):
    """The client may be about to use it."""
    monkeypatch.setattr(connections, "MOST", 1)
    monkeypatch.setattr(connections, "GRACE", 0.1)
    async with serve() as served:
        reader, writer = await served.idle()
        newcomer = asyncio.create_task(served.ask())
        await until(lambda: permits(limited).waiting == 1)
        writer.write(REQUEST)
        assert await answered(reader) == "close"
        assert await newcomer == "kept"
        reader, _ = await served.idle()
        newcomer = asyncio.create_task(served.ask())
        await until(lambda: permits(limited).waiting == 1)
        served.clock.advance(0.1)
        assert await newcomer == "kept"
        await ended(reader)


async def test_a_connection_that_its_client_did_not_need_after_all_is_not_idle_and_ends_once_it_has_kept_us_waiting(
    serve, limited, monkeypatch
):
    """A busy client may be about to send its first request: it would not repeat what crosses our close."""
    monkeypatch.setattr(connections, "MOST", 1)
    async with serve() as served:
        reader, _ = await served.connect()
        newcomer = asyncio.create_task(served.ask())
        await until(lambda: permits(limited).waiting == 1)
        assert [each.state for each in permits(limited)._permits] == [PermitState.CLIENTS_TURN]
        served.clock.advance(connections.PATIENCE - 0.1)
        assert permits(limited).waiting == 1
        served.clock.advance(0.1)
        assert await newcomer == "kept"
        await ended(reader)


async def test_what_would_be_one_idle_connection_too_many_ends_with_its_answer(serve, monkeypatch):
    monkeypatch.setattr(connections, "MOST_IDLE", 2)
    async with serve() as served:
        kept = [await served.idle() for _ in range(2)]
        assert await served.ask() == "close"
        for reader, writer in kept:
            writer.write(REQUEST)
            assert await answered(reader) == "kept"


async def test_an_address_with_all_it_may_have_ends_none_of_another(serve, monkeypatch):
    monkeypatch.setattr(connections, "MOST_OF_ONE", 1)
    async with serve() as served:
        other = await served.idle(OTHER)
        mine = await served.idle()
        assert await served.ask() == "kept"
        await ended(mine[0])
        other[1].write(REQUEST)
        assert await answered(other[0]) == "kept"


async def test_a_request_in_work_is_never_cut_and_its_answer_makes_room(serve, limited, monkeypatch):
    monkeypatch.setattr(connections, "MOST", 1)
    async with serve() as served:
        reader, _ = await served.connect(LONG)
        await until(lambda: served.served)
        newcomer = asyncio.create_task(served.ask(OTHER))
        await until(lambda: permits(limited).waiting == 1)
        served.clock.advance(SECONDS - 1)
        served.working.set()
        assert await answered(reader) == "close", "no request can cross this on its way, as it could a mere close"
        assert await newcomer == "kept"


async def test_an_idle_connection_on_which_bytes_have_arrived_is_not_idle(serve, limited, monkeypatch):
    monkeypatch.setattr(connections, "MOST", 2)
    async with serve() as served:
        reader, writer = await served.connect(LONG)
        await until(lambda: served.served)
        served.working.set()
        await answered(reader)
        served.clock.advance(0.01)
        other = await served.idle()
        # Its event loop has not come to reading yet.
        (connection,) = served.served
        connection._tcp.pause_reading()
        writer.write(REQUEST)
        await served.ask()
        await ended(other[0])
        connection._tcp.resume_reading()
        assert await answered(reader) == "kept"


@pytest.mark.parametrize(
    "said, handshake",
    [
        pytest.param(b"", False, id="a handshake that does not end"),
        pytest.param(b"", True, id="no request"),
        pytest.param(HALF, True, id="half a request"),
        pytest.param(POSTED, True, id="half a body"),
        pytest.param(LARGE, True, id="an answer that is not read"),
        pytest.param(REQUEST + HALF, True, id="half of a request sent ahead"),
    ],
)
async def test_clients_of_other_addresses_that_do_nothing_hold_no_place_for_long(
    serve, limited, monkeypatch, said, handshake
):
    monkeypatch.setattr(connections, "MOST", 4)
    monkeypatch.setattr(connections, "MOST_OF_ONE", 2)
    async with serve() as served:
        stalled = [
            await served.connect(said, host=f"127.0.0.{number}", handshake=handshake) for number in (2, 3) for _ in "ab"
        ]
        await until(lambda: permits(limited).held == 4)
        newcomer = asyncio.create_task(served.ask())
        # It waits, unless what stalls counts as idle.
        await until(lambda: permits(limited).waiting == 1 or newcomer.done())
        if said == LARGE:
            for reader, _ in stalled:
                await reader.readexactly(1)
        served.clock.advance(PATIENCE)
        await newcomer


@pytest.mark.parametrize("said", [b"", HALF, POSTED], ids=["nothing", "half a request", "half a body"])
async def test_who_sends_no_request_is_disconnected(serve, limited, said):
    async with serve() as served:
        reader, _ = await served.connect(said)
        await until(lambda: permits(limited).held == 1)
        served.clock.advance(SECONDS - 0.1)
        assert permits(limited).held == 1
        served.clock.advance(0.1)
        await ended(reader)


async def test_a_handshake_that_does_not_end_does_not_last(serve, limited):
    async with serve() as served:
        reader, _ = await served.connect(handshake=False)
        await until(lambda: permits(limited).held == 1)
        served.clock.advance(SECONDS)
        await ended(reader)


async def test_a_second_request_has_as_long_as_the_first_however_slowly_it_trickles_in(serve, limited, monkeypatch):
    read = bytearray()
    received = connections._Connection.data_received
    monkeypatch.setattr(
        connections._Connection, "data_received", lambda self, data: (read.extend(data), received(self, data))
    )
    async with serve() as served:
        reader, writer = await served.idle()
        served.clock.advance(100 * SECONDS)
        for byte in HALF[:9]:
            before = len(read)
            writer.write(bytes([byte]))
            await until(lambda now=before: len(read) > now)
            served.clock.advance(1)
        served.clock.advance(0.9)
        assert permits(limited).held == 1
        served.clock.advance(0.1)
        await ended(reader)


async def test_who_was_answered_may_be_idle_and_asks_again(serve):
    async with serve() as served:
        reader, writer = await served.idle()
        for _ in range(3):
            served.clock.advance(10 * SECONDS)
            writer.write(REQUEST)
            assert await answered(reader) == "kept"
        assert served.clock.waiting == 0, "nothing ends it any more"


async def test_requests_that_are_sent_ahead_are_answered_one_after_the_other(serve):
    async with serve() as served:
        reader, writer = await served.connect(REQUEST * 3)
        for _ in range(3):
            assert await answered(reader) == "kept"
        served.clock.advance(10 * SECONDS)
        writer.write(REQUEST)
        assert await answered(reader) == "kept"


async def test_a_request_that_was_sent_ahead_has_as_long_as_any(serve):
    async with serve() as served:
        reader, _ = await served.connect(REQUEST + LONG)
        await answered(reader)
        await until(lambda: served.served)
        served.clock.advance(SECONDS)
        await ended(reader)


async def test_what_is_refused_leaves_its_connection_idle(serve, monkeypatch):
    monkeypatch.setattr(connections, "MOST", 1)
    async with serve() as served:
        reader, _ = await served.connect(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404")
        assert await served.ask() == "kept"


@pytest.mark.parametrize("limit", ["MOST_OPEN", "MOST_OPEN_OF_ONE"])
async def test_those_that_wait_are_closed_above_a_number(serve, limited, monkeypatch, limit):
    monkeypatch.setattr(connections, limit, 2)
    async with serve() as served:
        held = [await served.connect(handshake=False) for _ in range(3)]
        await ended(held[-1][0])
        assert len(limited[-1].open) == 2


async def test_a_newcomer_displaces_one_that_waits_of_the_address_with_most(serve, limited, monkeypatch):
    monkeypatch.setattr(connections, "MOST", 1)
    monkeypatch.setattr(connections, "MOST_OPEN", 4)
    async with serve() as served:
        held = []
        for number in range(4):
            held.append(await served.stall(OTHER))
            await until(lambda now=number: len(limited[-1].open) == now + 1)
        newcomers = [asyncio.create_task(served.ask()) for _ in range(2)]
        for reader, _ in held[:1:-1]:
            await ended(reader)
        assert sorted(limited[-1].open.values()) == ["127.0.0.1"] * 2 + [OTHER] * 2
        refused, _ = await served.connect(handshake=False)
        await ended(refused)
        held[0][1].close()
        held[1][1].close()
        assert [await each for each in newcomers]


async def test_newcomers_displace_those_of_an_address_that_has_kept_others_waiting(serve, limited, monkeypatch):
    """Before those of others, however few it has: many such addresses leave each of a burst its place."""
    monkeypatch.setattr(connections, "MOST", 1)
    monkeypatch.setattr(connections, "MOST_OPEN", 4)
    third = "127.0.0.3"
    async with serve() as served:

        async def stall(*hosts):
            for host in hosts:
                there = len(limited[-1].open)
                held.append(await served.stall(host))
                await until(lambda there=there: len(limited[-1].open) == there + 1)

        held = []
        await stall(OTHER, OTHER, third, third)
        served.clock.advance(PATIENCE)
        await ended(held[0][0])
        await until(lambda: len(limited[-1].open) == 3)
        await stall(OTHER)
        for _ in range(2):
            await served.stall()
        await until(lambda: sorted(limited[-1].open.values()) == ["127.0.0.1"] * 2 + [third] * 2)


async def test_who_waits_too_long_leaves_the_queue(serve, limited, monkeypatch):
    monkeypatch.setattr(connections, "MOST_OF_ONE", 0)
    async with serve() as served:
        for _ in range(3):
            reader, _ = await served.connect(handshake=False)
            await until(lambda: permits(limited).waiting == 1)
            served.clock.advance(SECONDS)
            await ended(reader)
        assert permits(limited).waiting == 0
        assert limited[-1].open == {}
