"""The network of a real node: a bridge on the machine, with an unused range of addresses."""

import ipaddress
from pathlib import Path

import msgspec

from instaslice.local import system
from instaslice.local.errors import LocalError
from instaslice.local.layout import Layout

SUBNETS = ipaddress.IPv4Network("10.208.0.0/12")


class Network(msgspec.Struct, frozen=True):
    """The bridge of a real node. It is recorded before it is created, so that `down` finds it."""

    bridge: str
    address: str
    """The bridge's address with its prefix: the node's own address and the pods' gateway."""

    @property
    def ip(self) -> str:
        return self.address.split("/")[0]

    @classmethod
    def choose(cls, layout: Layout) -> "Network":
        """A bridge name that belongs to this directory alone, and a /24 that no interface of this machine is in."""
        output = system.run("ip", "-json", "-4", "address", "show")
        used = [
            ipaddress.IPv4Network(f"{each['local']}/{each['prefixlen']}", strict=False)
            for link in msgspec.json.decode(output)
            for each in link.get("addr_info", ())
        ]
        candidates = list(SUBNETS.subnets(new_prefix=24))
        first = int(layout.short_hash, 16) % len(candidates)
        for subnet in candidates[first:] + candidates[:first]:
            if not any(subnet.overlaps(other) for other in used):
                return cls(f"isl-{layout.short_hash}", f"{subnet[1]}/24")
        raise LocalError(f"no free /24 in {SUBNETS} for a bridge; end other clusters")

    def make(self) -> None:
        """Safe to repeat."""
        if not self._exists:
            system.run("ip", "link", "add", self.bridge, "type", "bridge")
        system.run("ip", "address", "replace", self.address, "dev", self.bridge)
        system.run("ip", "link", "set", self.bridge, "up")

    def remove(self) -> None:
        """Safe to repeat."""
        if self._exists:
            system.run("ip", "link", "delete", self.bridge)

    @property
    def _exists(self) -> bool:
        return (Path("/sys/class/net") / self.bridge).exists()
