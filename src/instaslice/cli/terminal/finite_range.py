"""Numbers on the command line."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A range of floats without `nan` and `inf`, which compare with nothing and would wait indefinitely."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number; give one like 30", param, ctx)
        return float(found)
