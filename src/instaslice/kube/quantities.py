"""Kubernetes quantities: `500m`, `1.5Gi`, `2e3`. Exact integers, rounded as Kubernetes rounds them.

The server keeps nothing finer than a billionth, so a sum of billionths is exact whatever the suffixes were. Rounding
comes last: kube-scheduler adds the containers of a pod first and rounds the sum up.
"""

import re
from functools import lru_cache

from instaslice.kube.errors import BadQuantity

NANO = 10**9
_NANO_OF_A_MILLI = 10**6

MAX = 2**63 - 1
"""Where Kubernetes caps a quantity, in whole units. It keeps `1e999999` from becoming a number of a million digits."""

_TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,9}))?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def whole(text: str | int) -> int:
    """In whole units, rounded up: how everything but CPU is counted. Raises BadQuantity."""
    return round_up(nano(text), NANO)


def counted(name: str, billionths: int) -> int:
    """A sum of `nano`s in the unit of its resource: milli-cores for `cpu`, whole units for every other name."""
    return round_up(billionths, _NANO_OF_A_MILLI if name == "cpu" else NANO)


# The same few texts stand in every pod of a cluster.
@lru_cache(maxsize=4096)
def nano(text: str | int) -> int:
    """In billionths, exact but for what is smaller, which counts as one. Raises BadQuantity."""
    found = _TEXT.fullmatch(text if isinstance(text, str) else str(text))
    if found is None or not (found[2] or found[3]):
        raise BadQuantity(f"{text!r} is not a quantity; write a number like 2, 500m, 1.5Gi or 2e3")
    sign, before, after, suffix, exponent = found.groups("")
    digits, size = int(before + after or "0"), -len(after) + 9
    if suffix in _BINARY:
        digits <<= _BINARY[suffix]
    else:
        size += int(exponent) if exponent else _DECIMAL[suffix]
    # Past these bounds the cap or a single billionth is the answer for any digits that fit into an object.
    most = MAX * NANO
    if digits == 0:
        amount = 0
    elif size >= 0:
        amount = most if size > 60 else min(most, digits * 10**size)
    else:
        amount = 1 if -size > len(before) + len(after) + 40 else min(most, round_up(digits, 10**-size))
    return -amount if sign == "-" else amount


def round_up(amount: int, unit: int) -> int:
    """How many units hold the amount; a negative one grows away from zero, as in Kubernetes."""
    return -(-amount // unit) if amount >= 0 else amount // unit


def humanized(name: str, amount: int, *, up: bool) -> str:
    """An amount of a resource for people: `500m` of CPU, `12.5Gi` of memory, plain numbers of anything else.

    Memory is rounded to a tenth, `up` or down: a wanted amount up and a free one down look alike only if it fits.
    """
    if name == "cpu":
        return f"{amount}m" if amount % 1000 else f"{amount // 1000}"
    if not (name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")) or amount < 1024:
        return str(amount)
    suffix, size = next((suffix, 1 << power) for suffix, power in reversed(_BINARY.items()) if 1 << power <= amount)
    tenths = -(-amount * 10 // size) if up else amount * 10 // size
    return f"{tenths // 10}.{tenths % 10}{suffix}" if tenths % 10 else f"{tenths // 10}{suffix}"
