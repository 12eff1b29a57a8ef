"""Serves /metrics for Prometheus, and /healthz and /readyz for the kubelet.

/healthz fails where only a restart helps, so never because the API server is away; /readyz where others should do the
work. Both say why.
"""

import errno
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from instaslice.errors import BadInput
from instaslice.kube.clock import Clock
from instaslice.observe.access import Access
from instaslice.observe.connections import listening

Why = Callable[[], str]
"""Why something is not as it should be; empty where it is."""


class Address(NamedTuple):
    """Where to listen; without a host on every address of the machine."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _well() -> str:
    return ""


@dataclass
class ProcessHealth:
    """What a process says of itself."""

    stuck: Why = _well
    """Why it has to be restarted. That it answers says that its event loop runs."""
    not_ready: Why = _well


HEALTH: Final = web.AppKey("health", ProcessHealth)
REGISTRY: Final = web.AppKey("registry", CollectorRegistry)
ACCESS: Final = web.AppKey("access", Access)


def application(registry: CollectorRegistry, health: ProcessHealth, access: Access | None = None) -> web.Application:
    """With `access` only those who are let in read the metrics; the health of a process is for everybody."""
    app = web.Application()
    app[REGISTRY], app[HEALTH] = registry, health
    if access is not None:
        app[ACCESS] = access
    app.add_routes(
        [web.get("/metrics", _metrics), web.get("/healthz", _healthz), web.get("/readyz", _readyz)],
    )
    return app


@asynccontextmanager
async def serving(
    app: web.Application, address: Address, tls: ssl.SSLContext | None = None, *, clock: Clock
) -> AsyncIterator[int]:
    """Serve while inside; yields the port, which the system chooses for 0. Raises BadInput where it cannot listen."""
    async with AsyncExitStack() as stack:
        try:
            port = await stack.enter_async_context(listening(app, address.host or None, address.port, tls, clock=clock))
        except OSError as error:
            raise BadInput(_why_not(address, error)) from None
        yield port


def _why_not(address: Address, error: OSError) -> str:
    remedy = "give another with --observe HOST:PORT, or --observe '' for none"
    if error.errno == errno.EADDRINUSE:
        return f"metrics and health cannot be served at {address}: another process listens there; {remedy}"
    return f"metrics and health cannot be served at {address}: {error.strerror or error}; {remedy}"


async def _metrics(request: web.Request) -> web.Response:
    access = request.app.get(ACCESS)
    refusal = await access.refusal(request.headers, request.remote or "") if access is not None else None
    if refusal is not None:
        headers = {"WWW-Authenticate": "Bearer"} if refusal.status is HTTPStatus.UNAUTHORIZED else {}
        return web.Response(status=refusal.status, text=refusal.why, headers=headers)
    try:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    except (TypeError, ValueError):  # a version that is no number
        encode, content_type = choose_encoder("")
    body = encode(request.app[REGISTRY])
    response = web.Response(body=body, headers={"Content-Type": content_type})
    response.enable_compression()
    return response


async def _healthz(request: web.Request) -> web.Response:
    return _answer(request.app[HEALTH].stuck())


async def _readyz(request: web.Request) -> web.Response:
    return _answer(request.app[HEALTH].not_ready())


def _answer(why: str) -> web.Response:
    return web.Response(status=503, text=why) if why else web.Response(text="ok")
