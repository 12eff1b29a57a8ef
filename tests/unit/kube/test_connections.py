"""HTTP/1.1 as servers and proxies speak it, well and badly: a server that says exactly what a test has it say."""

import asyncio
import base64
import contextlib
import socket
import ssl
import time

import pytest
from fake_clock import FakeClock
from http_server import OK, Server, listening
from waiting import until

from instaslice.kube import connections
from instaslice.kube.config import trusting
from instaslice.kube.connections import BUFFER, Broken, Connections, NotConnected
from instaslice.local.pki import Authority

ASKED = {"Accept": "application/json"}


opened = []


@pytest.fixture(autouse=True)
async def closed():
    yield
    while opened:
        await opened.pop().close()


def to(address, *, clock=None, context=None, **more):
    """Connections to this address."""
    trusted = context or ssl.create_default_context()
    opened.append(Connections(address, context=lambda: trusted, clock=clock or FakeClock(), **more))
    return opened[-1]


@contextlib.asynccontextmanager
async def serving(*says, clock=None):
    """A server that says these, and connections to it."""
    server = Server(*says)
    async with listening(server) as port, to_port(port, clock=clock) as made:
        yield server, made


@contextlib.asynccontextmanager
async def to_port(port, **more):
    made = to(f"http://127.0.0.1:{port}", **more)
    try:
        yield made
    finally:
        await made.close()


async def ask(made, method="GET", path="/x", **more):
    """Status and content."""
    async with asyncio.timeout(10):
        answer = await made.send(method, path, headers=ASKED, **more)
        with contextlib.closing(answer):
            return answer.status, await answer.body()


async def test_a_connection_is_used_again_and_again():
    async with serving() as (server, made):
        for _ in range(5):
            assert await ask(made) == (200, b"ok")
        assert server.connections == 1


async def test_as_many_connections_as_requests_at_once_and_no_more():
    async with serving() as (server, made):
        for _ in range(2):
            assert await asyncio.gather(*(ask(made) for _ in range(3))) == [(200, b"ok")] * 3
        assert server.connections == 3


async def test_one_that_was_idle_for_long_is_closed_though_nothing_more_is_sent(monkeypatch):
    monkeypatch.setattr(connections, "KEPT_SECONDS", 0.1)
    async with serving() as (server, made):
        await asyncio.gather(*(ask(made) for _ in range(3)))
        await until(lambda: server.open == 0)


async def test_one_that_was_idle_for_long_is_not_trusted_and_closed_though_its_timer_is_late(monkeypatch):
    """The process was stopped for a while, say."""
    monkeypatch.setattr(connections, "KEPT_SECONDS", 0.1)
    async with serving() as (server, made):
        await ask(made)
        time.sleep(0.2)
        assert await ask(made) == (200, b"ok")
        assert server.connections == 2
        await until(lambda: server.open <= 1)


async def test_closing_ends_the_connections_that_are_idle():
    async with serving() as (server, made):
        await asyncio.gather(*(ask(made) for _ in range(2)))
        assert server.open == 2
        await made.close()
        await until(lambda: not server.open)


async def test_the_kernel_notices_a_machine_that_vanished():
    """After 30 s of silence it asks, three times 10 s apart."""
    async with serving(OK[:-1]) as (_, made):
        answer = await made.send("GET", "/x", headers=ASKED)
        opened = answer._response.connection.transport.get_extra_info("socket")
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        wanted = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
        for name, value in wanted.items():
            if hasattr(socket, name):
                assert opened.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
        answer.close()


async def test_an_answer_that_nobody_wanted_to_the_end_ends_its_connection():
    async def more_than_is_read(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
        await reader.read()

    async with serving(more_than_is_read) as (server, made):
        answer = await made.send("GET", "/x", headers=ASKED, silent_after=10)
        assert await answer.read() == b"x"
        answer.close()
        await until(lambda: not server.open)
        assert await ask(made) == (200, b"ok")


@pytest.mark.parametrize("most, taken", [(1, b"abc"), (3, b"abc"), (4, b"abcdef"), (100, b"abcdef")])
async def test_the_beginning_of_an_answer_is_no_shorter_than_asked_for(most, taken):
    async def in_two_pieces(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
        await more.wait()
        writer.write(b"def")
        await reader.read()

    more = asyncio.Event()
    async with serving(in_two_pieces) as (_, made):
        answer = await made.send("GET", "/x", headers=ASKED, silent_after=10)
        starting = asyncio.create_task(answer.start(most))
        for _ in range(50):
            await asyncio.sleep(0)
        more.set()
        assert await starting == taken
        answer.close()


async def test_a_header_is_found_however_it_is_written():
    async with serving(b"HTTP/1.1 200 OK\r\nRETRY-after: 7\r\nContent-Length: 0\r\n\r\n") as (_, made):
        answer = await made.send("GET", "/x", headers=ASKED)
        await answer.body()
        assert answer.retry_after == "7"
        answer.close()


async def test_one_that_the_server_ended_while_idle_is_not_used():
    async def answer_and_go(_reader, writer):
        writer.write(OK)

    async with serving(answer_and_go) as (server, made):
        await ask(made)
        await until(lambda: not server.open)
        await asyncio.sleep(0.05)
        assert await ask(made, "POST") == (200, b"ok")  # which is not repeated
        assert server.connections == 2


@pytest.mark.parametrize(
    "words, content",
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 103 Early Hints\r\nContent-Length: 7\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    ],
    ids=["chunked", "100 first", "103 first", "no content", "empty"],
)
async def test_an_answer_that_says_where_it_ends(words, content):
    async with serving(words) as (server, made):
        assert (await ask(made))[1] == content
        assert await ask(made) == (200, b"ok")
        assert server.connections == 1


@pytest.mark.parametrize(
    "words",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nok",
        OK + OK,
    ],
    ids=["says so", "ends with the connection", "HTTP/1.0", "more than was asked for"],
)
async def test_an_answer_after_which_the_connection_is_of_no_use(words):
    async with serving(words) as (server, made):
        assert await ask(made) == (200, b"ok")
        assert await ask(made) == (200, b"ok")
        assert server.connections == 2


async def test_an_answer_in_single_bytes():
    async def slowly(_reader, writer):
        for byte in OK:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with serving(slowly) as (_, made):
        assert await ask(made) == (200, b"ok")


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "half a chunk", "no HTTP"],
)
async def test_an_answer_that_breaks_off(words):
    async def break_off(_reader, writer):
        writer.write(words)

    async with serving(break_off) as (_, made):
        with pytest.raises(Broken):
            await ask(made, "PATCH")
        assert await ask(made) == (200, b"ok")


async def test_a_request_as_it_is_sent():
    server = Server()
    async with listening(server) as port, to_port(port) as made:
        await ask(made, "PATCH", "/a b/\r\nX: y/ü", params={"fieldSelector": "a=b,c!=d"}, body=b"[1]")
        head, body = server.heard[0].split(b"\r\n\r\n")
        assert body == b"[1]"
        assert head.split(b"\r\n") == [
            b"PATCH /a%20b/%0D%0AX:%20y/%C3%BC?fieldSelector=a%3Db%2Cc%21%3Dd HTTP/1.1",
            b"Host: 127.0.0.1:%d" % port,
            b"Accept: application/json",
            b"Content-Length: 3",
        ]


async def test_who_gives_up_waiting_leaves_no_answer_to_the_next():
    given_up = asyncio.Event()

    async def late(reader, writer):
        await given_up.wait()
        writer.write(OK.replace(b"ok", b"no"))
        await reader.read()

    async with serving(late) as (server, made):
        asking = asyncio.create_task(ask(made))
        await until(lambda: server.heard)
        asking.cancel()
        await asyncio.wait([asking])
        given_up.set()
        assert await ask(made) == (200, b"ok")
        assert server.connections == 2


async def test_a_stream_is_read_as_it_comes_and_no_faster_than_it_is_taken():
    total = 64 * BUFFER
    sent = 0

    async def much(_reader, writer):
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while sent < total:
            writer.write(b"x" * BUFFER)
            sent += BUFFER
            await writer.drain()

    async with serving(much) as (_, made):
        answer = await made.send("GET", "/x", headers=ASKED, silent_after=5.0)
        assert answer.status == 200
        await until(lambda: not answer._response.connection.transport.is_reading())
        for _ in range(1000):
            await asyncio.sleep(0)
        assert sent < total / 2  # the rest is in nobody's memory but the server's
        taken = 0
        while chunk := await answer.read():
            taken += len(chunk)
        assert taken == total
        answer.close()


class Stream:
    """Says one chunk each time it is told to."""

    def __init__(self):
        self._more = asyncio.Queue()

    async def __call__(self, _reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while await self._more.get():
            writer.write(b"1\r\nx\r\n")

    def say(self):
        self._more.put_nowait(True)

    def end(self):
        self._more.put_nowait(False)


@contextlib.asynccontextmanager
async def streaming(clock, silent_after):
    """A stream and the answer that it comes in."""
    stream = Stream()
    async with serving(stream, clock=clock) as (_, made):
        answer = await made.send("GET", "/x", headers=ASKED, silent_after=silent_after)
        yield stream, answer
        stream.end()
        answer.close()
        assert clock.waiting == 0


async def test_a_stream_that_falls_silent_is_given_up_but_not_one_that_is_slow(clock):
    async with streaming(clock, silent_after=10) as (stream, answer):
        for _ in range(5):
            clock.advance(9)
            stream.say()
            assert await answer.read() == b"x"
        reading = asyncio.create_task(answer.read())
        await until(lambda: clock.waiting)
        clock.advance(10)
        with pytest.raises(TimeoutError, match="nothing came for 10 s"):
            await reading


async def test_a_reader_that_takes_its_time_is_no_silent_server(clock):
    async with streaming(clock, silent_after=10) as (stream, answer):
        stream.say()
        await until(lambda: answer._response.content.total_bytes)
        clock.advance(61)
        assert await answer.read() == b"x"
        reading = asyncio.create_task(answer.read())
        await until(lambda: clock.waiting)
        clock.advance(9.5)  # the silence begins where reading begins
        stream.say()
        assert await reading == b"x"


async def test_a_server_that_is_not_there(nobody):
    with pytest.raises(NotConnected, match=r"^127\.0\.0\.1:\d+: Connection refused$"):
        await to(f"http://{nobody}").send("GET", "/", headers={})


@pytest.mark.parametrize(
    "address", ["https://", "localhost:6443", "ftp://x", "https://x:y", "https://[::1", "http://x:0"]
)
def test_an_address_that_is_none(address):
    with pytest.raises(ValueError):
        to(address)
    with pytest.raises(ValueError):
        to("http://good", proxy=address)


class Mute:
    """Hears that somebody wants to speak TLS, and says nothing."""

    def __init__(self):
        self.heard = asyncio.Event()

    async def talk(self, reader, writer):
        await reader.readexactly(1)
        self.heard.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.2)


async def test_a_server_that_never_completes_the_handshake(quick):
    server = Mute()
    async with listening(server) as port:
        with pytest.raises(NotConnected, match="no connection within 0 s"):
            await to(f"https://127.0.0.1:{port}").send("GET", "/", headers={})
        assert server.heard.is_set()


class Proxy:
    """Connects through to wherever it is asked; answers `status` first."""

    def __init__(self, status=b"200 Connection established"):
        self.status = status
        self.heard = []

    async def talk(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        self.heard.append(head)
        writer.write(b"HTTP/1.1 %s\r\n\r\n" % self.status)
        if self.status.startswith(b"200"):
            host, port = head.split()[1].split(b":")
            there, back = await asyncio.open_connection(host.decode(), int(port))
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(pump(reader, back), pump(there, writer))
        writer.close()


async def pump(reader, writer):
    while data := await reader.read(2**16):
        writer.write(data)
    writer.close()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def trust(authority):
    return trusting(cafile=authority.pair.certificate)


@pytest.fixture
def certificate(authority):
    """What a server of that authority serves with."""
    pair = authority.issue("server", "server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


async def test_through_a_proxy_to_a_server_that_speaks_tls(trust, certificate):
    proxy, server = Proxy(), Server()
    async with listening(server, certificate) as port, listening(proxy) as through:
        made = to(f"https://127.0.0.1:{port}/base", context=trust, proxy=f"http://ann:p%40ss@127.0.0.1:{through}")
        for _ in range(2):
            assert await ask(made) == (200, b"ok")
        await made.close()
    (asked,) = proxy.heard
    assert asked.startswith(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n" % port)
    assert b"Proxy-Authorization: Basic " + base64.b64encode(b"ann:p@ss") in asked
    assert [request.split()[1] for request in server.heard] == [b"/base/x"] * 2
    assert not any(b"Proxy" in request for request in server.heard)


async def test_a_proxy_that_refuses(trust):
    async with listening(Proxy(b"403 Forbidden")) as through:
        made = to("https://127.0.0.1:9", context=trust, proxy=f"http://127.0.0.1:{through}")
        with pytest.raises(NotConnected, match=r"answered 403 when asked for 127\.0\.0\.1:9"):
            await made.send("GET", "/", headers={})


@pytest.mark.parametrize("status", [b"300 Multiple Choices", b"403 Forbidden"])
async def test_a_proxy_that_refuses_is_left(trust, status):
    async def refuse_and_stay(reader, writer):
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)
        await reader.read()

    proxy = Server(refuse_and_stay)
    async with listening(proxy) as through:
        made = to("https://127.0.0.1:9", context=trust, proxy=f"http://127.0.0.1:{through}")
        with pytest.raises(NotConnected, match=f"answered {status[:3].decode()}"):
            await made.send("GET", "/", headers={})
        await until(lambda: not proxy.open)


async def test_a_proxy_that_says_nothing_is_given_up_and_left(quick, trust):
    async def say_nothing(reader, _writer):
        await reader.read()

    proxy = Server(say_nothing)
    async with listening(proxy) as through:
        made = to("https://example.org", context=trust, proxy=f"http://127.0.0.1:{through}")
        with pytest.raises(NotConnected):
            await made.send("GET", "/", headers={})
        assert proxy.heard[0].startswith(b"CONNECT example.org:443 HTTP/1.1\r\n")
        await until(lambda: not proxy.open)


async def test_through_a_proxy_too_the_name_is_the_one_that_the_certificate_must_carry(trust, certificate):
    async with listening(Server(), certificate) as port, listening(Proxy()) as through:
        for name, fits in (("kubernetes.default", True), ("elsewhere.example", False)):
            made = to(f"https://127.0.0.1:{port}", context=trust, proxy=f"http://127.0.0.1:{through}", server_name=name)
            if fits:
                assert await ask(made) == (200, b"ok")
            else:
                with pytest.raises(ssl.SSLCertVerificationError):
                    await ask(made)
            await made.close()


async def test_a_proxy_is_told_the_whole_address_of_a_plain_server():
    proxy = Server()
    async with listening(proxy) as through:
        made = to("http://example.org:8080/base", proxy=f"http://ann@127.0.0.1:{through}/")
        assert await ask(made) == (200, b"ok")
        await made.close()
    assert proxy.heard[0].startswith(b"GET http://example.org:8080/base/x HTTP/1.1\r\nHost: example.org:8080\r\n")
    assert b"Proxy-Authorization: Basic " + base64.b64encode(b"ann:") in proxy.heard[0]


async def test_a_proxy_that_wants_no_login_is_told_none():
    proxy = Server()
    async with listening(proxy) as through:
        made = to("http://example.org", proxy=f"http://127.0.0.1:{through}")
        assert await ask(made) == (200, b"ok")
        await made.close()
    assert b"Proxy-Authorization" not in proxy.heard[0]


async def test_who_logs_in_at_the_server_is_no_part_of_its_name():
    server = Server()
    async with listening(server) as port:
        there = to(f"http://ann:secret@127.0.0.1:{port}")
        assert await ask(there) == (200, b"ok")
        await there.close()
    assert b"\r\nHost: 127.0.0.1:%d\r\n" % port in server.heard[0]


@pytest.mark.parametrize(
    "name, said",
    [
        pytest.param(
            "127.0.0.1",
            "self-signed certificate in certificate chain|unable to get local issuer",
            id="certificate",
        ),
        pytest.param("no.such.invalid", r"^no\.such\.invalid:\d+: ", id="name"),
    ],
)
async def test_why_there_is_no_connection_is_said_without_objects_of_python(certificate, name, said):
    async with listening(Server(), certificate) as port:
        with pytest.raises(OSError, match=said) as failed:
            await ask(to(f"https://{name}:{port}", context=trusting()))
    assert "object at" not in str(failed.value)


async def test_a_certificate_of_another_authority_is_not_taken_for_a_passing_trouble(certificate):
    async with listening(Server(), certificate) as port:
        made = to(f"https://127.0.0.1:{port}")
        with pytest.raises(ssl.SSLCertVerificationError):
            await made.send("GET", "/", headers={})


@pytest.mark.parametrize("named", ["kubernetes.default", "elsewhere.example"])
async def test_the_name_that_the_certificate_must_carry(trust, certificate, named):
    async with listening(Server(), certificate) as port:
        made = to(f"https://127.0.0.1:{port}", context=trust, server_name=named)
        if named == "kubernetes.default":
            assert await ask(made) == (200, b"ok")
        else:
            with pytest.raises(ssl.SSLCertVerificationError, match="elsewhere"):
                await made.send("GET", "/", headers={})
        await made.close()


async def test_each_new_connection_asks_whom_to_trust(trust, certificate):
    """The authority may have been replaced since the last one."""
    contexts = [ssl.create_default_context()]
    async with listening(Server(), certificate) as port:
        made = Connections(f"https://127.0.0.1:{port}", context=lambda: contexts[-1], clock=FakeClock())
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(made)
        contexts.append(trust)
        for _ in range(2):
            assert await ask(made) == (200, b"ok")
        await made.close()
