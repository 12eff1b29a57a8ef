"""GPU models on the command line."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from instaslice.geometry import Model, UnknownModel, models


class GpuModel(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """A known model by any of its names; an unknown one is answered with those that come near, and with all.

    `placeable`: only models whose placements are known without a driver.
    """

    name = "model"

    def __init__(self, *, placeable: bool = False) -> None:
        self._find = models.placeable if placeable else models.named

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(each) for each in models.names() if each.lower().startswith(incomplete.lower())]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Model:
        if isinstance(value, Model):
            return value
        try:
            return self._find(value)
        except UnknownModel as error:
            self.fail(str(error), param, ctx)
