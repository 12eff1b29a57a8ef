"""The cgroup of a cluster, in which the pods of its real node run: created, and removed with everything in it."""

import os
import time
from pathlib import Path

from instaslice.local.errors import LocalError

ROOT = Path("/sys/fs/cgroup")


def make(name: str) -> None:
    """Safe to repeat."""
    for folder in _folders(name):
        folder.mkdir(exist_ok=True)
        if folder.parent.name != "cpuset":
            continue
        # A new cpuset on cgroup v1 is empty and accepts no process until its processors and memory are set.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not (folder / file).read_text().strip():
                (folder / file).write_text((folder.parent / file).read_text())


def remove(name: str) -> None:
    """Every process in it must have ended; safe to repeat. Raises LocalError if something still runs."""
    for top in _folders(name):
        _remove(top)


def _folders(name: str) -> list[Path]:
    """Our cgroup in every hierarchy: one on cgroup v2, one per controller on v1, none without cgroups."""
    if not ROOT.is_dir():
        return []
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT / name]
    return [hierarchy / name for hierarchy in ROOT.iterdir() if hierarchy.is_dir() and not hierarchy.is_symlink()]


def _remove(top: Path) -> None:
    if not top.exists():
        return
    folders = [Path(path) for path, _, _ in os.walk(top, topdown=False)]
    for folder in folders:
        # The kernel releases a cgroup a moment after its last process.
        for attempt in range(100):
            try:
                folder.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                if attempt == 99:
                    raise LocalError(f"{folder}: cannot be removed, something still runs in it") from None
                time.sleep(0.05)
