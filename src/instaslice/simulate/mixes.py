"""Which pods, in which shares: read from text, or built from the profiles of a fleet."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from instaslice.errors import BadInput
from instaslice.geometry import ProfileName
from instaslice.simulate.errors import BadWorkload
from instaslice.simulate.fleets import FleetPlan
from instaslice.simulate.jobs import Wants

_WANT = re.compile(r"(?:(?P<count>\d+)x)?(?P<profile>\d+g\..+)")
MOST_SLICES: Final = 64
"""Slices of one pod; beyond it is a typing error."""


class Mix(NamedTuple):
    """Pods and their shares, which need not sum to 1."""

    pods: tuple[Wants, ...]
    shares: tuple[float, ...]

    def slices(self) -> dict[str, float]:
        """Slices of each profile that one pod asks for on average."""
        total = sum(self.shares)
        asked: dict[str, float] = defaultdict(float)
        for wants, share in zip(self.pods, self.shares, strict=True):
            for want in wants:
                asked[want] += share / total
        return dict(asked)


_BY_SIZE: Mapping[str, Callable[[int, Sequence[int]], float]] = {
    "uniform": lambda size, sizes: 1.0,
    "small": lambda size, sizes: 1.0 / size,
    "big": lambda size, sizes: float(size),
    "bimodal": lambda size, sizes: float(size in (min(sizes), max(sizes))),
}


def names() -> tuple[str, ...]:
    """The mixes that need no list of profiles."""
    return tuple(_BY_SIZE)


def read(text: str, plan: FleetPlan) -> Mix:
    """A named mix, or `1g.5gb=4,2x2g.10gb=1,1g.5gb/3g.20gb=1`: pods with their shares. Raises BadWorkload.

    Named mixes are over the profiles without an extra (`+me`): those would differ only in engines.
    """
    if text in _BY_SIZE:
        sizes = {name: size for name, size in plan.sizes.items() if not ProfileName.parse(name).extra}
        share = _BY_SIZE[text]
        chosen = {name: share(size, tuple(sizes.values())) for name, size in sizes.items()}
        return Mix(tuple((name,) for name, s in chosen.items() if s), tuple(s for s in chosen.values() if s))
    shares: dict[Wants, float] = defaultdict(float)
    for part in text.split(","):
        pod, _, share_text = part.strip().partition("=")
        shares[_wants(pod, text, plan)] += _share(share_text, text)
    if not any(shares.values()):
        raise BadWorkload(f"--mix {text!r}: every share is 0")
    return Mix(tuple(shares), tuple(shares.values()))


def _wants(pod: str, text: str, plan: FleetPlan) -> Wants:
    wants: list[str] = []
    for part in pod.split("/"):
        found = _WANT.fullmatch(part.strip())
        if found is None:
            known = ", ".join(names())
            raise BadWorkload(f"--mix {text!r}: {part!r} is no profile; write 1g.5gb=4,2x2g.10gb=1 or one of {known}")
        try:
            wants += [plan.profile(found["profile"])] * int(found["count"] or 1)
        except BadInput as error:
            raise BadWorkload(f"--mix {text!r}: {error}") from None
    if not 0 < len(wants) <= MOST_SLICES:
        raise BadWorkload(f"--mix {text!r}: a pod of {len(wants)} slices; between 1 and {MOST_SLICES} can be asked for")
    return tuple(wants)


def _share(text: str, whole: str) -> float:
    try:
        share = float(text or 1)
    except ValueError:
        raise BadWorkload(f"--mix {whole!r}: share {text!r} is not a number") from None
    if not 0 <= share < float("inf"):
        raise BadWorkload(f"--mix {whole!r}: share {text!r} is below 0 or not finite")
    return share
