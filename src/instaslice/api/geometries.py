"""A GPU model as it stands in a status, and back: placements as the node's driver reports them.

The controller places by what the agent reports, not by a table of its own: a driver may know other placements, or
a model that no table has. GPUs of one model share one entry, so eight of them cost no more than one.
"""

from typing import Annotated, Self

from instaslice.api.bounds import Count, Name, ProfileText, Size, Slot, many
from instaslice.geometry import Engines, Model, Profile
from instaslice.kube.meta import Part


class EngineCounts(Part, frozen=True):
    """Engines that a slice takes from its GPU, or that a whole GPU has."""

    copy: Count = 0
    decoders: Count = 0
    encoders: Count = 0
    jpeg: Count = 0
    ofa: Count = 0

    @classmethod
    def of(cls, engines: Engines) -> Self:
        return cls(
            copy=engines.copy,
            decoders=engines.decoders,
            encoders=engines.encoders,
            jpeg=engines.jpeg,
            ofa=engines.ofa,
        )

    def engines(self) -> Engines:
        return Engines(self.copy, self.decoders, self.encoders, self.jpeg, self.ofa)


class ProfileGeometry(Part, frozen=True):
    """One slice size: how many memory slices it takes, where it may start, how many fit at most."""

    profile: ProfileText
    size: Size
    starts: Annotated[tuple[Slot, ...], many(128)]
    limit: Count
    compute: Count
    gb: Count
    engines: EngineCounts = EngineCounts()


class ModelGeometry(Part, frozen=True):
    """A GPU model of this node with its legal placements."""

    name: Name
    memory_slices: Size
    compute_slices: Count
    memory_gb: Count
    engines: EngineCounts = EngineCounts()
    profiles: Annotated[tuple[ProfileGeometry, ...], many(64, "profile")] = ()

    @classmethod
    def of(cls, model: Model) -> Self:
        """Profiles without a known placement are left out: nothing could be placed by them."""
        return cls(
            name=model.name,
            memory_slices=model.memory_slices,
            compute_slices=model.compute_slices,
            memory_gb=model.memory_gb,
            engines=EngineCounts.of(model.engines),
            profiles=tuple(_written(profile) for profile in model.profiles if profile.starts),
        )

    def model(self) -> Model:
        """What placement works with: the same states as on the node."""
        return Model(
            name=self.name,
            memory_slices=self.memory_slices,
            compute_slices=self.compute_slices,
            memory_gb=self.memory_gb,
            engines=self.engines.engines(),
            profiles=tuple(_read(each) for each in self.profiles),
        )


def _written(profile: Profile) -> ProfileGeometry:
    return ProfileGeometry(
        profile=profile.name,
        size=profile.size,
        starts=profile.starts,
        limit=profile.limit,
        compute=profile.compute,
        gb=profile.gb,
        engines=EngineCounts.of(profile.engines),
    )


def _read(written: ProfileGeometry) -> Profile:
    return Profile(
        name=written.profile,
        compute=written.compute,
        size=written.size,
        starts=written.starts,
        limit=written.limit,
        gb=written.gb,
        engines=written.engines.engines(),
    )
