"""A model as the driver reports it: for GPUs that no table knows, and because a driver may change what it knows.

Plain data in: `drivers/` fills one `ProfileReport` for each profile that
`nvmlDeviceGetGpuInstanceProfileInfo` answers for.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from instaslice.geometry.models import Model
from instaslice.geometry.names import EXTRA_BY_ENUM, ProfileName, label_gb
from instaslice.geometry.profiles import NO_ENGINES, Engines, Profile


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """What NVML says of one profile: its info struct and its possible placements as (start, size).

    `name` is the driver's own (`MIG 1g.5gb+me`), empty if the driver is too old to report it.
    """

    nvml_enum: int
    gi_id: int
    compute: int
    memory_mib: int
    limit: int
    sms: int
    placements: tuple[tuple[int, int], ...]
    engines: Engines = NO_ENGINES
    ci_enum: int | None = None
    name: str = ""


def model(product: str, memory_bytes: int, reports: Iterable[ProfileReport]) -> Model:
    """A model from what the driver reports; the number of slices is what the largest placement covers.

    A profile without placements is left out: the driver lists some that this board cannot hold. So is one whose
    placements differ in size, which would not be one slice size. Nothing is assumed about names or counts.
    """
    profiles = [_profile(each, memory_bytes) for each in reports if len({size for _, size in each.placements}) == 1]
    profiles.sort(key=lambda p: (p.size, p.compute, p.nvml_enum))
    return Model(
        name=product,
        memory_slices=max((start + p.size for p in profiles for start in p.starts), default=0),
        compute_slices=max((p.compute for p in profiles), default=0),
        profiles=tuple(profiles),
        memory_gb=-(-memory_bytes // (1 << 30)),
        engines=most_engines(profiles),
        products=(product,),
    )


def most_engines(profiles: Iterable[Profile]) -> Engines:
    """What the whole GPU has of each engine: as much as the profile that has most of it."""
    rows = [p.engines for p in profiles]
    return Engines(
        copy=max((e.copy for e in rows), default=0),
        decoders=max((e.decoders for e in rows), default=0),
        encoders=max((e.encoders for e in rows), default=0),
        jpeg=max((e.jpeg for e in rows), default=0),
        ofa=max((e.ofa for e in rows), default=0),
    )


def _profile(report: ProfileReport, memory_bytes: int) -> Profile:
    if report.name:
        name = ProfileName.parse(report.name.removeprefix("MIG "))
    else:
        extra = EXTRA_BY_ENUM.get(report.nvml_enum, "")
        name = ProfileName(report.compute, label_gb(report.memory_mib, memory_bytes), extra)
    return Profile(
        name=str(name),
        compute=report.compute,
        size=report.placements[0][1],
        starts=tuple(sorted(start for start, _ in report.placements)),
        limit=report.limit,
        gb=name.gb,
        memory_mib=report.memory_mib,
        sms=report.sms,
        engines=report.engines,
        nvml_enum=report.nvml_enum,
        gi_id=report.gi_id,
        ci_enum=report.ci_enum,
    )
