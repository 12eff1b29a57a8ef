"""What `instaslice status --watch` shows at every change: the picture again, a line for each change, or a document.

Drawn when a watch has delivered something, never by polling.
"""

import asyncio
import sys
import time
from collections.abc import Callable

import click
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from instaslice.api.live_snapshot import LiveSnapshot
from instaslice.api.snapshot import ClusterSnapshot
from instaslice.cli.terminal.documents import print_document
from instaslice.cli.terminal.fleet_changes import changes
from instaslice.cli.terminal.fleet_picture import Detail, fitting_detail, fleet_picture
from instaslice.cli.terminal.plain_text import echo, plain
from instaslice.controller.fleet_status import FleetStatus

REDRAW_SECONDS = 10.0
"""Ages go on where nothing changes; nothing is read for that."""
SHARE_OF_DRAWING = 0.5
"""Of the time, at most: a fleet of thousands that changes all the time must not take a whole core."""

Observe = Callable[[ClusterSnapshot], FleetStatus]
Show = Callable[[FleetStatus, str], None]
"""Gets the fleet, and why it may be out of date; "" where it is not."""


async def follow(live: LiveSnapshot, observe: Observe, output: str, detail: Detail | None) -> None:
    """Show the fleet at every change, until cancelled. Without a `detail` it is as detailed as can be read."""
    async with live.running():
        if output in ("json", "yaml"):
            await _redraw(live, observe, Documents(output).show)
        elif not sys.stdout.isatty():
            await _redraw(live, observe, Lines().show)
        else:
            with Live(console=Console(), auto_refresh=False, vertical_overflow="crop") as screen:
                await _redraw(live, observe, Picture(screen, detail).show)


async def _redraw(live: LiveSnapshot, observe: Observe, show: Show) -> None:
    while True:
        live.changed.clear()
        began = time.monotonic()
        show(observe(live.read()), live.failure())
        await asyncio.sleep((time.monotonic() - began) * (1 / SHARE_OF_DRAWING - 1))
        try:
            async with asyncio.timeout(REDRAW_SECONDS):
                await live.changed.wait()
        except TimeoutError:
            continue


class Documents:
    """A document at every change: JSON on one line, or YAML."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._before: FleetStatus | None = None

    def show(self, status: FleetStatus, _failure: str) -> None:
        if self._before is not None and msgspec.structs.replace(status, now=self._before.now) == self._before:
            return
        self._before = status
        if self._form == "json":
            click.echo(msgspec.json.encode(status).decode())
        else:
            click.echo("---")
            print_document(status, self._form)


class Lines:
    """A line for each thing that changed."""

    def __init__(self) -> None:
        self._before: FleetStatus | None = None
        self._stale = False

    def show(self, status: FleetStatus, failure: str) -> None:
        at = status.now.astimezone().strftime("%H:%M:%S")
        for line in changes(self._before, status):
            echo(f"{at}  {line}")
        if failure and not self._stale:
            echo(f"{at}  not up to date: {failure}")
        elif self._stale and not failure:
            echo(f"{at}  up to date again")
        self._before, self._stale = status, bool(failure)
        sys.stdout.flush()


class Picture:
    """The picture again, as detailed as the terminal is high."""

    def __init__(self, screen: Live, detail: Detail | None) -> None:
        self._screen = screen
        self._detail = detail

    def show(self, status: FleetStatus, failure: str) -> None:
        console = self._screen.console
        stale = [Text(plain(f"not up to date: {failure}"), style="red")] if failure else []
        most = fitting_detail(status) if self._detail is None else self._detail
        for detail in sorted(Detail, reverse=True):
            picture = Group(*stale, fleet_picture(status, detail, console.width))
            if detail <= most and len(console.render_lines(picture)) < console.height:
                break
        self._screen.update(picture, refresh=True)
