"""The GPU memory that a container asks for, alone or beside slices, read from its limits and requests and checked.

Pure. Raises Rejected with what is wrong and what would be right. Beside slices it follows from them and need not be
written; alone it is an ask for a slice that holds it, whose profile the controller chooses.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from instaslice.api import names
from instaslice.api.errors import Rejected
from instaslice.api.memory_terms import compute_slices_of, fit_of, gb_of
from instaslice.api.slice_requests import SliceRequest
from instaslice.errors import BadInput, InstasliceError
from instaslice.geometry import MemoryAsk, ProfileName, UnknownProfile
from instaslice.kube.core import Container
from instaslice.kube.quantities import nano

WHOLE_GPUS: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
TERMS: Final = (names.FIT, names.COMPUTE_SLICES)
"""The annotations by which users say which slice is right for an ask by memory."""


def names_memory(resource: str) -> bool:
    """Whether a resource name is, or is meant to be, that of GPU memory."""
    return resource.lower().startswith(names.MEMORY)


def gb_asked_alone(container: Container, slices: Sequence[SliceRequest], recorded: Mapping[str, int]) -> int:
    """The GB that a container asks for without naming a profile; 0 where it does not. `recorded` is what it asked for
    when it was seen before: the GPU memory that is there since, and the slice for it, are ours."""
    written = _written(container)
    for name in written:
        if name != names.MEMORY:
            raise Rejected(f"{name}: GPU memory is asked for by {names.MEMORY}, in whole GB; write that")
    ours = names.MEMORY in recorded
    if names.ANY_SLICE in {*container.resources.limits, *container.resources.requests} and not ours:
        raise Rejected(
            f"{names.ANY_SLICE} is what InstaSlice adds for {names.MEMORY}, once; leave it out, and ask for "
            f"{names.MEMORY} or {names.NVIDIA_RESOURCE}<profile>"
        )
    if slices:
        if ours:
            raise Rejected(f"asks for {names.MEMORY} alone and for {slices[0].written}; keep one")
        _check_agrees(written.get(names.MEMORY, []), slices, recorded)
        return 0
    return _gb_alone(container, written[names.MEMORY]) if written else 0


def ask_of(gb: int, annotations: Mapping[str, str]) -> MemoryAsk:
    """What a slice must have that is asked for by so many GB."""
    try:
        fit_of(annotations)
        return MemoryAsk(gb, compute_slices_of(annotations))
    except BadInput as error:
        raise Rejected(str(error)) from None


def check_no_terms(annotations: Mapping[str, str]) -> None:
    """Of a pod that asks for profiles only. Somebody who writes them expects them to matter."""
    for name in TERMS:
        if name in annotations:
            raise Rejected(
                f"sets the annotation {name}, which says what slice an ask for {names.MEMORY} alone gets, and no "
                f"container asks so; leave it out, or ask for {names.MEMORY} in place of a profile"
            )


def _written(container: Container) -> dict[str, list[str]]:
    """Resource name → its quantities in limits and requests."""
    found: dict[str, list[str]] = {}
    for field in (container.resources.limits, container.resources.requests):
        for name, quantity in field.items():
            if names_memory(name):
                found.setdefault(name, []).append(str(quantity))
    return found


def _check_agrees(quantities: Sequence[str], slices: Sequence[SliceRequest], recorded: Mapping[str, int]) -> None:
    """What is written beside slices is what they come to. Before another webhook added slices it was less."""
    come_to = sum(each.gb for each in slices)
    try:
        right = {nano(come_to), nano(sum(_gb(name) * count for name, count in recorded.items()))}
    except UnknownProfile:
        right = {nano(come_to)}  # the record is forged, which is said later
    for quantity in quantities:
        if nano(quantity) not in right:
            listed = ", ".join(f"{each.count} × {each.profile}" for each in slices)
            raise Rejected(
                f"{names.MEMORY} is {quantity} and the slices beside it ({listed}) are {come_to} GB; leave it out, it "
                f"follows from the slices, or write {come_to}"
            )


def _gb(name: str) -> int:
    return ProfileName.parse(name).gb


def _gb_alone(container: Container, quantities: Sequence[str]) -> int:
    try:
        amounts = [gb_of(quantity) for quantity in quantities]
    except InstasliceError as error:
        raise Rejected(str(error)) from None
    if len(set(amounts)) > 1:
        raise Rejected(
            f"{names.MEMORY} is {quantities[0]} in limits and {quantities[1]} in requests; GPU memory cannot be "
            "overcommitted, so give the same number in both, or limits alone"
        )
    for field in (container.resources.limits, container.resources.requests):
        for whole in WHOLE_GPUS:
            if nano(field.get(whole, 0)):
                raise Rejected(
                    f"asks for {names.MEMORY} and for {whole}, by which another device plugin gives out GPUs that "
                    "InstaSlice does not cut; keep one"
                )
    return amounts[0]
