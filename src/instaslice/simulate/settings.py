"""All that determines a result, by the flags that set it: as data, and as the command that repeats the simulation."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

Value = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Values by flag without its dashes, defaults included; flags that have no effect on this result are left out.

    `skipped` are rows of a trace that ask for no GPU.
    """

    values: Mapping[str, Value]
    skipped: int = 0

    @property
    def command(self) -> str:
        words = ["instaslice", "simulate"]
        for flag, value in self.values.items():
            if value is True:
                words.append(f"--{flag}")
            elif isinstance(value, tuple):
                words += [word for each in value for word in (f"--{flag}", each)]
            else:
                words += [f"--{flag}", number(value) if isinstance(value, float) else str(value)]
        return shlex.join(words)


def number(value: float) -> str:
    """Exact, and without a fraction where there is none."""
    return str(int(value)) if value.is_integer() else repr(value)
