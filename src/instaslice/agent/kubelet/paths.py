"""Where things are on a node that has a kubelet. All of it is for the administrator to say."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NodePaths:
    """Three folders; those of the kubelet have fixed names inside its own."""

    kubelet: Path = Path("/var/lib/kubelet")
    cdi: Path = Path("/var/run/cdi")
    state: Path = Path("/var/lib/instaslice")

    @property
    def plugins(self) -> Path:
        return self.kubelet / "device-plugins"

    @property
    def pods(self) -> Path:
        return self.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def book(self) -> Path:
        return self.state / "seats.json"
