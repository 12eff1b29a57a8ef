"""Every policy by name, for a flag or a comparison."""

from collections.abc import Callable, Mapping
from random import Random

from instaslice.errors import BadInput
from instaslice.placement.adaptive import Adaptive
from instaslice.placement.ordered_policies import DraFirstFit, FirstFit, MostFreeNode
from instaslice.placement.policy import Policy
from instaslice.placement.ranked_policies import BestFit, Fgd, Foresight, Spread

Asked = Mapping[str, float]
"""How much of each profile is expected, in any unit; empty where nothing is known."""

_MAKERS: Mapping[str, Callable[[Asked, Random], Policy]] = {
    "first-fit": lambda _, __: FirstFit(),
    "das": lambda _, __: MostFreeNode(),
    "dra": lambda _, random: DraFirstFit(random),
    "spread": lambda _, __: Spread(),
    "best-fit": lambda _, __: BestFit(),
    "fgd": lambda asked, _: Fgd(asked),
    "dp": lambda asked, _: Foresight(asked),
    "adaptive": Adaptive,
}
DEFAULT = "adaptive"


def names() -> tuple[str, ...]:
    """All policies; the default is `DEFAULT`."""
    return tuple(_MAKERS)


def named(name: str, asked: Asked | None = None, random: Random | None = None) -> Policy:
    """A fresh policy. `asked` is the expected demand by profile name. Raises BadInput for an unknown name."""
    make = _MAKERS.get(name)
    if make is None:
        raise BadInput(f"no placement policy {name!r}; there are {', '.join(_MAKERS)}")
    return make(asked or {}, random or Random(0))
