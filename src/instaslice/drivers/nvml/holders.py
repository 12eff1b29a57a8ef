"""Which processes keep a slice from being destroyed.

A program that uses a slice holds its capability devices open, `/dev/nvidia-caps/nvidia-cap<N>`: one for the GPU
instance, one for the compute instance. The kernel shows N under `/proc/driver`, and which process has it open under
`/proc`. The agent needs the host's process ids for that (`hostPID`).
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

_MINOR = re.compile(r"DeviceFileMinor:\s*(\d+)")


def capability_minors(proc: Path, gpu_minor: int, gi: int, ci: int | None) -> tuple[int, ...]:
    """N of the slice's `nvidia-cap<N>`: the GPU instance's, then the compute instance's. Those that exist."""
    instance = proc / "driver/nvidia/capabilities" / f"gpu{gpu_minor}" / "mig" / f"gi{gi}"
    files = [instance / "access", *([instance / f"ci{ci}" / "access"] if ci is not None else [])]
    return tuple(minor for file in files if (minor := _minor(file)) is not None)


def holding(proc: Path, capabilities: Iterable[int]) -> tuple[int, ...]:
    """Processes, except our own, that have one of these capabilities open."""
    devices = {f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in capabilities}
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal())
    return tuple(pid for pid in pids if pid != os.getpid() and devices & _open_files(proc / str(pid)))


def described(proc: Path, pids: Iterable[int]) -> tuple[str, ...]:
    """For people: `pid 4711 (python)`."""
    return tuple(f"pid {pid} ({name})" if (name := _name(proc / str(pid))) else f"pid {pid}" for pid in pids)


def _open_files(process: Path) -> set[str]:
    found = set()
    try:
        for entry in os.scandir(process / "fd"):
            found.add(os.readlink(entry.path))  # noqa: PTH115 - a Path for each open file of the machine costs too much
    except OSError:
        pass  # it has ended meanwhile, or belongs to another user: it cannot be reported
    return found


def _minor(file: Path) -> int | None:
    try:
        found = _MINOR.search(file.read_text())
    except OSError:
        return None  # the instance is gone, or this driver has no such file
    return int(found[1]) if found else None


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return ""
