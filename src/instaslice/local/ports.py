"""Free ports on loopback, kept apart between the clusters of one machine."""

import random
import socket
from collections.abc import Iterable

from instaslice.errors import BadInput
from instaslice.local.errors import LocalError

RANGE = range(20000, 32000)
"""Below the ports that kernels use for outgoing connections, so that none is taken between choice and use."""


def free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(count: int, taken: Iterable[int]) -> list[int]:
    """`count` different free ports outside `taken` (the ports that other clusters have recorded, running or not)."""
    avoid = set(taken)
    candidates = [port for port in RANGE if port not in avoid]
    random.shuffle(candidates)
    chosen: list[int] = []
    for port in candidates:
        if len(chosen) == count:
            break
        if free(port):
            chosen.append(port)
    if len(chosen) == count:
        return chosen
    raise LocalError(f"no {count} free ports on 127.0.0.1 between {RANGE.start} and {RANGE.stop}; end other clusters")


def require(port: int) -> int:
    if not 1 <= port <= 65535:
        raise BadInput(f"port {port}: not between 1 and 65535")
    if not free(port):
        raise BadInput(f"port {port} on 127.0.0.1 is in use; choose another with --port, or none for a free one")
    return port
