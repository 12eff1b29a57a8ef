"""What can be wrong with the name of a model or a profile.

InstasliceError
└── BadInput
    ├── UnknownModel     no model of that name
    ├── UnknownProfile   not a profile name, or not one that this model has
    └── TooManyLayouts   a geometry that no real GPU has
"""

import difflib
from collections.abc import Sequence

from instaslice.errors import BadInput


class UnknownModel(BadInput):
    """No GPU model has that name; the message lists those that come nearest."""


class UnknownProfile(BadInput):
    """Not a profile name, or none of this model; the message lists those that exist."""


class TooManyLayouts(BadInput):
    """A model with too many layouts to enumerate; the message says how many."""


def nearest(name: str, known: Sequence[str], most: int = 4) -> list[str]:
    """The names a user may have meant, best first; all of them when none comes near."""
    by_lower = {each.lower(): each for each in known}
    wanted = name.lower()
    holding = [each for lower, each in by_lower.items() if wanted and wanted in lower]
    similar = [by_lower[each] for each in difflib.get_close_matches(wanted, by_lower, n=most, cutoff=0.5)]
    return list(dict.fromkeys([*holding, *similar]))[:most] or list(known)
