"""HTTP to one API server: one request with its retries, or one endless answer.

Retries only what cannot do harm. Refused with Retry-After (429, or 5xx that says so): the server did nothing, any verb
goes again. Never connected: any verb goes again. Broken in the middle: only what the caller calls `repeatable`, as the
server may have done it. Everything else is the caller's to judge.
"""

import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from instaslice.kube.clock import Clock, timeout
from instaslice.kube.config import Config
from instaslice.kube.connections import BUFFER, Answer, Connections, NotConnected
from instaslice.kube.errors import (
    KubeconfigError,
    KubeError,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_answer,
)
from instaslice.kube.limits import Backoff, Bucket

ATTEMPTS = 5
LONGEST_WAIT = 30.0
ANSWER_SECONDS = 60.0
MOST_ERROR = 2**16
"""Bytes of the answer to a watch that says why there is none. A Status is smaller, but a proxy may have answered."""

# A list is not worth compressing on the way to a cache: inflating it costs more CPU than decoding it.
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "instaslice"}


class Transport:
    """Connections, credentials and our own rate limit. Close it when done. Raises KubeconfigError."""

    def __init__(self, config: Config, *, clock: Clock, rng: random.Random, rate: float, burst: int) -> None:
        self._config = config
        self._clock = clock
        self._rng = rng
        self._bucket = Bucket(rate=rate, burst=burst, clock=clock)
        try:
            self._connections = Connections(
                config.server, context=config.tls, clock=clock, server_name=config.server_name, proxy=config.proxy
            )
        except ValueError as error:
            raise KubeconfigError(f"{config.source}: {error}: mend its server or proxy-url") from None

    async def close(self) -> None:
        await self._connections.close()

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
                if status < 300:
                    return answer
                error = from_answer(what, status, answer, retry_after)
                wait = wait_for(error, first_refusal=not refused, backoff=backoff)
                refused = isinstance(error, Unauthorized)
            except (TimeoutError, OSError) as broken:
                error = self._unreachable(what, broken)
                again = isinstance(broken, NotConnected) or (repeatable and not _final(broken))
                wait = backoff.next() if again else None
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
        answer = await self._opened(path, what, params, silent_after)
        try:
            yield Chunks(answer, lambda broken: self._unreachable(what, broken), self._clock)
        finally:
            self._connections.done(answer)

    async def _opened(self, path: str, what: str, params: Mapping[str, str], silent_after: float) -> Answer:
        await self._clock.sleep(self._bucket.reserve())
        for refused in (False, True):
            answer = await self._asked(path, what, params, silent_after, refused)
            if answer.status < 300:
                return answer
            # The status says what to do; the rest is for people, and may never come.
            told = b"the server did not say why"
            try:
                async with timeout(self._clock, ANSWER_SECONDS):
                    told = await answer.start(MOST_ERROR)
            except (TimeoutError, OSError):
                pass
            finally:
                self._connections.done(answer)
            error = from_answer(what, answer.status, told, _retry_after(answer))
            if not isinstance(error, Unauthorized):
                break
        raise error

    async def _asked(
        self, path: str, what: str, params: Mapping[str, str], silent_after: float, refused: bool
    ) -> Answer:
        headers = await self._headers(refused)
        try:
            answer = await self._connections.send(
                "GET", path, headers=headers, params=params, silent_after=silent_after
            )
            try:
                await answer.head()
            except BaseException:
                self._connections.done(answer)
                raise
        except (TimeoutError, OSError) as broken:
            raise self._unreachable(what, broken) from broken
        return answer

    async def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        refused: bool,
    ) -> tuple[int, bytes, str | None]:
        headers = await self._headers(refused)
        if body is not None:
            headers["Content-Type"] = content_type
        answer = await self._connections.send(method, path, headers=headers, params=params, body=body)
        try:
            async with timeout(self._clock, ANSWER_SECONDS):
                content = await answer.whole()
            return answer.status, content, _retry_after(answer)
        finally:
            self._connections.done(answer)

    async def _headers(self, refused: bool) -> dict[str, str]:
        authorization = await self._config.authorization(refused=refused)
        return {**_HEADERS, "Authorization": authorization} if authorization else dict(_HEADERS)

    def _unreachable(self, what: str, broken: Exception) -> Unreachable:
        told = " ".join(str(broken).split()) or ("not in time" if isinstance(broken, TimeoutError) else repr(broken))
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

    def __init__(self, answer: Answer, unreachable: Callable[[Exception], Unreachable], clock: Clock) -> None:
        self._answer = answer
        self._unreachable = unreachable
        self._clock = clock

    async def read(self) -> bytes:
        """What has come since the last read, at least a byte; b"" when the server ended the answer."""
        try:
            return await self._answer.read()
        except (TimeoutError, OSError) as broken:
            raise self._unreachable(broken) from broken

    async def gather(self, seconds: float) -> None:
        """Let bytes gather in the kernel for a moment, so that the next chunk is a large one: waking up for each
        object costs more than decoding it."""
        transport = self._answer.connection.transport
        if transport.is_closing():
            return
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, BUFFER)
        await self._clock.sleep(seconds)
        if not transport.is_closing():
            # Lowering the mark wakes the loop for what has come below it.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _final(broken: Exception) -> bool:
    """A certificate that does not fit will not fit a second later."""
    return isinstance(broken, ssl.SSLCertVerificationError)


def _retry_after(answer: Answer) -> str | None:
    found = answer.headers.get(b"retry-after")
    return found.decode("latin-1") if found is not None else None
