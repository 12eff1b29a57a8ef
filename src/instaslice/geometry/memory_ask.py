"""An ask by memory: so many GB in one slice, of whatever profile holds them. GB are those of profile names."""

from dataclasses import dataclass

from instaslice.geometry.errors import UnknownProfile
from instaslice.geometry.names import ProfileName


@dataclass(frozen=True, slots=True)
class MemoryAsk:
    """At least so many GB and, where `compute` is given, so many compute slices."""

    gb: int
    compute: int = 0

    def met_by(self, profile: str) -> bool:
        """Whether a slice of the profile, by its name, is enough. One with media extensions and the like is never
        given: a GPU has few of them, for those who ask for them by name."""
        try:
            name = ProfileName.parse(profile)
        except UnknownProfile:
            return False
        return not name.extra and name.gb >= self.gb and name.compute >= self.compute

    @property
    def described(self) -> str:
        """For a sentence."""
        return f"{self.gb} GB or more" + (f" and {self.compute} compute slices or more" if self.compute else "")

    def __str__(self) -> str:
        """In place of a profile that is not chosen yet."""
        return f"{self.gb}gb or more" + (f" with {self.compute}g or more" if self.compute else "")
