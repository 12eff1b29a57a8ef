"""Host ports of pods. Follows NodePorts: no two pods of a node may open the same port."""

from typing import Final, NamedTuple

from instaslice.api.pods import running_containers
from instaslice.controller.scheduling.exclusive_use import ExclusiveUse
from instaslice.kube.core import Pod

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
    return tuple(
        HostPort(port.host_ip or ALL, port.protocol or "TCP", port.host_port)
        for each in running_containers(pod)
        for port in each.ports or ()
        if port.host_port > 0
    )


class PortsInUse(ExclusiveUse[HostPort]):
    def __init__(self) -> None:
        super().__init__(host_ports, HostPort.conflicts, lambda port: f"host port {port} is in use")
