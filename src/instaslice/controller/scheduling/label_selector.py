"""Label selectors, compiled, with the semantics of Kubernetes."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from instaslice.kube.core import LabelSelector


class LabelRequirement(NamedTuple):
    """The label's value is, or is not, among `values`. With None, the label is present, or absent."""

    key: str
    positive: bool
    values: frozenset[str] | None

    @property
    def one_of(self) -> frozenset[str] | None:
        """The label has exactly one of these values; None if others are possible."""
        return self.values if self.positive else None

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.values is None:
            return (value is not None) is self.positive
        return (value in self.values) is self.positive

    def __str__(self) -> str:
        if self.values is None:
            return self.key if self.positive else f"!{self.key}"
        if len(self.values) == 1:
            return f"{self.key}{'=' if self.positive else '!='}{next(iter(self.values))}"
        return f"{self.key} {'in' if self.positive else 'notin'} ({','.join(sorted(self.values))})"


class LabelMatcher(NamedTuple):
    """All requirements have to match; without any, everything matches. Comparable and hashable."""

    requirements: tuple[LabelRequirement, ...]

    @property
    def matches_everything(self) -> bool:
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(each.matches(labels) for each in self.requirements)

    def with_values(self, labels: Mapping[str, str], keys: Iterable[str]) -> "LabelMatcher":
        """Also requires the same value for those of these keys that the labels have."""
        extra = [LabelRequirement(key, True, frozenset((labels[key],))) for key in keys if key in labels]
        return LabelMatcher(tuple(dict.fromkeys((*self.requirements, *extra)))) if extra else self

    def __str__(self) -> str:
        if self == NOTHING:
            return "of no selector"
        return ", ".join(map(str, self.requirements)) or "with any labels"


EVERYTHING: Final = LabelMatcher(())
NOTHING: Final = LabelMatcher((LabelRequirement("", True, frozenset()),))
"""No value is in an empty set."""


def label_matcher(found: LabelSelector | None) -> LabelMatcher:
    """None selects nothing, an empty selector everything. An unknown operator selects nothing."""
    if found is None:
        return NOTHING
    requirements = [
        LabelRequirement(key, True, frozenset((value,))) for key, value in sorted((found.match_labels or {}).items())
    ]
    for each in found.match_expressions or ():
        match each.operator:
            case "In" | "NotIn" as operator:
                requirements.append(LabelRequirement(each.key, operator == "In", frozenset(each.values or ())))
            case "Exists" | "DoesNotExist" as operator:
                requirements.append(LabelRequirement(each.key, operator == "Exists", None))
            case _:
                return NOTHING
    return LabelMatcher(tuple(requirements))
