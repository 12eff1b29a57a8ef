"""Faults of emulated GPUs, as written in an annotation of a node: `0 lost; 1 held 4`. `drivers.faults` has the effects.

    0 lost                  GPU 0 has failed: every call is refused, and it is unhealthy
    0 lost Xid 48: …        the same, for that reason
    0 hang                  calls for GPU 0 do not return
    0 refuse                every create on GPU 0 finds its slot taken
    0 refuse 3              the next three do
    0 held 4                the slice that begins at memory slice 4 is in use
    0 monitored 4           somebody holds only its GPU instance, as a monitor does

A fault lasts until the annotation is changed or removed; the count of `refuse 3` begins when it is written, and again
when the agent restarts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from instaslice.drivers import GpuUuid
from instaslice.drivers.faults import FALLEN, Faults, SliceHold
from instaslice.errors import BadInput

_FAULT = re.compile(r"(?P<gpu>\d+)\s+(?P<kind>lost|hang|refuse|held|monitored)(?:\s+(?P<rest>.+))?")
_EXAMPLE = "write `0 lost`, `0 lost REASON`, `0 hang`, `0 refuse`, `0 refuse 3`, `0 held 4` or `0 monitored 4`"
EVERY = 10**9
"""Creates that are refused where no number is given."""

HOLDER = "a fault that was asked for"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the GPU with this index."""

    gpu: int
    kind: str
    message: str = ""
    number: int = 0


def parse(text: str) -> tuple[Fault, ...]:
    """The faults in an annotation; semicolons between them. Raises BadInput."""
    return tuple(_fault(part) for part in map(str.strip, text.split(";")) if part)


def apply(wanted: Sequence[Fault], faults: Faults, gpus: Sequence[GpuUuid]) -> None:
    """Have these faults and no others. Raises BadInput for a GPU that the node does not have."""
    for fault in wanted:
        if fault.gpu >= len(gpus):
            raise BadInput(f"fault on GPU {fault.gpu}: the node has {len(gpus)}, counted from 0")
    by: dict[str, list[tuple[GpuUuid, Fault]]] = {}
    for fault in wanted:
        by.setdefault(fault.kind, []).append((gpus[fault.gpu], fault))
    faults.replace(
        refusals={gpu: fault.number for gpu, fault in by.get("refuse", ())},
        holds={
            (gpu, fault.number): SliceHold((HOLDER,), monitor=kind == "monitored")
            for kind in ("held", "monitored")
            for gpu, fault in by.get(kind, ())
        },
        unhealthy={gpu: fault.message or FALLEN for gpu, fault in by.get("lost", ())},
        hanging=[gpu for gpu, _ in by.get("hang", ())],
    )


def _fault(part: str) -> Fault:
    found = _FAULT.fullmatch(part)
    if found is None:
        raise BadInput(f"{part!r} is not a fault; {_EXAMPLE}")
    gpu, kind, rest = int(found["gpu"]), found["kind"], found["rest"] or ""
    match kind:
        case "lost":
            return Fault(gpu, kind, message=rest)
        case "hang" if not rest:
            return Fault(gpu, kind)
        case "refuse" if not rest:
            return Fault(gpu, kind, number=EVERY)
        case "refuse" | "held" | "monitored" if rest.isdecimal():
            return Fault(gpu, kind, number=int(rest))
    raise BadInput(f"{part!r} is not a fault; {_EXAMPLE}")
