"""What is in the machine. Each GPU's geometry is what its own driver reports, never what its name suggests."""

from dataclasses import dataclass
from typing import Final

from instaslice.drivers.driver import Gpu, GpuUuid
from instaslice.drivers.nvml import mig_mode
from instaslice.drivers.nvml.library import Code, GpuInstanceProfile, Handle, Library, NvmlError
from instaslice.geometry import Engines, ProfileName, UnknownProfile, discovered

_GUESTS: Final = {
    2: "it is a vGPU: only the host of this virtual machine can cut it; pass the whole GPU through instead",
    3: "it serves vGPUs to virtual machines: the hypervisor decides how it is cut",
}
"""Virtualization modes in which a GPU is not ours to cut."""


NOT_GIVEN: Final = "it is not among the GPUs given to us"


class LeftAlone(Exception):
    """Not ours to cut; says why."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A GPU by what it tells first."""

    index: int
    uuid: GpuUuid
    product: str
    handle: Handle


def seen(library: Library, index: int) -> Seen:
    """Asks this GPU alone."""
    handle = library.at_index(index)
    return Seen(index, GpuUuid(library.uuid(handle)), library.product(handle), handle)


def gpu(library: Library, one: Seen, enable: bool) -> Gpu:
    """With its geometry. Switches MIG mode on where it is off and `enable` allows; a GPU whose mode waits for a reset
    is one too: `health` says that it is not well. Raises LeftAlone."""
    try:
        virtualization = library.virtualization(one.handle)
    except NvmlError as error:
        if error.code != Code.NOT_SUPPORTED:
            raise
        virtualization = 0
    if virtualization in _GUESTS:
        raise LeftAlone(_GUESTS[virtualization])
    try:
        off = mig_mode.unhealthy(library, one.handle, enable)
    except NvmlError as error:
        if error.code == Code.NOT_SUPPORTED:
            raise LeftAlone(f"{one.product} has no MIG") from None
        raise
    if off == mig_mode.OFF:
        raise LeftAlone(off.message)
    reports = [_report(library, one.handle, each) for each in library.gi_profiles(one.handle) if _readable(each)]
    model = discovered.model(one.product, library.memory_bytes(one.handle), reports)
    if not model.profiles:
        raise LeftAlone(f"the driver reports no MIG profile for this {one.product}; upgrade it")
    return Gpu(one.uuid, one.index, model)


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
