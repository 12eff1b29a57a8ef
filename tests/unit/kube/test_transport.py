"""What is sent again and what is not, and what becomes of a watch that is refused."""

import asyncio
import contextlib
import random
import socket
import ssl

import pytest
from fake_clock import JumpingClock
from http_server import OK, Server, listening
from waiting import until

from instaslice.kube import errors
from instaslice.kube.transport import INTERACTIVE, MAX_ERROR_BYTES, Persistence, Transport
from instaslice.local.pki import Authority


class Config:
    """Where a test's server is. Notes for each request whether the last token was refused."""

    source, server_name, proxy = "a test", None, None

    def __init__(self, port):
        self.server = f"http://127.0.0.1:{port}"
        self.refused = []

    def tls(self):
        raise AssertionError("nothing here speaks TLS")

    async def authorization(self, *, refused=False):
        self.refused.append(refused)
        return "Bearer token"


@contextlib.asynccontextmanager
async def watching(*says, clock):
    """The chunks of a watch that is answered by these."""
    opened = {"what": "watch x", "params": {}, "silent_after": 90}
    async with serving(*says, clock=clock) as (_, made), made.stream("/x", **opened) as chunks:
        yield chunks


@contextlib.asynccontextmanager
async def serving(*says, clock=None, rate=1000, burst=1000, **options):
    """A server that says these, and a transport to it."""
    server = Server(*says)
    async with listening(server) as port:
        config = Config(port)
        made = Transport(config, clock=clock or JumpingClock(), rng=random.Random(1), rate=rate, burst=burst, **options)
        made.config = config
        try:
            yield server, made
        finally:
            await made.close()


def answer(status, *headers, body=b"{}"):
    lines = [b"HTTP/1.1 %d x" % status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


async def break_off(_reader, writer):
    writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{")


async def say_nothing(reader, _writer):
    await reader.read()


REFUSED = answer(429, b"Retry-After: 1")


@pytest.mark.parametrize(
    "said, sent, error",
    [
        pytest.param([break_off], 1, errors.Unreachable, id="broken in the middle: it may have been done"),
        pytest.param([answer(500)], 1, errors.ServerError, id="500: it may have been done"),
        pytest.param([answer(409)], 1, errors.Conflict, id="409"),
        pytest.param([REFUSED], 2, None, id="429: nothing was done"),
        pytest.param([answer(503, b"Retry-After: 1")], 2, None, id="503 that asks us to come back: nothing was done"),
        pytest.param([answer(401)], 2, None, id="401: the token may be new by now"),
        pytest.param([answer(401)] * 2, 2, errors.Unauthorized, id="401 with the new token too"),
        pytest.param([REFUSED] * 9, Persistence().attempts, errors.TooManyRequests, id="429 again and again"),
    ],
)
async def test_how_often_a_create_is_sent(said, sent, error):
    async with serving(*said) as (server, made):
        with pytest.raises(error) if error else contextlib.nullcontext():
            await made.request("POST", "/x", what="create", body=b"{}")
        assert len(server.heard) == sent


async def test_what_is_safe_to_repeat_is_sent_again_when_it_broke_in_the_middle():
    async with serving(break_off, break_off) as (server, made):
        assert await made.request("GET", "/x", what="get", repeatable=True) == b"ok"
        assert len(server.heard) == 3


async def test_a_create_that_is_not_answered_in_time_is_not_sent_again(clock):
    async with serving(say_nothing, clock=clock) as (server, made):
        asking = asyncio.create_task(made.request("POST", "/x", what="create x", body=b"{}"))
        await until(lambda: server.heard)
        clock.advance(Persistence().answer_seconds)
        with pytest.raises(errors.Unreachable, match=r"create x: no answer from .* \(not in time\)"):
            await asking
        assert len(server.heard) == 1


async def test_somebody_at_a_terminal_hears_soon_that_nothing_answers(clock):
    async with serving(say_nothing, clock=clock, persistence=INTERACTIVE) as (server, made):
        asking = asyncio.create_task(made.request("POST", "/x", what="create x"))
        await until(lambda: server.heard)
        clock.advance(INTERACTIVE.answer_seconds)
        with pytest.raises(errors.Unreachable, match="not in time"):
            await asking


async def test_and_that_nothing_can_be_reached(nobody):
    clock = JumpingClock()
    config = Config(nobody.partition(":")[2])
    made = Transport(config, clock=clock, rng=random.Random(1), rate=1000, burst=1000, persistence=INTERACTIVE)
    with pytest.raises(errors.Unreachable):
        await made.request("GET", "/x", what="list x", repeatable=True)
    assert len(clock.slept) == INTERACTIVE.attempts - 1
    await made.close()


async def test_each_wait_before_the_same_request_is_longer_than_the_last():
    clock = JumpingClock()
    async with serving(*[answer(429)] * Persistence().attempts, clock=clock) as (_, made):
        with pytest.raises(errors.TooManyRequests):
            await made.request("GET", "/x", what="get")
    bases = [0.2 * 2**n for n in range(Persistence().attempts - 1)]
    assert len(clock.slept) == len(bases)
    assert all(base <= wait <= 2 * base for base, wait in zip(bases, clock.slept, strict=True)), clock.slept


async def test_a_refused_token_is_said_to_be_refused():
    async with serving(answer(401)) as (_, made):
        await made.request("GET", "/x", what="get")
        assert made.config.refused == [False, True]


async def watched(made, silent_after=90):
    async with made.stream("/x", what="watch x", params={}, silent_after=silent_after) as chunks:
        return await chunks.read()


def head(status):
    return b"HTTP/1.1 %d x\r\nTransfer-Encoding: chunked\r\n\r\n" % status


def chunk(content):
    return b"%x\r\n%s\r\n" % (len(content), content)


async def test_a_watch_whose_token_is_refused_is_opened_with_a_new_one():
    async with serving(answer(401), OK) as (_, made):
        assert await watched(made) == b"ok"
        assert made.config.refused == [False, True]


async def test_a_watch_that_is_refused_at_length_is_refused():
    """More than is read from the socket while nobody takes it. A proxy's page, say."""

    async def at_length(_reader, writer):
        writer.write(head(502))
        for _ in range(100):
            writer.write(chunk(b"no " * MAX_ERROR_BYTES))
            await writer.drain()

    async with serving(at_length) as (_, made):
        async with asyncio.timeout(30):
            with pytest.raises(errors.ServerError, match="watch x: 502 : no no no") as caught:
                await watched(made)
        assert len(str(caught.value)) < 300


async def test_a_status_as_long_as_can_be_is_read_whole():
    status = b'{"kind":"Status","reason":"Expired","message":"%s"}' % (b"x" * (MAX_ERROR_BYTES - 100))

    async def in_halves(_reader, writer):
        said = answer(410, body=status)
        writer.write(said[:10_000])
        for _ in range(50):
            await asyncio.sleep(0)
        writer.write(said[10_000:])

    async with serving(in_halves) as (_, made):
        with pytest.raises(errors.Gone) as caught:
            await watched(made)
        assert caught.value.reason == "Expired"


@pytest.mark.parametrize(
    "begun", [pytest.param(b"", id="after its head"), pytest.param(chunk(b'{"kind":"St'), id="in the middle")]
)
async def test_a_refusal_that_stalls_is_taken_at_its_status(clock, begun):
    async def stall(reader, writer):
        writer.write(head(410) + begun)
        await reader.read()

    async with serving(stall, clock=clock) as (server, made):
        watching = asyncio.create_task(watched(made))
        await until(lambda: clock.waiting == 2)  # for a sign of life, and for the whole of the answer
        clock.advance(Persistence().answer_seconds)
        with pytest.raises(errors.Gone, match="watch x: 410 : the server did not say why"):
            await watching
        await until(lambda: not server.open)


async def test_a_watch_that_is_never_answered_is_given_up(clock):
    async with serving(say_nothing, clock=clock) as (server, made):
        watching = asyncio.create_task(watched(made, silent_after=90))
        await until(lambda: server.heard)
        clock.advance(90)
        with pytest.raises(errors.Unreachable, match="nothing came for 90 s"):
            await watching
        await until(lambda: not server.open)  # its connection is of no more use to anybody


async def test_a_watch_that_brings_nothing_is_quiet_and_no_server_is_suspected(clock):
    async def open_and_say_nothing(reader, writer):
        writer.write(head(200))
        await reader.read()  # until the other side has closed

    async with serving(open_and_say_nothing, clock=clock) as (_, made):
        async with made.stream("/x", what="watch x", params={}, silent_after=90) as chunks:
            reading = asyncio.create_task(chunks.read())
            await until(lambda: clock.waiting)
            clock.advance(90)
            with pytest.raises(errors.Quiet) as caught:
                await reading
        assert str(caught.value) == "watch x: nothing came for 90 s"


async def test_a_watch_that_breaks_off_is_said_to(clock):
    async def break_off_later(_reader, writer):
        writer.write(head(200) + chunk(b"x"))

    async with watching(break_off_later, clock=clock) as chunks:
        assert await chunks.read() == b"x"
        with pytest.raises(errors.Unreachable, match="watch x: no answer from"):
            await chunks.read()


@pytest.mark.parametrize("status", [300, 304, 404])
async def test_only_a_success_is_one(status):
    async with serving(answer(status, body=b""), answer(status, body=b"")) as (_, made):
        with pytest.raises(errors.KubeError, match=f"get: {status}"):
            await made.request("GET", "/x", what="get")
        with pytest.raises(errors.KubeError, match=f"watch x: {status}"):
            await watched(made)


def headers_of(request):
    return dict(line.split(b": ") for line in request.split(b"\r\n\r\n")[0].split(b"\r\n")[1:])


ALWAYS = {
    b"Accept": b"application/json",
    b"Accept-Encoding": b"identity",
    b"Authorization": b"Bearer token",
    b"User-Agent": b"instaslice",
}


@pytest.mark.parametrize(
    "request_, more",
    [
        pytest.param({"body": None}, {}, id="without a body"),
        pytest.param(
            {"body": b"{}"}, {b"Content-Type": b"application/json", b"Content-Length": b"2"}, id="with a body"
        ),
        pytest.param(
            {"body": b"[]", "content_type": "application/json-patch+json"},
            {b"Content-Type": b"application/json-patch+json", b"Content-Length": b"2"},
            id="with a patch",
        ),
    ],
)
async def test_the_headers_of_a_request(request_, more):
    async with serving() as (server, made):
        await made.request("PATCH" if request_["body"] else "GET", "/x", what="x", **request_)
        sent = headers_of(server.heard[0])
        sent.pop(b"Host")
        assert sent == {**ALWAYS, **more}


async def test_who_has_no_token_sends_none():
    async def none(*, refused=False):
        return None

    async with serving() as (server, made):
        made.config.authorization = none
        await made.request("GET", "/x", what="get")
        assert headers_of(server.heard[0]).keys() & ALWAYS.keys() == ALWAYS.keys() - {b"Authorization"}


async def test_what_a_watch_sends():
    async with serving() as (server, made):
        async with made.stream("/x", what="watch", params={"watch": "true"}, silent_after=90):
            pass
        assert server.heard[0].startswith(b"GET /x?watch=true HTTP/1.1\r\n")
        sent = headers_of(server.heard[0])
        sent.pop(b"Host")
        assert sent == ALWAYS


async def test_requests_and_watches_share_one_rate():
    clock = JumpingClock()
    async with serving(clock=clock, rate=1, burst=2) as (_, made):
        for _ in range(2):
            await made.request("GET", "/x", what="get")
        assert clock.slept == []
        assert await watched(made) == b"ok"
        await made.request("GET", "/x", what="get")
        assert clock.slept == [1, 1]


async def test_each_repetition_counts_against_the_rate():
    clock = JumpingClock()
    async with serving(answer(401), clock=clock, rate=1, burst=1) as (_, made):
        await made.request("GET", "/x", what="get")
    assert clock.slept == [1]


async def test_what_never_was_connected_is_sent_again_whatever_it_is(nobody):
    clock = JumpingClock()
    made = Transport(Config(nobody.partition(":")[2]), clock=clock, rng=random.Random(1), rate=1000, burst=1000)
    with pytest.raises(errors.Unreachable, match=r"create x: no answer from .* right\?"):
        await made.request("POST", "/x", what="create x", body=b"{}")
    bases = [0.2 * 2**n for n in range(Persistence().attempts - 1)]
    assert all(base <= wait <= 2 * base for base, wait in zip(bases, clock.slept, strict=True)), clock.slept
    with pytest.raises(errors.Unreachable, match="watch x: no answer from"):
        await watched(made)
    await made.close()


async def test_a_certificate_that_does_not_fit_is_not_tried_again(tmp_path):
    pair = Authority(tmp_path).issue("server", "server")
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(pair.certificate, pair.key)
    clock, server = JumpingClock(), Server()
    async with listening(server, served) as port:
        config = Config(port)
        config.server = f"https://127.0.0.1:{port}"
        config.tls = ssl.create_default_context
        made = Transport(config, clock=clock, rng=random.Random(1), rate=1000, burst=1000)
        with pytest.raises(errors.Unreachable, match="certificate"):
            await made.request("GET", "/x", what="get", repeatable=True)
        await made.close()
    assert clock.slept == []


async def test_closing_ends_the_connections_that_are_kept():
    async with serving() as (server, made):
        await made.request("GET", "/x", what="get")
        assert server.open == 1
        await made.close()
        await until(lambda: not server.open)


def low_water(chunks):
    """Bytes from which on the kernel says that there is something to read."""
    raw = chunks._response._response.connection.transport.get_extra_info("socket")
    return raw.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


async def test_while_bytes_gather_the_kernel_keeps_quiet_about_them(clock):
    said = asyncio.Event()

    async def in_two_pieces(reader, writer):
        writer.write(head(200) + chunk(b"first"))
        await said.wait()
        writer.write(chunk(b"second"))
        await reader.read()

    async with watching(in_two_pieces, clock=clock) as chunks:
        assert await chunks.read() == b"first"
        before = clock.waiting
        gathering = asyncio.create_task(chunks.gather(0.5))
        await until(lambda: clock.waiting > before)
        assert low_water(chunks) > 1
        said.set()
        clock.advance(0.5)
        await gathering
        assert low_water(chunks) == 1
        assert await chunks.read() == b"second"


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_of_a_connection_that_is_gone_nothing_gathers(clock, when):
    async def open_ended(reader, writer):
        writer.write(head(200))
        await reader.read()

    async with watching(open_ended, clock=clock) as chunks:
        transport = chunks._response._response.connection.transport
        if when == "before":
            transport.abort()
            await asyncio.sleep(0)
        before = clock.waiting
        gathering = asyncio.create_task(chunks.gather(0.5))
        if when == "before":
            await gathering
        else:
            await until(lambda: clock.waiting > before)
            transport.abort()
            await asyncio.sleep(0)
            clock.advance(0.5)
            await gathering


class Counted:
    """Notes what a client reports of its requests."""

    def __init__(self):
        self.answers = []

    def answered(self, verb, resource, code):
        self.answers.append((verb, resource, code))


@pytest.mark.parametrize(
    "says, what, answers",
    [
        pytest.param([OK], "get pods team-a/train", [("get", "pods", "200")], id="an answer"),
        pytest.param(
            [answer(429), answer(429, b"Retry-After: 1"), OK],
            "list pods",
            [("list", "pods", "429"), ("list", "pods", "429"), ("list", "pods", "200")],
            id="each try by itself",
        ),
        pytest.param(
            [break_off, OK], "get nodes a", [("get", "nodes", "none"), ("get", "nodes", "200")], id="one that broke"
        ),
        pytest.param([answer(404)], "GET /apis/x/y", [("get", "raw", "404")], id="a path is not counted by its name"),
        pytest.param([OK], "ping", [("ping", "", "200")], id="a request for nothing"),
    ],
)
async def test_every_request_is_counted(says, what, answers):
    counted = Counted()
    async with serving(*says, observer=counted) as (_, made):
        with contextlib.suppress(errors.KubeError):
            await made.request("GET", "/x", what=what, repeatable=True)
    assert counted.answers == answers


async def test_a_watch_is_counted_when_it_is_opened():
    counted = Counted()
    async with serving(answer(410), OK, observer=counted) as (_, made):
        for _ in range(2):
            with contextlib.suppress(errors.Gone):
                async with made.stream("/x", what="watch pods team-a", params={}, silent_after=90):
                    pass
    assert counted.answers == [("watch", "pods", "410"), ("watch", "pods", "200")]
