"""A group of commands that are imported when they are called: a module each, with a click command named `command`.

Listing them costs no more than click.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem


class CommandGroup(click.Group):
    """The commands of `package`. `listed` is command → the line that the group's help prints; the rest is in its
    module."""

    def __init__(self, *args: Any, package: str, listed: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._package, self.listed = package, listed

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.listed)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.listed:
            return None
        found = importlib.import_module(f"{self._package}.{cmd_name.replace('-', '_')}").command
        assert isinstance(found, click.Command)
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Click's own would import every command to ask for its help.
        found = [CompletionItem(name, help=text) for name, text in self.listed.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.listed.items()))
