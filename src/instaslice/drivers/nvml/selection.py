"""Which GPUs of a machine are ours: whole-GPU pods keep the others."""

from collections.abc import Iterable

from instaslice.geometry import UnknownModel, models


class Selection:
    """GPUs by index (`0`), UUID (`GPU-5f…`, or how it begins) or model (`H200`, `NVIDIA A100-SXM4-40GB`); any of
    them will do. Nothing given is everything."""

    def __init__(self, wanted: Iterable[str] = ()) -> None:
        self.wanted = tuple(each.strip() for each in wanted if each.strip())

    def includes(self, index: int, uuid: str, product: str) -> bool:
        return not self.wanted or any(_fits(each, index, uuid, product) for each in self.wanted)

    def may_include(self, index: int) -> bool:
        """Whether `takes` could be true of the GPU at this index: otherwise it need not even be asked."""
        return not self.wanted or any(not each.isdecimal() or int(each) == index for each in self.wanted)

    def unmet(self, seen: Iterable[tuple[int, str, str]]) -> tuple[str, ...]:
        """Those that none of the GPUs seen fits: a typing error, or a GPU that is gone."""
        there = list(seen)
        return tuple(each for each in self.wanted if not any(_fits(each, *gpu) for gpu in there))


def _fits(wanted: str, index: int, uuid: str, product: str) -> bool:
    if wanted.isdecimal():
        return int(wanted) == index
    if wanted.lower().startswith("gpu-"):
        return uuid.lower().startswith(wanted.lower())
    return wanted.lower() in product.lower() or product in _products(wanted)


def _products(model: str) -> tuple[str, ...]:
    try:
        return models.named(model).products
    except UnknownModel:
        return ()
