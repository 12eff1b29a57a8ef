"""Connections to a server of ours, within limits: how many are served, in all and from one address, and how long each
may take for a request.

asyncio and aiohttp limit none of this, and a TLS connection costs 0.3 MB when it is idle, 1.4 MB when it is busy. So
connections are counted as soon as they are accepted, before their handshake. These are the rules:

- At most MOST connections are served, MOST_OF_ONE of one address; up to MOST_OPEN are open, the others wait unread.
- A connection has SECONDS from being accepted to its first answer, and for each further request from its first byte to
  its answer. Bytes that trickle in win no time.
- An API server keeps up to 25 idle connections for 90 s, uses the most recent one first, and opens another where it has
  none. Where somebody waits, or MOST_IDLE are idle already, an answer says `Connection: close`, and no request is lost.
- Where somebody waits for GRACE seconds all the same, the connection that has been idle longest ends. Go's client does
  not repeat a POST that crosses our close on the way: that is why this comes second, why it is not done in the middle
  of a burst, and why a connection on which bytes have arrived is not idle, nor one that is about to send its first.
- Where none is idle, the one that has kept us waiting longest ends, after PATIENCE seconds: a handshake that does not
  end or that nothing follows, half a request, an answer that is not read. A request that has arrived is never cut for
  somebody else.
- The next to be served is of the address with the fewest connections served, then of one that has kept others waiting
  for the shortest time. So one address waits for itself, and of N addresses that hold half a request on each
  connection, a newcomer waits at most PATIENCE * N / MOST seconds; its further requests do not wait behind all of them.
- Where MOST_OPEN are open, a newcomer displaces one that waits, of the address that has kept others waiting longest,
  then of the one that has most. It is closed itself where its own address comes first in that.

Of requests that are sent ahead of the answers before them (pipelining; no API server does so), one that has not arrived
as a whole by then counts as idle until its next byte.
"""

import asyncio
import logging
import select
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from instaslice.kube.clock import Clock, Timer
from instaslice.observe.fair_semaphore import FairSemaphore, Permit, PermitState

log = logging.getLogger(__name__)

MOST: Final = 96
"""Served at once, further ones wait. Each may have 1.4 MB in its buffers: together they fit the memory limits of the
chart."""
MOST_OF_ONE: Final = 48
"""From one address. An API server keeps 25 for its next requests, and each of these takes milliseconds."""
MOST_IDLE: Final = 64
"""Between two requests; the answer to any further one is the last of its connection. So there is room for newcomers
without ending an idle connection."""
MOST_OPEN: Final = 800
"""With those that wait, which cost little; more are closed at once."""
MOST_OPEN_OF_ONE: Final = 400
SECONDS: Final = 10.0
"""For handshake, request and answer; an API server does not wait longer for a webhook either."""
GRACE: Final = 0.5
"""An answer takes milliseconds; but a burst reuses idle connections while it opens others, and a busy API server may
have begun to use one for a while before its first byte is here."""
PATIENCE: Final = 2.0
"""For what a client has to do while others wait. A busy processor makes honest handshakes take a second, too."""


@asynccontextmanager
async def listening(
    app: web.Application, host: str | None, port: int, tls: ssl.SSLContext | None, *, clock: Clock
) -> AsyncIterator[int]:
    """Serve while inside; yields the port, which the system chooses for 0. Requests in flight are finished on leaving.

    `host` None listens on every address of the machine, of both families. Raises OSError where it cannot listen.
    """
    app.middlewares.insert(0, _tracked)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    assert runner.server is not None
    limited = _Limited(runner.server, tls, clock)
    try:
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(limited), host, port)
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
    finally:
        await runner.cleanup()
        await limited.close()


def abort(request: web.Request) -> bool:
    """End the connection of a request, whose handler fails with a ConnectionError where it reads on."""
    if request.transport is not None:
        request.transport.abort()
    return True


class _Limited:
    """The connections of one server."""

    def __init__(self, server: "web.Server", tls: ssl.SSLContext | None, clock: Clock) -> None:
        self.server = server
        self.tls = tls
        self.clock = clock
        self.open: dict[_Connection, str] = {}
        """Each with the address that it is from, oldest first."""
        self.served = FairSemaphore(MOST, MOST_OF_ONE, most_idle=MOST_IDLE, grace=GRACE, patience=PATIENCE, clock=clock)

    def admit(self, connection: "_Connection", address: str) -> bool:
        """Whether there is room for one more; another may have to go for it."""
        of_address = Counter(self.open.values())
        if of_address[address] >= MOST_OPEN_OF_ONE:
            return False
        if len(self.open) >= MOST_OPEN:

            def room_of(each: str, more: int = 0) -> tuple[int, int]:
                return self.served.kept_others(each), of_address[each] + more

            waiting = [each for each in reversed(self.open) if each.waits]
            displaced = max(waiting, key=lambda each: room_of(self.open[each]), default=None)
            if displaced is None or room_of(self.open[displaced]) <= room_of(address, 1):
                return False
            del self.open[displaced]
            displaced.abort()
        self.open[connection] = address
        return True

    async def close(self) -> None:
        ending = [each.serving for each in self.open if each.serving is not None]
        for each in self.open:
            each.abort()
        await asyncio.gather(*ending, return_exceptions=True)


class _Connection(asyncio.Protocol):
    """Stands before aiohttp's protocol, from the moment the connection is accepted."""

    def __init__(self, limited: _Limited) -> None:
        self._limited = limited
        self._handler: asyncio.Protocol | None = None
        """Only once it is served: after the handshake."""
        self._early = b""
        self._lost = asyncio.Event()
        self.serving: asyncio.Task[None] | None = None
        """Ends with the connection."""
        self._permit: Permit | None = None
        self._request: web.BaseRequest | None = None
        """The one that is being answered."""
        self._deadline: Timer | None = None
        self._cutoff: Timer | None = None

    @property
    def waits(self) -> bool:
        """For its turn."""
        return self._permit is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._tcp = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        if not self._limited.admit(self, address):
            self._transport.abort()
            return
        self._transport.pause_reading()
        self._set_deadline()
        self.serving = asyncio.create_task(self._serve(address))

    async def _serve(self, address: str) -> None:
        try:
            async with self._limited.served.permit(address, self._revoke) as self._permit:
                await self._begin()
                await self._lost.wait()
        except OSError as error:  # an SSLError is one, too
            log.debug("a TLS handshake failed: %s", error)
        finally:
            for timer in filter(None, (self._deadline, self._cutoff)):
                timer.cancel()
            self._limited.open.pop(self, None)
            self.abort()

    async def _begin(self) -> None:
        if self._limited.tls is None:
            self._transport.resume_reading()
        else:
            # Our deadline ends the handshake; asyncio's own is later.
            secured = await asyncio.get_running_loop().start_tls(
                self._transport, self, self._limited.tls, server_side=True
            )
            if secured is None:
                raise ConnectionAbortedError("closed during its handshake")
            self._transport = secured
        self._handler = self._limited.server()
        self._handler.connection_made(self._transport)
        if self._early:
            self._handler.data_received(self._early)
            self._early = b""

    def abort(self) -> None:
        self._transport.abort()

    # One request after the other ------------------------------------------------------------------------------------

    def request_begins(self, request: web.Request) -> None:
        """Its headers have arrived."""
        self._end_idling()
        self._request = request
        request.content.on_eof(lambda: self._request_arrived(request))

    def _request_arrived(self, request: web.Request) -> None:
        # What is left of a request that was answered already belongs to no work of ours.
        if self._request is request and self._permit is not None:
            self._permit.enter(PermitState.WORKING)

    async def send(self, request: web.Request, response: web.StreamResponse) -> None:
        """The answer, up to its last byte; then the connection is idle, if it does not end."""
        assert self._permit is not None
        self._request = None
        if self._permit.yielded():
            response.force_close()
            self._set_cutoff()
        self._permit.enter(PermitState.CLIENTS_TURN)
        await response.prepare(request)
        await response.write_eof()
        if response.keep_alive:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            self._permit.enter(PermitState.IDLE)

    def _end_idling(self) -> None:
        if self._permit is not None and self._permit.state is PermitState.IDLE:
            if self._deadline is None:
                self._set_deadline()
            self._permit.enter(PermitState.CLIENTS_TURN)

    def _revoke(self) -> bool:
        """Somebody waits, and this connection is idle, or its client has kept us waiting."""
        if self._permit is not None and self._permit.state is PermitState.IDLE:
            if not self._tcp.is_closing() and _has_arrived(self._tcp):
                if self._deadline is None:
                    self._set_deadline()
                return False
            if self._transport.get_write_buffer_size() or self._tcp.get_write_buffer_size():
                # A part of its answer is still on the way.
                self._transport.close()
                self._set_cutoff()
                return True
        self.abort()
        return True

    def _set_deadline(self) -> None:
        self._deadline = self._limited.clock.call_later(SECONDS, self.abort)

    def _set_cutoff(self) -> None:
        self._cutoff = self._limited.clock.call_later(PATIENCE, self.abort)

    # asyncio.Protocol -----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._end_idling()
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
        elif self.serving is not None:
            # It waits no longer for its turn or its handshake.
            self.serving.cancel()

    def pause_writing(self) -> None:
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        if self._handler is not None:
            self._handler.resume_writing()


def _has_arrived(tcp: asyncio.Transport) -> bool:
    """Whether there are bytes that this process has not read yet."""
    poll = select.poll()
    poll.register(tcp.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


@web.middleware
async def _tracked(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Around every handler, and around the sending of its answer, of which aiohttp notifies nobody."""
    connection = request.transport.get_protocol() if request.transport is not None else None
    if not isinstance(connection, _Connection):
        return await handler(request)
    connection.request_begins(request)
    response: web.StreamResponse
    try:
        response = await handler(request)
    except web.HTTPException as refusal:
        # Where the client is gone, aiohttp finds out again by itself.
        with suppress(ConnectionError):
            await connection.send(request, refusal)
        raise
    with suppress(ConnectionError):
        await connection.send(request, response)
    return response
