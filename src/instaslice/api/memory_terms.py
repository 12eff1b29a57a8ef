"""How a pod asks for GPU memory: the quantity, and the annotations that say which slice is right for it.

Pure. The webhook refuses what cannot be read. The controller reads it again: annotations can change while a pod waits.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from instaslice.api import names
from instaslice.errors import BadInput
from instaslice.kube.quantities import NANO, nano

MOST_COMPUTE_SLICES: Final = 99
"""Two digits: more than any GPU has."""


class Fit(StrEnum):
    """Which slice an ask by memory gets."""

    TIGHT = "tight"
    """The one that wastes the least memory; the pod waits for it."""
    ANY = "any"
    """Of those that have room now the one that wastes the least."""


def gb_of(quantity: str | int) -> int:
    """Raises BadInput for what is not a whole number of GB from 1 on, and BadQuantity for what is not a number."""
    gb, rest = divmod(nano(quantity), NANO)
    # 8G would be eight thousand million. Not so k and M: the API server writes 8000 as 8k.
    if rest or gb < 1 or str(quantity).endswith(("i", "G", "T", "P", "E")):
        raise BadInput(
            f"{names.MEMORY}: {quantity} is not a number of GB; give a whole number from 1 on, without a unit, as in "
            f'{names.MEMORY}: "8"'
        )
    return gb


def fit_of(annotations: Mapping[str, str]) -> Fit:
    """Raises BadInput."""
    text = annotations.get(names.FIT, Fit.TIGHT)
    try:
        return Fit(text)
    except ValueError:
        raise BadInput(
            f"the annotation {names.FIT} is {text!r}; write {Fit.TIGHT} (the slice that wastes the least memory) or "
            f"{Fit.ANY} (of those that are free now)"
        ) from None


def compute_slices_of(annotations: Mapping[str, str]) -> int:
    """At least so many; 0 where the pod does not say. Raises BadInput."""
    text = annotations.get(names.COMPUTE_SLICES)
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and 0 < int(text[:3]) <= MOST_COMPUTE_SLICES):
        raise BadInput(
            f"the annotation {names.COMPUTE_SLICES} is {text!r}, not a number of compute slices; give a whole number "
            f"from 1 to {MOST_COMPUTE_SLICES}, or leave it out"
        )
    return int(text)


def unreadable_terms(annotations: Mapping[str, str]) -> bool:
    """Whether one of the annotations is what raises BadInput."""
    try:
        fit_of(annotations)
        compute_slices_of(annotations)
    except BadInput:
        return True
    return False


def terms_of(annotations: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Another value once the pod says otherwise which slice is right for it."""
    return annotations.get(names.FIT), annotations.get(names.COMPUTE_SLICES)
