"""What can be wrong with a model, its name, or the name of a profile.

InstasliceError
└── BadInput
    ├── UnknownModel        no model of that name
    ├── UnknownProfile      not a profile name, or not one that this model has
    └── ImpossibleGeometry  placements that no GPU has
"""

import difflib
from collections.abc import Sequence

from instaslice.errors import BadInput


class UnknownModel(BadInput):
    """No GPU model has that name; the message lists those that come nearest."""


class UnknownProfile(BadInput):
    """Not a profile name, or none of this model; the message says which there are."""


class ImpossibleGeometry(BadInput):
    """What is said of a GPU is true of none: a placement that leaves it, or more ways to cut it than can be listed."""


def nearest(name: str, known: Sequence[str], most: int = 4) -> list[str]:
    """The names a user may have meant, best first; all of them when none comes near."""
    by_lower = {each.lower(): each for each in known}
    wanted = name.lower()
    holding = [each for lower, each in by_lower.items() if wanted and wanted in lower]
    similar = [by_lower[each] for each in difflib.get_close_matches(wanted, by_lower, n=most, cutoff=0.5)]
    return list(dict.fromkeys([*holding, *similar]))[:most] or list(known)
