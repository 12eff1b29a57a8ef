"""GPU models known by name, with the facts in `models.json` beside this file.

A model that is not in the file is built from what the driver reports: see `discovered`.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Final, Literal

import msgspec

from instaslice.geometry.errors import UnknownModel, UnknownProfile, nearest
from instaslice.geometry.names import ProfileName
from instaslice.geometry.profiles import NO_ENGINES, Engines, Placement, Profile

Provenance = Literal["measured", "inferred", "unknown", "discovered"]
"""How the placements are known: read from such a GPU, concluded from its family, not at all, or read just now."""

MOST_SUGGESTED: Final = 4
SIMILAR_FAMILY: Final = 0.7
"""How much of `h300` and `h200` is the same, at least: three of four letters."""


@dataclass(frozen=True)
class Model:
    """A GPU type and its geometry. Two models with the same profiles at the same starts have the same states.

    `memory_slices` is 0 where the placements are unknown. `engines` is what the whole GPU has.
    """

    name: str
    memory_slices: int
    compute_slices: int
    profiles: tuple[Profile, ...]
    memory_gb: int = 0
    engines: Engines = NO_ENGINES
    provenance: Provenance = "discovered"
    arch: str = ""
    products: tuple[str, ...] = ()
    pci_ids: tuple[str, ...] = ()
    toggle_needs_reset: bool | None = None
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @cached_property
    def _by_name(self) -> dict[str, Profile]:
        return {profile.name: profile for profile in self.profiles}

    def has(self, profile: str) -> bool:
        return profile in self._by_name

    def profile(self, name: str) -> Profile:
        """The profile of that name, also when it is written as a resource name. Raises UnknownProfile."""
        found = self._by_name.get(name) or self._by_name.get(str(ProfileName.parse(name)))
        if found is None:
            has = ", ".join(self._by_name)
            raise UnknownProfile(f"profile {name} does not exist on {self.name} (it has {has})")
        return found

    def placement(self, profile: str, start: int) -> Placement:
        """The placement of a profile at a start. Raises UnknownProfile where the profile may not start there."""
        found = self.profile(profile)
        if start not in found.starts:
            starts = ", ".join(map(str, found.starts)) or "nowhere known"
            raise UnknownProfile(f"{found.name} cannot start at {start} on {self.name} (it starts at {starts})")
        return Placement(found.name, start, found.size)

    def only(self, profiles: Iterable[str]) -> "Model":
        """The same GPU with fewer profiles: what an administrator allows, or what a count is about."""
        wanted = {self.profile(name).name for name in profiles}
        return replace(self, profiles=tuple(profile for profile in self.profiles if profile.name in wanted))


def named(name: str) -> Model:
    """A known model by name, product name or PCI id (`A100-40GB`, `NVIDIA A100-SXM4-40GB`, `0x20B010DE`).

    Upper and lower case are the same, and the beginning of a name will do where only one model has it (`H200`).
    Raises UnknownModel with the nearest names.
    """
    return _named(name, names())


def placeable(name: str) -> Model:
    """The same for a use that has no driver to ask where slices go: emulated GPUs, the simulator.

    Raises UnknownModel where the placements are not published too.
    """
    published = tuple(model.name for model in known() if model.memory_slices)
    found = _named(name, published)
    if found.name not in published:
        raise UnknownModel(
            f"the placements of {found.name} are not published; only its driver knows them. "
            f"Known are those of {', '.join(published)}"
        )
    return found


def _named(name: str, offered: tuple[str, ...]) -> Model:
    wanted = name.strip().lower()
    found = _index().get(wanted)
    if found is None and wanted:
        beginning = _beginning_with(wanted)
        found = beginning[0] if len(beginning) == 1 else None
    if found is None:
        near = _nearest(wanted, offered)
        meant = f"; did you mean {', '.join(near)}?" if len(near) < len(offered) else "."
        raise UnknownModel(f"no GPU model {name!r}{meant} Known are {', '.join(offered)}")
    return found


def _nearest(wanted: str, offered: tuple[str, ...]) -> list[str]:
    """By what stands before the first `-` where no name holds the word: `H300` is meant for an H200 rather than an A30,
    though whole names differ in more letters."""
    near = nearest(wanted, offered)
    if any(wanted in each.lower() for each in offered):
        return near
    families: dict[str, list[str]] = {}
    for name in offered:
        families.setdefault(name.lower().partition("-")[0], []).append(name)
    family = wanted.partition("-")[0]
    similar = [family] if family in families else difflib.get_close_matches(family, families, cutoff=SIMILAR_FAMILY)
    return [name for family in similar for name in families[family]][:MOST_SUGGESTED] or near


def _beginning_with(word: str) -> list[Model]:
    return [model for model in known() if model.name.lower().startswith(f"{word.lower()}-")]


def names() -> tuple[str, ...]:
    """The names of all known models, in the order of the file."""
    return tuple(model.name for model in known())


def short_names() -> dict[str, Model]:
    """Beginnings of names that only one model has (`H200`), which `named` understands as well."""
    words = [model.name.split("-") for model in known()]
    beginnings = {"-".join(parts[:count]) for parts in words for count in range(1, len(parts))}
    found = {each: _beginning_with(each) for each in sorted(beginnings - set(names()))}
    return {each: having[0] for each, having in found.items() if len(having) == 1}


@cache
def known() -> tuple[Model, ...]:
    """All known models."""
    text = resources.files(__package__).joinpath("models.json").read_bytes()
    facts = msgspec.json.decode(text, type=_Facts)
    return tuple(replace(model, sources=tuple(facts.sources[key] for key in model.sources)) for model in facts.models)


class _Facts(msgspec.Struct, forbid_unknown_fields=True):
    """The file: what the keys under `sources` stand for, and the models."""

    about: str
    sources: dict[str, str]
    models: tuple[Model, ...]


@cache
def _index() -> dict[str, Model]:
    index: dict[str, Model] = {}
    for model in known():
        for word in (model.name, *model.products, *model.pci_ids):
            index.setdefault(word.lower(), model)
    return index
