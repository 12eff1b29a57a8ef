"""Names of Kubernetes objects on the command line."""

import re
from typing import Any

import click

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


class ObjectName(click.types.StringParamType):
    """A name that the API server would accept. It answers a request for any other with an error that names no flag, and
    to an empty one it answers as if all objects had been meant."""

    name = "name"

    def __init__(self, *, namespace: bool = False) -> None:
        self._form = re.compile(_LABEL if namespace else rf"{_LABEL}(\.{_LABEL})*")
        self._longest = 63 if namespace else 253

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not self._form.fullmatch(text) or len(text) > self._longest:
            allowed = "lower-case letters, digits and '-'" + ("" if self._longest == 63 else " and '.'")
            self.fail(f"{text!r} is no name of an object; it has 1 to {self._longest} {allowed}", param, ctx)
        return text
