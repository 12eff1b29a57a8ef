"""A GPU model as it stands in a status, and back: placements as the node's driver reports them.

The controller places by what the agent reports, not by a table of its own: a driver may know other placements, or
a model that no table has. GPUs of one model share one entry, so eight of them cost no more than one. The fields are
those of `geometry` that decide what can be placed, under the same names.
"""

from typing import Annotated, Self

import msgspec

from instaslice.api.bounds import Count, Name, ProfileText, Size, Start, bounded_list
from instaslice.geometry import Model, States, TooManyLayouts
from instaslice.kube.meta import ApiStruct


class EngineCounts(ApiStruct, frozen=True):
    """Engines that a slice takes from its GPU, or that a whole GPU has."""

    copy: Count = 0
    decoders: Count = 0
    encoders: Count = 0
    jpeg: Count = 0
    ofa: Count = 0


class ProfileGeometry(ApiStruct, frozen=True):
    """One slice size: how many memory slices it takes, where it may start, how many fit at most."""

    name: ProfileText
    size: Size
    """How many memory slices it takes."""
    starts: Annotated[tuple[Start, ...], bounded_list(128)]
    """The memory slices at which it may start."""
    limit: Count
    """How many fit one GPU at most."""
    compute: Count
    """Compute slices."""
    gb: Count
    """GB of memory by its name."""
    engines: EngineCounts = EngineCounts()


class ModelGeometry(ApiStruct, frozen=True):
    """A GPU model of this node with its legal placements."""

    name: Name
    memory_slices: Size
    compute_slices: Count
    memory_gb: Count
    """GB of memory of the whole GPU."""
    engines: EngineCounts = EngineCounts()
    profiles: Annotated[tuple[ProfileGeometry, ...], bounded_list(64, "name")] = ()

    @classmethod
    def of(cls, model: Model) -> Self:
        """Profiles without a known placement are left out: nothing could be placed by them."""
        placeable = model.only(profile.name for profile in model.profiles if profile.starts)
        return msgspec.convert(placeable, cls, from_attributes=True)

    def model(self) -> Model:
        """What placement works with: the same states as on the node."""
        return msgspec.convert(self, Model, from_attributes=True)

    def checked(self) -> Model | str:
        """The model, or why no GPU can be like that: nothing is placed by it, and its states are not enumerated."""
        model = self.model()
        for profile in model.profiles:
            for start in profile.starts:
                if start + profile.size > model.memory_slices:
                    return f"{profile.name} at {start} takes {profile.size} of {model.memory_slices} memory slices"
        try:
            States.of(model)
        except TooManyLayouts as error:
            return str(error)
        return model
