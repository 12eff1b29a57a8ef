"""Which GPUs of a machine are ours: the others are left to whole-GPU pods."""

from collections.abc import Iterable

from instaslice.geometry import UnknownModel, models


class Selection:
    """GPUs by index (`0`), UUID (`GPU-5f…`, or how it begins) or model (`H200`, `NVIDIA A100-SXM4-40GB`); one
    match is enough. An empty selection includes all."""

    def __init__(self, wanted: Iterable[str] = ()) -> None:
        self.wanted = tuple(each.strip() for each in wanted if each.strip())

    def includes(self, index: int, uuid: str, product: str) -> bool:
        return not self.wanted or any(_fits(each, index, uuid, product) for each in self.wanted)

    def may_include(self, index: int) -> bool:
        """Whether `includes` could be true of the GPU at this index: otherwise it need not be called at all."""
        return not self.wanted or any(not each.isdecimal() or int(each) == index for each in self.wanted)

    def unmatched(self, gpus: Iterable[tuple[int, str, str]]) -> tuple[str, ...]:
        """Entries that match none of the GPUs: a typing error, or a GPU that is gone."""
        there = list(gpus)
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
