"""An ask by memory: so many GB in one slice, of whatever profile holds them. GB are those of profile names."""

from dataclasses import dataclass

from instaslice.geometry.profiles import Profile


@dataclass(frozen=True, slots=True)
class MemoryAsk:
    """At least so many GB and, where `compute` is given, so many compute slices."""

    gb: int
    compute: int = 0

    def met_by(self, profile: Profile) -> bool:
        """Whether a slice of the profile is enough. One with media extensions and the like is never given: such a GPU
        has few of them, for those who ask for them by name."""
        plain = profile.name == f"{profile.compute}g.{profile.gb}gb"
        return plain and profile.gb >= self.gb and profile.compute >= self.compute

    @property
    def described(self) -> str:
        """For a sentence."""
        return f"{self.gb} GB or more" + (f" and {self.compute} compute slices or more" if self.compute else "")

    def __str__(self) -> str:
        """In place of a profile that is not chosen yet."""
        return f"{self.gb}gb or more" + (f" with {self.compute}g or more" if self.compute else "")
