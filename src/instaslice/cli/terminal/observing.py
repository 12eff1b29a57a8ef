"""Options that `controller`, `webhook` and `agent` share: where metrics and health are served, and how is logged."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.observe import endpoints, logs
from instaslice.observe import registry as registries
from instaslice.observe.access import Access
from instaslice.observe.api_calls import ApiCalls
from instaslice.observe.certificates import CertificateSource, FileSource, SelfSigned, renew
from instaslice.observe.endpoints import Address, ProcessHealth
from instaslice.observe.metrics import Component

log = logging.getLogger(__name__)

_HOST_PORT: Final = re.compile(r"(\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]]*)):(?P<port>\d{1,5})", re.ASCII)
PORTS: Final = {Component.CONTROLLER: 9510, Component.WEBHOOK: 9511, Component.AGENT: 9512}


class ListenAddress(click.ParamType[Address | None]):
    """`127.0.0.1:9510`, `[::1]:9510`, or `:9510` for every address; nothing for none."""

    name = "host:port"

    def convert(self, value: str | Address, param: click.Parameter | None, ctx: click.Context | None) -> Address | None:
        if isinstance(value, Address):
            return value
        if not value:
            return None
        found = _HOST_PORT.fullmatch(value)
        if found is None or int(found["port"]) > 65535:
            self.fail(f"{value!r} is not HOST:PORT; write 127.0.0.1:9510, [::1]:9510 or :9510", param, ctx)
        return Address(found["ipv6"] or found["host"] or "", int(found["port"]))


class Observing:
    """The metrics and the health of this process. Fill in both, then have them `served`."""

    def __init__(
        self, component: Component, address: Address | None, *, certs: Path | None = None, auth: bool = False
    ) -> None:
        self.registry = registries.new(component)
        self.calls = ApiCalls(self.registry)
        self.health = ProcessHealth()
        self.needs_api_server = auth and address is not None
        self._address = address
        self._certs, self._auth = certs, auth

    @asynccontextmanager
    async def served(self, client: Client | None, clock: Clock) -> AsyncIterator[None]:
        """Serve while inside, where an address is given. The API server behind `client` says who may read metrics."""
        if self._address is None:
            yield
            return
        access = None
        if self._auth:
            assert client is not None, "without an API server nobody can be let in"
            access = Access(client, clock)
        app = endpoints.application(self.registry, self.health, access)
        source = await self._certificates(clock)
        async with endpoints.serving(app, self._address, source.context if source else None, clock=clock) as port:
            scheme, address = "https" if source else "http", self._address._replace(port=port)
            log.info("metrics and health are served at %s://%s", scheme, address)
            renewing = asyncio.create_task(renew(source, clock)) if source else None
            try:
                yield
            finally:
                if renewing:
                    renewing.cancel()

    async def _certificates(self, clock: Clock) -> CertificateSource | None:
        """None for plain HTTP. A token is never sent over that."""
        if self._certs is None:
            return SelfSigned(clock) if self._auth else None
        source = FileSource(self._certs)
        await source.refresh()
        return source


def observed(component: Component) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options to a command, which gets `observing` in their place. Logging is set up before it is called."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @click.option(
            "--observe",
            type=ListenAddress(),
            default=f"127.0.0.1:{PORTS[component]}",
            show_default=True,
            metavar="HOST:PORT",
            help="Where to serve /metrics, /healthz and /readyz; '' for nowhere.",
        )
        @click.option(
            "--metrics-auth",
            is_flag=True,
            help="Serve with TLS, and /metrics only to those whom the API server lets get it.",
        )
        @click.option(
            "--observe-cert-dir",
            "certs",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="Serve with TLS, with tls.crt and tls.key from here.  [default with --metrics-auth: self-signed]",
        )
        @click.option("--log-format", type=click.Choice(logs.FORMATS), default="text", show_default=True)
        @click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
        @wraps(command)
        def observed_command(
            *,
            observe: Address | None,
            metrics_auth: bool,
            certs: Path | None,
            log_format: str,
            log_level: str,
            **rest: Any,
        ) -> None:
            logs.configure(log_format, log_level)
            command(observing=Observing(component, observe, certs=certs, auth=metrics_auth), **rest)

        return observed_command

    return add
