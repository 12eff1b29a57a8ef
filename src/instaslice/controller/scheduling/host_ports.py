"""Host ports of pods. Follows NodePorts: no two pods of a node may open the same port."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from instaslice.kube.core import Node, Pod
from instaslice.placement import NodeName

ALL: Final = "0.0.0.0"  # noqa: S104  the default hostIP of a pod; we do not listen there


class HostPort(NamedTuple):
    ip: str
    protocol: str
    number: int

    def conflicts(self, other: "HostPort") -> bool:
        same = (self.protocol, self.number) == (other.protocol, other.number)
        return same and (self.ip == other.ip or ALL in (self.ip, other.ip))

    def __str__(self) -> str:
        where = "" if self.ip == ALL else f" of {self.ip}"
        return f"{self.number}/{self.protocol}{where}"


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Ports of containers and sidecars. Init containers have ended before those start."""
    spec = pod.spec
    running = [*(each for each in spec.init_containers or () if each.sidecar), *(spec.containers or ())]
    return tuple(
        HostPort(port.host_ip or ALL, port.protocol or "TCP", port.host_port)
        for each in running
        for port in each.ports or ()
        if port.host_port > 0
    )


class PortsInUse:
    def __init__(self) -> None:
        self._on: dict[NodeName, dict[str, tuple[HostPort, ...]]] = {}

    def add(self, pod: Pod, node: NodeName) -> None:
        if ports := host_ports(pod):
            self._on.setdefault(node, {})[pod.metadata.uid] = ports

    def remove(self, pod: Pod, node: NodeName) -> None:
        used = self._on.get(node)
        if used is not None and used.pop(pod.metadata.uid, None) is not None and not used:
            del self._on[node]

    def pre_filter(self, pod: Pod) -> "PortVerdict | None":
        """None for a pod without host ports."""
        wanted = host_ports(pod)
        return PortVerdict(wanted, pod.metadata.uid, self._on) if wanted else None


@dataclass(slots=True)
class PortVerdict:
    wanted: tuple[HostPort, ...]
    uid: str
    used: Mapping[NodeName, Mapping[str, tuple[HostPort, ...]]]

    def refusal(self, node: Node, *, emptied: bool = False) -> str | None:
        """Names a port that another pod there uses."""
        used = self.used.get(NodeName(node.metadata.name))
        if not used or emptied:
            return None
        others = [port for uid, ports in used.items() if uid != self.uid for port in ports]
        conflict = next((port for port in self.wanted if any(port.conflicts(other) for other in others)), None)
        return f"host port {conflict} is in use" if conflict is not None else None
