"""What a command prints for programs: JSON or YAML of the same."""

from typing import Any

import click
import msgspec
import yaml


def print_document(thing: Any, form: str) -> None:
    """`form` is json or yaml."""
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(thing)).decode())
    else:
        plain = msgspec.to_builtins(thing, str_keys=True, builtin_types=())
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120), nl=False)
