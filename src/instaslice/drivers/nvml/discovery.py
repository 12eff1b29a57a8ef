"""The GPUs of the machine. The geometry of each is what its driver reports, never what its name suggests."""

from dataclasses import dataclass
from typing import Final

from instaslice.drivers.driver import Gpu, GpuUuid
from instaslice.drivers.nvml import mig_mode
from instaslice.drivers.nvml.library import Code, GpuInstanceProfile, Handle, Library, NvmlError
from instaslice.geometry import Engines, ProfileName, UnknownProfile, discovered

_GUESTS: Final = {
    2: "it is a vGPU: only the host of this virtual machine can partition it; pass the whole GPU through instead",
    3: "it serves vGPUs to virtual machines: the hypervisor decides how it is partitioned",
}
"""Virtualization modes in which we cannot partition a GPU."""


NOT_GIVEN: Final = "it is not among the GPUs given to us"


class LeftAlone(Exception):
    """We do not partition this GPU; says why."""


@dataclass(frozen=True, slots=True)
class ProbedGpu:
    """What a GPU says of itself first."""

    index: int
    uuid: GpuUuid
    product: str
    handle: Handle


def probe(library: Library, index: int) -> ProbedGpu:
    """Calls this GPU and no other."""
    handle = library.at_index(index)
    return ProbedGpu(index, GpuUuid(library.uuid(handle)), library.product(handle), handle)


def gpu(library: Library, one: ProbedGpu, enable: bool) -> Gpu:
    """With its geometry. Enables MIG mode where it is off and `enable` allows it; a GPU whose mode waits for a reset
    counts too: `health` reports it as unhealthy. Raises LeftAlone."""
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
    """Whether pods can request a profile of this name: other forms, of newer drivers, are not offered."""
    try:
        return not profile.name or bool(ProfileName.parse(profile.name.removeprefix("MIG ")))
    except UnknownProfile:
        return False
