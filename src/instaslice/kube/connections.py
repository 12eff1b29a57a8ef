"""HTTP/1.1 to one API server: aiohttp's client, with what it leaves to its caller.

That is: a TLS context that changes, a limit on silence, back pressure and batching for watches, and two errors in place
of twenty. A client of our own saved 2 % of the CPU of a burst (designs/0002).
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from ssl import SSLContext
from typing import Final
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from instaslice.kube.clock import Clock, timeout

CONNECT_SECONDS: Final = 10.0
KEPT_SECONDS: Final = 15.0
"""An idle connection is closed after so long: servers and what lies between close them without notice."""
BUFFER: Final = 2**18
"""Reading from the socket pauses at twice this while nobody reads. Enough to take a list in few steps, small enough
that decoding one step's worth blocks the loop for a millisecond or two."""
_SAFE: Final = "/:@!$&'()*+,;=~"
_NOT_ADDED: Final = ("Accept-Encoding", "Content-Type", "User-Agent")


class NotConnected(ConnectionError):
    """There was no connection, so nothing was sent."""


class Silent(TimeoutError):
    """Nothing came in time. Not what the system calls a timeout, which is a connection that broke."""


class Broken(ConnectionError):
    """The connection ended before the response did, or what came is not HTTP."""


class Response:
    """The response to one request, once its status and headers are there. Close it when done."""

    def __init__(self, response: aiohttp.ClientResponse, silent_after: float | None, clock: Clock) -> None:
        self.status = response.status
        self._response = response
        self._silent_after = silent_after
        self._clock = clock

    @property
    def retry_after(self) -> str | None:
        return self._response.headers.get("Retry-After")

    async def body(self) -> bytes:
        with _translated():
            return await self._response.read()

    async def read(self) -> bytes:
        """What has come since the last read, at least a byte; b"" at the end. Silent after `silent_after`."""
        content = self._response.content
        # A timer per read would cost as much as the read, so there is none where something has come already.
        with _translated():
            if chunk := content.read_nowait():
                return chunk
        async with _bounded(self._clock, self._silent_after):
            with _translated():
                return await content.readany()

    async def start(self, most: int) -> bytes:
        """The first bytes: the whole body, or no fewer than `most` and not many more."""
        taken = b""
        while len(taken) < most and (chunk := await self.read()):
            taken += chunk
        return taken

    async def gather(self, seconds: float) -> None:
        """Let bytes gather in the kernel for a moment, so that the next read is a large one: waking up for each
        object costs more than decoding it."""
        connection = self._response.connection
        transport = connection.transport if connection is not None else None
        if transport is None or transport.is_closing():
            return
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, BUFFER)
        await self._clock.sleep(seconds)
        if not transport.is_closing():
            # Lowering the mark wakes the loop for what has come below it.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    def close(self) -> None:
        """End the connection, unless the response was read to its end: then it is kept for the next request."""
        self._response.close()


class Connections:
    """All connections to one server, direct or through an HTTP proxy. Make it on the loop, close it when done.

    `context` is asked before each request to a server that speaks TLS; where it has changed, new connections are made.
    Raises ValueError for an invalid address.
    """

    def __init__(
        self,
        server: str,
        *,
        context: Callable[[], SSLContext],
        clock: Clock,
        server_name: str | None = None,
        proxy: str | None = None,
    ) -> None:
        address = _address(server)
        self._proxy = _address(proxy).hostname if proxy else None
        # Without a login: aiohttp would send it, and refuses to send it beside a token.
        self._base = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{quote(address.path, safe=_SAFE)}"
        self._context = context if address.scheme == "https" else lambda: True
        self._server_name = server_name
        self._clock = clock
        self._session = aiohttp.ClientSession(
            # As many connections as there are requests and watches at once: our own rate limit is the bound.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_SECONDS, socket_factory=_socket),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_NOT_ADDED,
            read_bufsize=BUFFER,
            proxy=proxy,
        )

    async def close(self) -> None:
        await self._session.close()
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
    ) -> Response:
        """Send a request and wait for the head of its response. With `silent_after`, Silent where nothing comes for so
        many seconds.

        Raises NotConnected, ssl.SSLCertVerificationError or Broken. aiohttp repeats a GET, PUT or DELETE once where a
        kept connection turns out to be closed.
        """
        query = f"?{urlencode(params)}" if params else ""
        url = URL(f"{self._base}{quote(path, safe=_SAFE)}{query}", encoded=True)
        async with _bounded(self._clock, silent_after):
            with _translated(self._proxy):
                response = await self._session.request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    ssl=self._context(),
                    server_hostname=self._server_name,
                    allow_redirects=False,
                )
        return Response(response, silent_after, self._clock)


@contextlib.asynccontextmanager
async def _bounded(clock: Clock, silent_after: float | None) -> AsyncIterator[None]:
    if silent_after is None:
        yield
        return
    try:
        async with timeout(clock, silent_after):
            yield
    except TimeoutError as error:
        raise Silent(f"nothing came for {silent_after:.0f} s") from error


@contextlib.contextmanager
def _translated(proxy: str | None = None) -> Iterator[None]:
    """Errors of aiohttp as ours, without the objects of Python that its messages show. A certificate that does not fit
    is an ssl.SSLCertVerificationError."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise error.certificate_error from None
    except aiohttp.ClientHttpProxyError as error:
        target = error.request_info.url
        raise NotConnected(
            f"the proxy {proxy} answered {error.status} when asked for {target.host}:{target.port}"
        ) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise NotConnected(f"no connection within {CONNECT_SECONDS:.0f} s") from error
    except aiohttp.ClientConnectorError as error:
        # aiohttp says that it could not connect; the system says why, and `Connect call failed` is asyncio's.
        code = error.os_error.errno if isinstance(error.os_error, ConnectionError) else None
        why = os.strerror(code) if code else error.os_error.strerror or str(error.os_error)
        raise NotConnected(f"{error.host}:{error.port}: {why}") from error
    except aiohttp.ClientError as error:
        raise Broken(str(error) or type(error).__name__) from error


def _address(text: str) -> SplitResult:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError(f"{text!r} is not an http:// or https:// address")
    return parts


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """One whose kernel notices a machine that vanished: after 30 s of silence it asks, three times 10 s apart."""
    opened = socket.socket(*address[:3])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened
