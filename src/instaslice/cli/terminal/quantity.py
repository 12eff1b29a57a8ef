"""Amounts of a resource on the command line."""

from typing import Any

import click

from instaslice.kube.errors import BadQuantity
from instaslice.kube.quantities import nano


class Quantity(click.types.StringParamType):
    """A quantity as Kubernetes writes them, and no negative one."""

    name = "quantity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            amount = nano(text)
        except BadQuantity as error:
            self.fail(str(error), param, ctx)
        if amount < 0:
            self.fail(f"{text!r} is less than nothing; write an amount from 0 on", param, ctx)
        return text
