"""Label selectors as Kubernetes reads them."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from instaslice.kube.core import LabelSelector


class Line(NamedTuple):
    """One requirement: the label's value is, or is not, among these; with no values, the label is there, or not."""

    key: str
    wanted: bool
    values: frozenset[str] | None

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.values is None:
            return (value is not None) is self.wanted
        return (value in self.values) is self.wanted

    def __str__(self) -> str:
        if self.values is None:
            return self.key if self.wanted else f"!{self.key}"
        if len(self.values) == 1:
            return f"{self.key}{'=' if self.wanted else '!='}{next(iter(self.values))}"
        return f"{self.key} {'in' if self.wanted else 'notin'} ({','.join(sorted(self.values))})"


class Selector(NamedTuple):
    """All of these lines; with none it selects everything. Equal ones are equal and hash alike."""

    lines: tuple[Line, ...]

    @property
    def everything(self) -> bool:
        return not self.lines

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(line.holds(labels) for line in self.lines)

    def with_values(self, labels: Mapping[str, str], keys: Iterable[str]) -> "Selector":
        """Of these keys, those that the labels have must have the same value too."""
        more = [Line(key, True, frozenset((labels[key],))) for key in keys if key in labels]
        return Selector(tuple(dict.fromkeys((*self.lines, *more)))) if more else self

    def __str__(self) -> str:
        if self == NOTHING:
            return "of no selector"
        return ", ".join(map(str, self.lines)) or "with any labels"


EVERYTHING: Final = Selector(())
NOTHING: Final = Selector((Line("", True, frozenset()),))
"""No value is among none."""


def selector(found: LabelSelector | None) -> Selector:
    """None selects nothing, an empty one everything. An operator that we do not know selects nothing either."""
    if found is None:
        return NOTHING
    lines = [Line(key, True, frozenset((value,))) for key, value in sorted((found.match_labels or {}).items())]
    for each in found.match_expressions or ():
        match each.operator:
            case "In" | "NotIn" as operator:
                lines.append(Line(each.key, operator == "In", frozenset(each.values or ())))
            case "Exists" | "DoesNotExist" as operator:
                lines.append(Line(each.key, operator == "Exists", None))
            case _:
                return NOTHING
    return Selector(tuple(lines))
