"""HTTP/1.1 to one server: connections that are kept, one exchange at a time on each. Parsed by httptools.

As much of a client as an API server needs, which is why it costs a process less than half of what aiohttp's does
(designs/0002 has the measurement). No redirects, cookies, compression or pipelining.
"""

import asyncio
import base64
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, cast
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

import httptools

from instaslice.kube.clock import Clock, Timer, timeout

CONNECT_SECONDS: Final = 10.0
KEPT_SECONDS: Final = 15.0
"""How long a connection may have been idle to be used again: servers and what lies between end them without a word."""
BUFFER: Final = 2**18
"""Reading from the socket stops at twice this while nobody takes what has come. Enough to take a list in few steps,
small enough that decoding one step's worth holds the loop for a millisecond or two."""
_NEXT_ADDRESS_SECONDS: Final = 0.25
_SAFE: Final = "/:@!$&'()*+,;=~"
_PORTS: Final = {"https": 443, "http": 80}


class NotConnected(ConnectionError):
    """There was no connection, so nothing was sent."""


class Broken(ConnectionError):
    """The connection ended before the answer did, or what came was no HTTP."""


class Answer:
    """What comes back for one request, as it comes."""

    def __init__(self, connection: "Connection", silent_after: float | None, clock: Clock) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.connection = connection
        self.complete = self._headed = False
        self.reusable = False
        """Whether the connection may carry another exchange."""
        self._streamed = silent_after is not None
        self._paused = False
        self._broken: Exception | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._clock = clock
        self._heard = clock.monotonic()
        self._listening: Timer | None = None
        if silent_after is not None:
            self._listen_for(silent_after, silent_after)

    async def head(self) -> None:
        """Until `status` and `headers` are there."""
        while not self._headed:
            await self._change()

    async def whole(self) -> bytes:
        assert not self._streamed, "reading stops where nobody takes what has come: use read or start"
        while not self.complete:
            await self._change()
        return b"".join(self._chunks)

    async def start(self, most: int) -> bytes:
        """The first bytes of a streamed answer: all that there are, or no fewer than `most` and not many more."""
        taken = b""
        while len(taken) < most and (chunk := await self.read()):
            taken += chunk
        return taken

    async def read(self) -> bytes:
        """What has come since the last read, at least a byte; b"" at the end."""
        while not self._chunks:
            if self.complete:
                return b""
            await self._change()
        chunks, self._chunks, self._size = self._chunks, [], 0
        # What comes while nobody reads waits in the kernel: silence counts from the last time we looked.
        self._heard = self._clock.monotonic()
        if self._paused:
            self._paused = False
            self.connection.transport.resume_reading()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _change(self) -> None:
        if self._broken is not None:
            raise self._broken
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _listen(self, seconds: float) -> None:
        """Whether anything came in these seconds. One timer that looks back now and then, as one for every read would
        cost as much as the read."""
        quiet = 0.0 if self._chunks else self._clock.monotonic() - self._heard
        if quiet >= seconds:
            self.end(TimeoutError(f"nothing came for {seconds:.0f} s"))
        else:
            self._listen_for(seconds - quiet, seconds)

    def _listen_for(self, seconds: float, silent_after: float) -> None:
        self._listening = self._clock.call_later(seconds, lambda: self._listen(silent_after))

    def leave(self) -> None:
        """Nothing more will be read."""
        if self._listening is not None:
            self._listening.cancel()

    # Called by the connection -----------------------------------------------------------------------------------------

    def begin(self, status: int) -> None:
        if status < 200:
            self.headers.clear()  # 100 and the like: the answer is yet to come
            return
        self.status, self._headed = status, True
        if self._streamed:
            self._wake()

    def take(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        if self._streamed:
            self._heard = self._clock.monotonic()
            self._size += len(chunk)
            if self._size >= 2 * BUFFER and not self._paused:
                self._paused = True
                self.connection.transport.pause_reading()
            self._wake()

    def finish(self, *, reusable: bool) -> None:
        if self._headed:
            self.complete, self.reusable = True, reusable
            self._wake()

    def end(self, error: Exception | None) -> None:
        """The connection is gone."""
        # An answer that does not say where it ends ends with the connection.
        endless = not {b"content-length", b"transfer-encoding"} & self.headers.keys()
        if self._headed and error is None and endless:
            self.complete = True
        elif not self.complete and self._broken is None:
            self._broken = error or Broken("the server ended the connection before its answer")
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(asyncio.Protocol):
    """One connection, with the answer that is awaited on it. The methods that begin with `on_` are for the parser."""

    transport: asyncio.Transport
    idle_since: float
    """Of one that is kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None

    @property
    def usable(self) -> bool:
        return not self.transport.is_closing()

    def send(self, request: bytes, silent_after: float | None) -> Answer:
        self._answer = Answer(self, silent_after, self._clock)
        self.transport.write(request)
        return self._answer

    def forget(self) -> None:
        """The exchange is over."""
        if self._answer is not None:
            self._answer.leave()
            self._answer = None

    async def tunnel(self, context: ssl.SSLContext, name: str) -> None:
        """Speak TLS from here on, to whom the proxy at the other end has connected us."""
        self.forget()
        self._parser = httptools.HttpResponseParser(self)
        inner = await asyncio.get_running_loop().start_tls(self.transport, self, context, server_hostname=name)
        self.transport = cast("asyncio.Transport", inner)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.transport.abort()
            if self._answer is not None:
                self._answer.end(Broken(f"the answer is not HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None:
            self._answer.end(Broken(str(error) or type(error).__name__) if error else None)

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.complete:
            raise Broken("more came than was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._answered.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._answered.begin(self._parser.get_status_code())

    def on_body(self, chunk: bytes) -> None:
        self._answered.take(chunk)

    def on_message_complete(self) -> None:
        self._answered.finish(reusable=self._parser.should_keep_alive())

    @property
    def _answered(self) -> Answer:
        if self._answer is None:
            raise Broken("more came than was asked for")
        return self._answer


class Connections:
    """All connections to one server, straight or through an HTTP proxy. Close it when done.

    `context` is asked before each new connection to a server that speaks TLS. Raises ValueError for an address that is
    none.
    """

    def __init__(
        self,
        server: str,
        *,
        context: Callable[[], ssl.SSLContext],
        clock: Clock,
        server_name: str | None = None,
        proxy: str | None = None,
    ) -> None:
        self._server = _address(server)
        self._proxy = _address(proxy) if proxy else None
        self._secure = self._server.scheme == "https"
        self._context = context
        self._clock = clock
        self._server_name = server_name
        self._host = self._server.netloc.rpartition("@")[2]
        self._idle: deque[Connection] = deque()
        """The one that is idle longest comes first."""
        self._closing: Timer | None = None
        # A proxy is told the whole address of a plain server, and asked for a tunnel to one that speaks TLS.
        told = self._proxy is not None and not self._secure
        self._prefix = quote(server if told else self._server.path, safe=_SAFE)
        self._login = _login(self._proxy) if self._proxy else {}
        self._every = self._login if told else {}

    async def close(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        while self._idle:
            self._idle.pop().transport.abort()
        await asyncio.sleep(0)  # the loop may end with us, and what was aborted is closed in its next turn

    async def send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        silent_after: float | None = None,
    ) -> Answer:
        """Send a request. Its answer is taken `whole`; or with `silent_after` as it comes, by `read`, with a
        TimeoutError where nothing comes for so many seconds. Call `done` afterwards.

        Raises NotConnected or ssl.SSLCertVerificationError; reading the answer raises Broken.
        """
        connection = await self._connection()
        return connection.send(self._request(method, path, headers, params, body), silent_after)

    def done(self, answer: Answer) -> None:
        """Nothing more will be read of this answer, whether there is more or not."""
        connection = answer.connection
        connection.forget()
        if answer.reusable and connection.usable:
            self._keep(connection)
        else:
            connection.transport.abort()

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], params: Mapping[str, str] | None, body: bytes | None
    ) -> bytes:
        query = f"?{urlencode(params)}" if params else ""
        lines = [f"{method} {self._prefix}{quote(path, safe=_SAFE)}{query} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in (*self._every.items(), *headers.items())]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join((*lines, "\r\n")).encode() + (body or b"")

    def _keep(self, connection: Connection) -> None:
        connection.idle_since = self._clock.monotonic()
        self._idle.append(connection)
        if self._closing is None:
            self._closing = self._clock.call_later(KEPT_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        """After a burst nothing may be sent for hours. One timer that looks again, as one for each exchange would cost
        more than it is worth."""
        now = self._clock.monotonic()
        while self._idle and now - self._idle[0].idle_since >= KEPT_SECONDS:
            self._idle.popleft().transport.abort()
        self._closing = None
        if self._idle:
            self._closing = self._clock.call_later(self._idle[0].idle_since + KEPT_SECONDS - now, self._close_idle)

    async def _connection(self) -> Connection:
        while self._idle:
            kept = self._idle.pop()
            if kept.usable and self._clock.monotonic() - kept.idle_since < KEPT_SECONDS:
                return kept
            kept.transport.abort()
        try:
            async with timeout(self._clock, CONNECT_SECONDS):
                if self._proxy is not None:
                    return await self._proxied(self._proxy)
                context = self._context() if self._secure else None
                return await _open(self._server, context, self._server_name, self._clock)
        except ssl.SSLCertVerificationError:
            raise
        except TimeoutError as error:
            raise NotConnected(f"no connection within {CONNECT_SECONDS:.0f} s") from error
        except OSError as error:
            raise NotConnected(str(error) or type(error).__name__) from error

    async def _proxied(self, proxy: SplitResult) -> Connection:
        context = ssl.create_default_context() if proxy.scheme == "https" else None
        connection = await _open(proxy, context, None, self._clock)
        if not self._secure:
            return connection
        target = self._host if self._server.port else f"{self._host}:{_PORTS['https']}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        lines += [f"{name}: {value}" for name, value in self._login.items()]
        try:
            answer = connection.send("\r\n".join((*lines, "\r\n")).encode(), CONNECT_SECONDS)
            await answer.head()
            if answer.status >= 300:
                raise NotConnected(f"the proxy {proxy.hostname} answered {answer.status} when asked for {target}")
            await connection.tunnel(self._context(), self._server_name or self._server.hostname or "")
        except BaseException:
            connection.transport.abort()
            raise
        return connection


def _login(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _address(text: str) -> SplitResult:
    parts = urlsplit(text)
    if parts.scheme not in _PORTS or not parts.hostname or parts.port == 0:
        raise ValueError(f"{text!r} is no http:// or https:// address")
    return parts


async def _open(to: SplitResult, context: ssl.SSLContext | None, name: str | None, clock: Clock) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(clock),
        to.hostname or "",
        to.port or _PORTS[to.scheme],
        ssl=context,
        server_hostname=name if context else None,
        happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
    )
    _notice_a_machine_that_vanished(connection.transport.get_extra_info("socket"))
    return connection


def _notice_a_machine_that_vanished(opened: socket.socket) -> None:
    """After 30 s of silence the kernel asks, three times 10 s apart."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
