"""The directories of a cluster, one per cluster, so that several can coexist.

`$XDG_STATE_HOME/instaslice/clusters/NAME` holds everything that a cluster writes.
`$XDG_CACHE_HOME/instaslice` holds what clusters share and can obtain again: the programs.
"""

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from instaslice.errors import BadInput


def _home(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    return Path(given) if given.startswith("/") else Path.home() / default


def cache() -> Path:
    return _home("XDG_CACHE_HOME", ".cache") / "instaslice"


def clusters() -> Path:
    return _home("XDG_STATE_HOME", ".local/state") / "instaslice" / "clusters"


@dataclass(frozen=True)
class Layout:
    """The paths of one cluster."""

    root: Path

    @classmethod
    def of(cls, name: str) -> "Layout":
        # The name becomes part of a bridge, a cgroup and a node name.
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?", name):
            raise BadInput(
                f"cluster name {name!r}: use at most 30 lower-case letters, digits and '-', not at either end"
            )
        return cls(clusters() / name)

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def short_hash(self) -> str:
        """Eight hexadecimal digits that identify this directory: clusters in different state homes may share a name."""
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:8]

    @property
    def record(self) -> Path:
        return self.root / "cluster.json"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def gpus(self) -> Path:
        """The state of the emulated GPUs."""
        return self.root / "gpus"

    @property
    def node(self) -> Path:
        """The files of the real kubelet and its containerd."""
        return self.root / "node"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One `up` or `down` of this cluster at a time. The lock is beside the directory that `down` removes."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        with lock(self.root.parent / f".{self.name}.lock"):
            yield


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the file lock `path`. The kernel releases it when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
