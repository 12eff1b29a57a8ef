"""What is in the machine. Each GPU's geometry is what its own driver reports, never what its name suggests."""

from dataclasses import dataclass
from typing import Final

from instaslice.drivers.driver import Gpu, GpuUuid
from instaslice.drivers.nvml import mode
from instaslice.drivers.nvml.library import Code, GpuInstanceProfile, Handle, Library, Refused
from instaslice.drivers.nvml.selection import Selection
from instaslice.geometry import Engines, Model, ProfileName, UnknownProfile, discovered

_GUESTS: Final = {
    2: "it is a vGPU: only the host of this virtual machine can cut it; pass the whole GPU through instead",
    3: "it serves vGPUs to virtual machines: the hypervisor decides how it is cut",
}
"""Virtualization modes in which a GPU is not ours to cut."""


@dataclass(frozen=True, slots=True)
class Found:
    """The GPUs that can be cut, by index, and why each of the others is left alone: by UUID, or by what stands for
    one that was asked for and is not there."""

    gpus: tuple[Gpu, ...]
    left_alone: dict[str, str]


class _LeftAlone(Exception):
    """Not ours to cut; says why."""


def find(library: Library, selection: Selection, enable: bool) -> Found:
    """All GPUs of the machine; one that fails keeps nobody from the others. Switches MIG mode on where it is off and
    `enable` allows. A GPU whose mode waits for a reset is found too: `health` says that it is not well."""
    gpus: list[Gpu] = []
    left_alone: dict[str, str] = {}
    seen: list[tuple[int, str, str]] = []
    for index in range(library.count()):
        name = f"GPU {index}"
        try:
            handle = library.at_index(index)
            name = library.uuid(handle)
            product = library.product(handle)
            seen.append((index, name, product))
            if not selection.takes(*seen[-1]):
                raise _LeftAlone("it is not among the GPUs given to us")
            gpus.append(Gpu(GpuUuid(name), index, _model(library, handle, product, enable)))
        except (_LeftAlone, Refused) as reason:
            left_alone[name] = str(reason)
    for wanted in selection.unmet(seen):
        there = ", ".join(f"{index}: {uuid} {product}" for index, uuid, product in seen) or "none"
        left_alone[wanted] = f"no GPU is {wanted!r} (there are {there})"
    return Found(tuple(gpus), left_alone)


def _model(library: Library, gpu: Handle, product: str, enable: bool) -> Model:
    try:
        virtualization = library.virtualization(gpu)
    except Refused as error:
        if error.code != Code.NOT_SUPPORTED:
            raise
        virtualization = 0
    if virtualization in _GUESTS:
        raise _LeftAlone(_GUESTS[virtualization])
    try:
        off = mode.ill(library, gpu, enable)
    except Refused as error:
        if error.code == Code.NOT_SUPPORTED:
            raise _LeftAlone(f"{product} has no MIG") from None
        raise
    if off == mode.OFF:
        raise _LeftAlone(off)
    reports = [_report(library, gpu, each) for each in library.gi_profiles(gpu) if _readable(each)]
    model = discovered.model(product, library.memory_bytes(gpu), reports)
    if not model.profiles:
        raise _LeftAlone(f"the driver reports no MIG profile for this {product}; upgrade it")
    return model


def _report(library: Library, gpu: Handle, profile: GpuInstanceProfile) -> discovered.ProfileReport:
    return discovered.ProfileReport(
        nvml_enum=profile.number,
        gi_id=profile.id,
        compute=profile.slices,
        memory_mib=profile.memory_mib,
        limit=profile.instances,
        sms=profile.multiprocessors,
        placements=library.placements(gpu, profile.id),
        engines=Engines(
            copy=profile.copy,
            decoders=profile.decoders,
            encoders=profile.encoders,
            jpeg=profile.jpeg,
            ofa=profile.ofa,
        ),
        name=profile.name,
    )


def _readable(profile: GpuInstanceProfile) -> bool:
    """Whether the name is of a form that pods can ask for: one that a newer driver made up is not offered."""
    try:
        return not profile.name or bool(ProfileName.parse(profile.name.removeprefix("MIG ")))
    except UnknownProfile:
        return False
