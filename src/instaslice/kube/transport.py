"""HTTP to one API server: one request with its retries, or one endless answer.

Retries only what cannot do harm. Refused with Retry-After (429, or 5xx that says so): the server did nothing, any verb
goes again. Never connected: any verb goes again. Broken in the middle: only what the caller calls `repeatable`, as the
server may have done it. Everything else is the caller's to judge.
"""

import random
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import aiohttp

from instaslice.kube.clock import Clock
from instaslice.kube.config import Config
from instaslice.kube.errors import KubeError, ServerError, TooManyRequests, Unauthorized, Unreachable, from_answer
from instaslice.kube.limits import Backoff, Bucket

ATTEMPTS = 5
LONGEST_WAIT = 30.0
ANSWER_SECONDS = 60.0
CONNECT_SECONDS = 10.0
# aiohttp stops reading from the socket at twice this. Enough to take a list in few steps, small enough that decoding
# one step's worth holds the loop for a millisecond or two.
BUFFER = 2**18

# A list is not worth compressing on the way to a cache: inflating it costs more CPU than decoding it.
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "instaslice"}


class Transport:
    """Connections, credentials and our own rate limit. Close it when done."""

    def __init__(self, config: Config, *, clock: Clock, rng: random.Random, rate: float, burst: int) -> None:
        self._config = config
        self._clock = clock
        self._rng = rng
        self._bucket = Bucket(rate=rate, burst=burst, clock=clock)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=config.ssl or True, limit=0, socket_factory=_socket),
            headers=_HEADERS,
            read_bufsize=BUFFER,
        )

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        repeatable: bool = False,
    ) -> bytes:
        """The body of a 2xx answer. Raises the KubeError that fits anything else; `what` opens its message."""
        backoff = Backoff(clock=self._clock, rng=self._rng, first=0.2, most=5.0)
        refused = False
        for attempt in range(1, ATTEMPTS + 1):
            await self._clock.sleep(self._bucket.reserve())
            wait: float | None
            try:
                status, answer, retry_after = await self._once(method, path, params, body, content_type, refused)
                if status < 400:
                    return answer
                error = from_answer(what, status, answer, retry_after)
                wait = wait_for(error, first_refusal=not refused, backoff=backoff)
                refused = isinstance(error, Unauthorized)
            except (aiohttp.ClientError, TimeoutError, OSError) as broken:
                error = self._unreachable(what, broken)
                wait = backoff.next() if _never_sent(broken) or (repeatable and not _final(broken)) else None
            if wait is None or attempt == ATTEMPTS:
                raise error
            await self._clock.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def stream(
        self, path: str, *, what: str, params: Mapping[str, str], silent_after: float
    ) -> AsyncIterator["Chunks"]:
        """The chunks of an endless answer as they come. No retries; raises Unreachable when it breaks, or when no
        byte came for `silent_after` seconds: a connection whose other end is gone says nothing, for ever."""
        response = await self._opened(path, what, params, silent_after)
        try:
            yield Chunks(response, lambda broken: self._unreachable(what, broken), self._clock)
        finally:
            response.close()

    async def _opened(
        self, path: str, what: str, params: Mapping[str, str], silent_after: float
    ) -> aiohttp.ClientResponse:
        # aiohttp's own default would end any watch after 300 seconds.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silent_after)
        await self._clock.sleep(self._bucket.reserve())
        for refused in (False, True):
            try:
                response = await self._open("GET", path, params, timeout, await self._headers(refused))
                if response.status < 400:
                    return response
                error = from_answer(what, response.status, await response.read(), response.headers.get("Retry-After"))
            except (aiohttp.ClientError, TimeoutError, OSError) as broken:
                raise self._unreachable(what, broken) from broken
            if not isinstance(error, Unauthorized):
                break
        raise error

    async def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        refused: bool,
    ) -> tuple[int, bytes, str | None]:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        headers = await self._headers(refused)
        if body is not None:
            headers["Content-Type"] = content_type
        async with self._open(method, path, params, timeout, headers, body) as response:
            return response.status, await response.read(), response.headers.get("Retry-After")

    def _open(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
        headers: dict[str, str],
        body: bytes | None = None,
    ) -> "aiohttp.client._RequestContextManager":
        return self._session.request(
            method,
            self._config.server + path,
            params=params,
            data=body,
            headers=headers,
            timeout=timeout,
            proxy=self._config.proxy,
            server_hostname=self._config.server_name,
        )

    async def _headers(self, refused: bool) -> dict[str, str]:
        authorization = await self._config.authorization(refused=refused)
        return {"Authorization": authorization} if authorization else {}

    def _unreachable(self, what: str, broken: Exception) -> Unreachable:
        told = " ".join(str(broken).split()) or type(broken).__name__
        return Unreachable(
            f"{what}: no answer from {self._config.server} ({told}): is the API server up, and is the address in "
            f"{self._config.source} right?"
        )


def wait_for(error: KubeError, *, first_refusal: bool, backoff: Backoff) -> float | None:
    """Seconds until the same request may go again; None: not at all."""
    match error:
        case Unauthorized() if first_refusal:
            # The token may have been replaced since we read it.
            return 0.0
        case TooManyRequests() | ServerError() if error.retry_after is not None:
            wait = max(error.retry_after, backoff.next())
            return wait if error.retry_after <= LONGEST_WAIT else None
        case TooManyRequests():
            return backoff.next()
    return None


class Chunks:
    """The bytes of one endless answer, as they come."""

    def __init__(
        self, response: aiohttp.ClientResponse, unreachable: Callable[[Exception], Unreachable], clock: Clock
    ) -> None:
        self._response = response
        self._unreachable = unreachable
        self._clock = clock

    async def read(self) -> bytes:
        """What has come since the last read, at least a byte; b"" when the server ended the answer."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError) as broken:
            raise self._unreachable(broken) from broken

    async def gather(self, seconds: float) -> None:
        """Let bytes gather in the kernel for a moment, so that the next chunk is a large one: waking up for each
        object costs more than decoding it."""
        connection = self._response.connection
        if connection is None or connection.transport is None or connection.transport.is_closing():
            return
        transport = connection.transport
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, BUFFER)
        await self._clock.sleep(seconds)
        if not transport.is_closing():
            # Lowering the mark wakes the loop for what has come below it.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _final(broken: Exception) -> bool:
    """A certificate that does not fit will not fit a second later."""
    return isinstance(broken, aiohttp.ClientSSLError | aiohttp.InvalidURL)


def _never_sent(broken: Exception) -> bool:
    return isinstance(broken, aiohttp.ClientConnectorError) and not _final(broken)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Lets the kernel notice a machine that vanished: 30 s, then three probes 10 s apart."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
