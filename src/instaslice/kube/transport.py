"""HTTP to one API server: one request with its retries, or one endless response.

Retries only where that is safe. Refused with Retry-After (429, or 5xx with that header): the server did nothing, any
verb is retried. Never connected: any verb is retried. Broken in the middle: only what the caller calls `repeatable`,
as the server may have done it. Everything else is for the caller to decide.
"""

import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from instaslice.kube.clock import Clock, timeout
from instaslice.kube.config import Config
from instaslice.kube.connections import Connections, NotConnected, Response, Silent
from instaslice.kube.errors import (
    KubeconfigError,
    KubeError,
    Quiet,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_answer,
)
from instaslice.kube.limits import Backoff, TokenBucket
from instaslice.kube.observer import NO_ANSWER, RAW, UNOBSERVED, Observer

MAX_WAIT = 30.0
MAX_ERROR_BYTES = 2**16
"""Bytes read of the response that refuses a watch. A Status is smaller, but a proxy may have responded."""

# A list is not worth compressing on the way to a cache: inflating it costs more CPU than decoding it.
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "instaslice"}


@dataclass(frozen=True, slots=True)
class Persistence:
    """How long to wait for an answer, and how often to try where a request may be repeated."""

    answer_seconds: float = 60.0
    attempts: int = 5


INTERACTIVE = Persistence(answer_seconds=10.0, attempts=2)
"""For a person at a terminal."""


class Transport:
    """Connections, credentials and our own rate limit. Close it when done. Raises KubeconfigError."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        rng: random.Random,
        rate: float,
        burst: int,
        persistence: Persistence = Persistence(),  # noqa: B008 - immutable
        observer: Observer = UNOBSERVED,
    ) -> None:
        self._config = config
        self._clock = clock
        self._rng = rng
        self._persistence = persistence
        self.observer = observer
        self._bucket = TokenBucket(rate=rate, burst=burst, clock=clock)
        try:
            self._connections = Connections(
                config.server, context=config.tls, clock=clock, server_name=config.server_name, proxy=config.proxy
            )
        except ValueError as error:
            raise KubeconfigError(f"{config.source}: {error}: correct its server or proxy-url") from None

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
        """The body of a 2xx answer. Raises the KubeError that fits anything else.

        `what` is the verb, the resource and the object, `get pods team-a/train`: it opens messages, and its first two
        words are what is counted.
        """
        backoff = Backoff(clock=self._clock, rng=self._rng, first=0.2, most=5.0)
        refused = False
        for attempt in range(1, self._persistence.attempts + 1):
            await self._clock.sleep(self._bucket.reserve())
            wait: float | None
            try:
                status, answer, retry_after = await self._once(method, path, params, body, content_type, refused)
                self._answered(what, str(status))
                if status < 300:
                    return answer
                error = from_answer(what, status, answer, retry_after)
                wait = wait_for(error, first_refusal=not refused, backoff=backoff)
                refused = isinstance(error, Unauthorized)
            except (TimeoutError, OSError) as broken:
                self._answered(what, NO_ANSWER)
                error = self._unreachable(what, broken)
                again = isinstance(broken, NotConnected) or (repeatable and not _final(broken))
                wait = backoff.next() if again else None
            if wait is None or attempt == self._persistence.attempts:
                raise error
            await self._clock.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, what: str, params: Mapping[str, str], silent_after: float
    ) -> AsyncIterator["Chunks"]:
        """The chunks of an endless answer as they come. No retries; raises Unreachable when it breaks, and Quiet when
        no byte came for `silent_after` seconds: a connection whose other end is gone stays silent indefinitely."""
        with contextlib.closing(await self._opened(path, what, params, silent_after)) as response:
            yield Chunks(response, lambda broken: self._broken(what, broken))

    async def _opened(self, path: str, what: str, params: Mapping[str, str], silent_after: float) -> Response:
        await self._clock.sleep(self._bucket.reserve())
        for refused in (False, True):
            headers = await self._headers(refused)
            try:
                response = await self._connections.send(
                    "GET", path, headers=headers, params=params, silent_after=silent_after
                )
            except (TimeoutError, OSError) as broken:
                self._answered(what, NO_ANSWER)
                raise self._unreachable(what, broken) from broken
            self._answered(what, str(response.status))
            if response.status < 300:
                return response
            # The status decides; the body is for people, and may never come.
            body = b"the server did not say why"
            with contextlib.closing(response), contextlib.suppress(TimeoutError, OSError):
                async with timeout(self._clock, self._persistence.answer_seconds):
                    body = await response.start(MAX_ERROR_BYTES)
            error = from_answer(what, response.status, body, response.retry_after)
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
        headers = await self._headers(refused)
        if body is not None:
            headers["Content-Type"] = content_type
        async with timeout(self._clock, self._persistence.answer_seconds):
            response = await self._connections.send(method, path, headers=headers, params=params, body=body)
            with contextlib.closing(response):
                return response.status, await response.body(), response.retry_after

    async def _headers(self, refused: bool) -> dict[str, str]:
        authorization = await self._config.authorization(refused=refused)
        return {**_HEADERS, "Authorization": authorization} if authorization else dict(_HEADERS)

    def _answered(self, what: str, code: str) -> None:
        verb, resource, *_ = *what.split(" ", 2), ""
        # A request for a path has a method in place of the verb, and paths are without number.
        self.observer.answered(verb.lower(), RAW if resource.startswith("/") else resource, code)

    def _broken(self, what: str, broken: Exception) -> Unreachable:
        return Quiet(f"{what}: {broken}") if isinstance(broken, Silent) else self._unreachable(what, broken)

    def _unreachable(self, what: str, broken: Exception) -> Unreachable:
        reason = " ".join(str(broken).split()) or ("not in time" if isinstance(broken, TimeoutError) else repr(broken))
        return Unreachable(
            f"{what}: no answer from {self._config.server} ({reason}): is the API server up, and is the address in "
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
            return wait if error.retry_after <= MAX_WAIT else None
        case TooManyRequests():
            return backoff.next()
    return None


class Chunks:
    """The bytes of one endless response, as they come."""

    def __init__(self, response: Response, unreachable: Callable[[Exception], Unreachable]) -> None:
        self._response = response
        self._unreachable = unreachable
        self.gather = response.gather

    async def read(self) -> bytes:
        """What has come since the last read, at least a byte; b"" when the server ended the response."""
        try:
            return await self._response.read()
        except (TimeoutError, OSError) as broken:
            raise self._unreachable(broken) from broken


def _final(broken: Exception) -> bool:
    """A certificate that does not fit will not fit a second later."""
    return isinstance(broken, ssl.SSLCertVerificationError)
