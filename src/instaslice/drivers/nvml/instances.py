"""List, create and destroy slices on real GPUs. A slice is a GPU instance filled by one compute instance."""

from pathlib import Path

from instaslice.drivers.driver import Gpu, GpuUuid, MigUuid, Slice
from instaslice.drivers.errors import DriverError, InUse, SlotTaken, Unsupported
from instaslice.drivers.nvml import holders, mig_mode
from instaslice.drivers.nvml.library import Code, GpuInstance, Handle, NvmlError
from instaslice.drivers.nvml.session import Session
from instaslice.geometry import Placement, Profile, UnknownProfile

MANY_COMPUTE_INSTANCES = 8
"""A GPU instance is split into no more; somebody else may have split it."""


class Instances:
    """The slices of all GPUs of a session. `proc` is where the host's `/proc` is mounted."""

    def __init__(self, session: Session, proc: Path) -> None:
        self._session = session
        self._nvml = session.library
        self._proc = proc
        self._compute_profiles: dict[tuple[GpuUuid, int], int] = {}  # numbers of compute profiles

    def slices(self, gpu: Gpu) -> tuple[Slice, ...]:
        """By start. A GPU whose MIG mode is off has none."""
        with self._session.at(gpu.uuid, "list slices") as handle:
            return self._listed(gpu, handle)

    def create(self, gpu: Gpu, profile: str, start: int) -> Slice:
        """See Driver. A slice that could not be finished is removed, as far as the GPU still answers."""
        try:
            wanted, size = gpu.model.placement(profile, start), gpu.model.profile(profile)
        except UnknownProfile as error:
            raise Unsupported(f"GPU {gpu.uuid}: {error}") from None
        with self._session.at(gpu.uuid, f"create {wanted}") as handle:
            gi = self._create(gpu, handle, wanted, size)
            try:
                return self._fill(gpu, handle, wanted, size, gi)
            except DriverError as error:
                self._roll_back(gi, error)
                raise

    def destroy(self, gpu: Gpu, doomed: Slice) -> None:
        """See Driver."""
        with self._session.at(gpu.uuid, f"destroy {doomed.placement}") as handle:
            gi = self._find(gpu, handle, doomed)
            if gi is None:
                return
            try:
                self._remove(gi, doomed.ci or 0)
            except NvmlError as error:
                if error.code != Code.IN_USE:
                    raise
                raise self._in_use(handle, doomed, gi) from error

    # Listing --------------------------------------------------------------------------------------------------------

    def _listed(self, gpu: Gpu, handle: Handle) -> tuple[Slice, ...]:
        try:
            whole = {device.gi: device for device in reversed(self._nvml.mig_devices(handle))}
            found = [
                (Placement(profile.name, gi.start, gi.size), gi.id)
                for profile in gpu.model.profiles
                for gi in self._nvml.gpu_instances(handle, _id(profile))
            ]
        except NvmlError as error:
            if error.code == Code.NOT_SUPPORTED and not self._nvml.mig_mode(handle)[0]:
                return ()
            raise
        found.sort(key=lambda each: each[0].start)
        return tuple(
            Slice(gpu.uuid, placement, gi, whole[gi].ci, MigUuid(whole[gi].uuid))
            if gi in whole
            else Slice(gpu.uuid, placement, gi)
            for placement, gi in found
        )

    # Making ---------------------------------------------------------------------------------------------------------

    def _create(self, gpu: Gpu, handle: Handle, wanted: Placement, size: Profile) -> Handle:
        try:
            return self._nvml.create_gpu_instance(handle, _id(size), wanted.start, wanted.size)
        except NvmlError as error:
            match error.code:
                # The driver listed this placement itself, so an invalid one overlaps what is there.
                case Code.INSUFFICIENT_RESOURCES | Code.INVALID_ARGUMENT as code:
                    there = ", ".join(str(each.placement) for each in self._listed(gpu, handle))
                    if there or code == Code.INSUFFICIENT_RESOURCES:
                        raise SlotTaken(
                            f"GPU {gpu.uuid}: {wanted} does not fit beside what is there: "
                            f"{there or 'nothing that can be listed'}"
                        ) from error
                    raise _not_made(gpu, wanted, error) from error
                case Code.NOT_SUPPORTED if off := mig_mode.unhealthy(self._nvml, handle, enable=False):
                    raise DriverError(f"GPU {gpu.uuid}: create {wanted}: {off.message}") from error
                case Code.NOT_SUPPORTED:
                    raise _not_made(gpu, wanted, error) from error
            raise

    def _fill(self, gpu: Gpu, handle: Handle, wanted: Placement, size: Profile, gi: Handle) -> Slice:
        number = self._nvml.gpu_instance(gi).id
        self._nvml.create_compute_instance(gi, self._compute_profile(gpu.uuid, _id(size), gi))
        # Our compute instance is the only one of a GPU instance that was made just now.
        for device in self._nvml.mig_devices(handle, only_gi=number):
            return Slice(gpu.uuid, wanted, number, device.ci, MigUuid(device.uuid))
        raise DriverError(f"GPU {gpu.uuid}: create {wanted}: the driver created it but lists no MIG device for it")

    def _compute_profile(self, gpu: GpuUuid, profile: int, gi: Handle) -> int:
        """The compute profile with the most multiprocessors. The one with the same number of slices as the GPU
        instance will not do: it leaves 10 of the 26 of an H200's 1g.35gb idle.

        Which one that is we find out once, since querying all takes 30 ms. That one is queried each time, 7 ms: NVML
        creates no compute instance in a GPU instance whose profiles were not queried.
        """
        number = self._compute_profiles.get((gpu, profile))
        if number is not None:
            return self._nvml.compute_profile(gi, number).id
        filler = max(self._nvml.compute_profiles(gi), key=lambda each: each.multiprocessors)
        self._compute_profiles[gpu, profile] = filler.number
        return filler.id

    def _roll_back(self, gi: Handle, reason: DriverError) -> None:
        try:
            self._remove(self._nvml.gpu_instance(gi), 0)
        except NvmlError as error:
            reason.add_note(f"and the half made slice could not be removed: {error}")

    # Destroying -----------------------------------------------------------------------------------------------------

    def _find(self, gpu: Gpu, handle: Handle, doomed: Slice) -> GpuInstance | None:
        """The instance at the slice's place, if it has its profile. Ids are reused: they only say where to look
        first."""
        if not gpu.model.has(doomed.placement.profile):
            return None
        profile = _id(gpu.model.profile(doomed.placement.profile))
        try:
            first = self._nvml.gpu_instance_with_id(handle, doomed.gi)
            if (first.profile, first.start) == (profile, doomed.placement.start):
                return first
        except NvmlError as error:
            if error.code not in (Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.NOT_SUPPORTED):
                raise
        try:
            others = self._nvml.gpu_instances(handle, profile)
        except NvmlError as error:
            if error.code == Code.NOT_SUPPORTED:  # MIG mode is off, so there are no instances
                return None
            raise
        return next((gi for gi in others if gi.start == doomed.placement.start), None)

    def _remove(self, gi: GpuInstance, ci: int) -> None:
        self._remove_compute(gi, ci)
        try:
            self._nvml.destroy_gpu_instance(gi.handle)
        except NvmlError as error:
            if error.code == Code.NOT_FOUND:
                return
            if error.code != Code.IN_USE:
                raise
            # A process holds it, or it is split into more compute instances than the one we create.
            others = [self._remove_compute(gi, other) for other in range(MANY_COMPUTE_INSTANCES)]
            if not any(others):
                raise
            self._nvml.destroy_gpu_instance(gi.handle)

    def _remove_compute(self, gi: GpuInstance, ci: int) -> bool:
        """Whether it existed."""
        try:
            self._nvml.destroy_compute_instance(self._nvml.compute_instance_with_id(gi.handle, ci))
        except NvmlError as error:
            if error.code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
                return False
            raise
        return True

    def _in_use(self, handle: Handle, held: Slice, gi: GpuInstance) -> InUse:
        devices = self._nvml.mig_devices(handle, only_gi=gi.id)
        ci = devices[0].ci if devices else None
        capabilities = holders.capability_minors(self._proc, self._nvml.minor(handle), gi.id, ci)
        pids = {*holders.holding(self._proc, capabilities)}
        for device in devices:
            pids.update(self._nvml.pids(device.handle))
        names = holders.described(self._proc, sorted(pids))
        by = ", ".join(names) or "a process that cannot be seen from here (hostPID is needed)"
        return InUse(f"GPU {held.gpu}: {held.placement} is in use by {by}; end it and destroy again", names)


def _not_made(gpu: Gpu, wanted: Placement, error: NvmlError) -> Unsupported:
    return Unsupported(f"GPU {gpu.uuid}: the driver does not make {wanted}: {error}")


def _id(profile: Profile) -> int:
    assert profile.gi_id is not None, "discovered from the driver"
    return profile.gi_id
