"""The smallest profile that covers a part of a GPU as traces state it."""

from enum import StrEnum

from instaslice.geometry import Model, Profile


class FractionAs(StrEnum):
    """What a fraction is a fraction of: the memory, the compute, or both at once."""

    MEMORY = "memory"
    COMPUTE = "compute"
    BOTH = "both"


def percent(model: Model, profile: Profile) -> int:
    """A profile's compute in whole percent of the GPU, rounded down as HAMi and MIGBench count it (1g: 14, 3g: 42)."""
    return 100 * profile.compute // model.compute_slices


def of_fraction(model: Model, fraction: float, reading: FractionAs) -> Profile | None:
    """The profile for a fraction of this model; None where it asks for more than the whole GPU."""
    memory = fraction * model.memory_slices if reading is not FractionAs.COMPUTE else 0.0
    compute = fraction * model.compute_slices if reading is not FractionAs.MEMORY else 0.0
    return _least([p for p in model.profiles if p.size >= memory - 1e-9 and p.compute >= compute - 1e-9])


def of_amount(model: Model, memory_mb: int, min_percent: int = 0) -> Profile | None:
    """The profile for so many MB by its label and at least so much of the compute; None where there is none."""
    return _least([p for p in model.profiles if p.gb * 1024 >= memory_mb and percent(model, p) >= min_percent])


def _least(enough: list[Profile]) -> Profile | None:
    # Of two of the same size the one with less compute, then the plain one: it leaves engines to others.
    key = {p.name: (p.size, p.compute, sum(p.engines.media)) for p in enough}
    return min((p for p in enough if p.starts), key=lambda p: key[p.name], default=None)
