"""Where the kubelet, the runtime and the agent keep their files on a node. The administrator may choose each folder."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NodePaths:
    """Three folders; inside its own the kubelet uses fixed names."""

    kubelet: Path = Path("/var/lib/kubelet")
    cdi: Path = Path("/var/run/cdi")
    state: Path = Path("/var/lib/instaslice")

    @property
    def plugins(self) -> Path:
        return self.kubelet / "device-plugins"

    @property
    def pod_resources(self) -> Path:
        return self.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def assignments(self) -> Path:
        # The name is older than the class: an upgraded agent has to find what the pods that run hold.
        return self.state / "seats.json"
