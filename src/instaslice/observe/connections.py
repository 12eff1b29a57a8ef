"""Connections to a server of ours, within limits: how many are served, in all and from one address, and how long each
may take to its first answer.

asyncio and aiohttp limit none of this, and a TLS connection costs 0.3 MB when it is idle, 1.4 MB when it is busy. So
connections are counted as soon as they are accepted, before their handshake.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast
from weakref import WeakValueDictionary

from aiohttp import web

log = logging.getLogger(__name__)

MOST: Final = 96
"""Served at once, further ones wait. Each may have 1.4 MB in its buffers: together they fit the memory limits of the
chart."""
MOST_OF_ONE: Final = 48
"""From one address. An API server keeps 25 for its next requests, and each of these takes milliseconds."""
MOST_OPEN: Final = 800
"""With those that wait, which cost little; more are closed at once."""
MOST_OPEN_OF_ONE: Final = 400
SECONDS: Final = 10.0
"""For handshake, first request and answer; an API server does not wait longer for a webhook either."""


@asynccontextmanager
async def listening(
    app: web.Application, host: str | None, port: int, tls: ssl.SSLContext | None
) -> AsyncIterator[int]:
    """Serve while inside; yields the port, which the system chooses for 0. Requests in flight are finished on leaving.

    `host` None listens on every address of the machine, of both families. Raises OSError where it cannot listen.
    """
    app.on_response_prepare.append(_answered)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    assert runner.server is not None
    limited = _Limited(runner.server, tls)
    try:
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(limited), host, port)
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
    finally:
        await runner.cleanup()
        await limited.close()


class _Limited:
    """The connections of one server."""

    def __init__(self, server: "web.Server", tls: ssl.SSLContext | None) -> None:
        self.server = server
        self.tls = tls
        self.open: dict[_Connection, str] = {}
        """Each with the address that it is from."""
        self.served = asyncio.Semaphore(MOST)
        self._served_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def served_of(self, address: str) -> asyncio.Semaphore:
        return self._served_of.setdefault(address, asyncio.Semaphore(MOST_OF_ONE))

    def full(self, address: str) -> bool:
        return len(self.open) >= MOST_OPEN or list(self.open.values()).count(address) >= MOST_OPEN_OF_ONE

    async def close(self) -> None:
        ending = [each.abort() for each in self.open]
        await asyncio.gather(*filter(None, ending), return_exceptions=True)


class _Connection(asyncio.Protocol):
    """Stands before aiohttp's protocol, from the moment the connection is accepted."""

    def __init__(self, limited: _Limited) -> None:
        self._limited = limited
        self._handler: asyncio.Protocol | None = None
        """Only once it is served: after the handshake."""
        self._early = b""
        self._lost = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        if self._limited.full(address):
            self._transport.abort()
            return
        self._limited.open[self] = address
        self._transport.pause_reading()
        self._deadline = asyncio.get_running_loop().call_later(SECONDS, self.abort)
        self._serving = asyncio.create_task(self._serve(address))

    async def _serve(self, address: str) -> None:
        try:
            # Whoever is far above its share waits for itself, and takes no part of the whole meanwhile.
            async with self._limited.served_of(address), self._limited.served:
                await self._begin()
                await self._lost.wait()
        except OSError as error:  # an SSLError is one, too
            log.debug("a TLS handshake failed: %s", error)
        finally:
            self._deadline.cancel()
            del self._limited.open[self]
            self.abort()

    async def _begin(self) -> None:
        if self._limited.tls is None:
            self._transport.resume_reading()
        else:
            secured = await asyncio.get_running_loop().start_tls(
                self._transport, self, self._limited.tls, server_side=True, ssl_handshake_timeout=SECONDS
            )
            if secured is None:
                raise ConnectionAbortedError("closed during its handshake")
            self._transport = secured
        self._handler = self._limited.server()
        self._handler.connection_made(self._transport)
        if self._early:
            self._handler.data_received(self._early)
            self._early = b""

    def abort(self) -> asyncio.Task[None] | None:
        """What ends with it."""
        self._transport.abort()
        return self._serving

    def answered(self) -> None:
        """From now on it may be idle: an API server keeps connections for its next request."""
        self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._handler is None:
            # The first bytes can arrive in the same turn in which the handshake ends.
            self._early += data
        else:
            self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received() if self._handler is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        if self._handler is not None:
            self._handler.connection_lost(exc)
        elif self._serving is not None:
            # It waits no longer for its turn or its handshake.
            self._serving.cancel()

    def pause_writing(self) -> None:
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        if self._handler is not None:
            self._handler.resume_writing()


async def _answered(request: web.Request, _: web.StreamResponse) -> None:
    connection = request.transport.get_protocol() if request.transport is not None else None
    if isinstance(connection, _Connection):
        connection.answered()
