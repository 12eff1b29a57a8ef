"""Options that `controller`, `webhook` and `agent` share: where metrics and health are served, and how is logged."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Final

import click

from instaslice.observe import endpoints, logs
from instaslice.observe import registry as registries
from instaslice.observe.api_calls import ApiCalls
from instaslice.observe.endpoints import Address, Health
from instaslice.observe.metrics import Component

log = logging.getLogger(__name__)

PORTS: Final = {Component.CONTROLLER: 9510, Component.WEBHOOK: 9511, Component.AGENT: 9512}


class HostPort(click.ParamType[Address | None]):
    """`127.0.0.1:9510`, `[::1]:9510`, or `:9510` for every address; nothing for none."""

    name = "host:port"

    def convert(self, value: str | Address, param: click.Parameter | None, ctx: click.Context | None) -> Address | None:
        if isinstance(value, Address):
            return value
        if not value:
            return None
        host, colon, port = value.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host) != host.startswith("["):
            self.fail(f"{value!r} is not HOST:PORT; write 127.0.0.1:9510, [::1]:9510 or :9510", param, ctx)
        return Address(host.strip("[]"), int(port))


class Observing:
    """The metrics and the health of this process. Fill in both, then have them `served`."""

    def __init__(self, component: Component, address: Address | None) -> None:
        self.registry = registries.new(component)
        self.calls = ApiCalls(self.registry)
        self.health = Health()
        self._address = address

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Serve while inside, where an address is given."""
        if self._address is None:
            yield
            return
        app = endpoints.application(self.registry, self.health)
        async with endpoints.serving(app, self._address) as port:
            log.info("metrics and health are served at http://%s", self._address._replace(port=port))
            yield


def observed(component: Component) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options to a command, which gets `observing` in their place. Logging is set up before it is called."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @click.option(
            "--observe",
            type=HostPort(),
            default=f"127.0.0.1:{PORTS[component]}",
            show_default=True,
            metavar="HOST:PORT",
            help="Where to serve /metrics, /healthz and /readyz; '' for nowhere.",
        )
        @click.option("--log-format", type=click.Choice(logs.FORMATS), default="text", show_default=True)
        @click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
        @wraps(command)
        def observed_command(*, observe: Address | None, log_format: str, log_level: str, **rest: Any) -> None:
            logs.configure(log_format, log_level)
            command(observing=Observing(component, observe), **rest)

        return observed_command

    return add
