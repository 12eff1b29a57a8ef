"""One node that an agent serves: its GPUs, its kubelet if it has one, and the writes of its status."""

from collections.abc import Hashable
from dataclasses import dataclass

import msgspec

from instaslice.agent import report
from instaslice.agent.gpu_source import ApplyAnnotations, Warn
from instaslice.agent.kubelet.node_devices import NodeDevices
from instaslice.agent.node import NodeAgent
from instaslice.api.instaslice import Instaslice, InstasliceStatus
from instaslice.api.reasons import ServingReason
from instaslice.kube.clock import Clock
from instaslice.kube.coalescing_writer import CoalescingWriter
from instaslice.kube.core import Node

RESYNC_SECONDS = 60.0
"""Between two checks of hardware and status that no event asked for: somebody may have changed them by hand."""
LAZY_SECONDS = 5.0
"""Between two writes that nobody waits for, such as which spec was seen: they would double our writes."""
SILENCE_SECONDS = 10.0
"""How long no kubelet listens before people are warned. Each start of agent or kubelet takes seconds of registering."""


@dataclass
class ServedNode:
    """`devices` only where the node is the one that we run on."""

    node: Node
    gpus: Hashable
    agent: NodeAgent
    apply_annotations: ApplyAnnotations
    advertised: dict[str, str]
    warn: Warn
    writer: CoalescingWriter[Instaslice, InstasliceStatus]
    devices: NodeDevices | None
    lease: str | None
    """The Lease that shows that this process runs, where no kubelet does."""
    clock: Clock
    resynced_at: float
    status: InstasliceStatus | None = None
    """As it is now, whether or not it has been written."""
    reported: bool = False
    """Whether this process has written a status, or found it as it is."""
    silent_since: float | None = None
    """When we last saw the kubelet stop listening; None while it listens."""
    silence_warned: bool = False

    def serves(self, node: Node, gpus: Hashable, instaslice: Instaslice) -> bool:
        """Whether all three are still the same."""
        mine = self.node.metadata.uid, self.gpus, self.writer.uid
        return mine == (node.metadata.uid, gpus, instaslice.metadata.uid)

    async def reconcile(self, node: Node, instaslice: Instaslice) -> float:
        """Do what is due and report it; the seconds until something will be due again."""
        self.apply_annotations(node)
        self._resync(instaslice)
        self.agent.set_allocations(instaslice)
        # Before as well: a slice is taken from its container first, and destroyed then.
        self._update_devices(instaslice)
        self.agent.advance()
        self._update_devices(instaslice)
        waits = [self._warn_of_silence(), await self._report(), self.agent.next_due()]
        waits.append(max(0.0, self.resynced_at + RESYNC_SECONDS - self.clock.monotonic()))
        return min(wait for wait in waits if wait is not None)

    def _resync(self, instaslice: Instaslice) -> None:
        """Once in a while: are hardware and object as we think they are?"""
        now = self.clock.monotonic()
        if now - self.resynced_at < RESYNC_SECONDS:
            return
        self.resynced_at = now
        self.agent.reread()
        if instaslice.status != self.writer.written:
            self.writer.written = None

    def _update_devices(self, instaslice: Instaslice) -> None:
        if self.devices is None:
            return
        slices = self.agent.slices
        self.devices.update(instaslice.spec.allocations, report.usable(slices), report.foreign(slices), self.agent.gpus)

    def _warn_of_silence(self) -> float | None:
        """Warn once of a kubelet that has not listened for a while; the seconds until that is due. The condition does
        not wait for it: a pod that is sent here meanwhile would be refused."""
        silence = self.devices.kubelet_silence if self.devices is not None else ""
        if not silence:
            self.silent_since, self.silence_warned = None, False
            return None
        now = self.clock.monotonic()
        if self.silent_since is None:
            self.silent_since = now
        if self.silence_warned:
            return None
        remaining = self.silent_since + SILENCE_SECONDS - now
        if remaining > 0:
            return remaining
        self.silence_warned = True
        self.warn(ServingReason.KUBELET_SILENT, "Check", silence)
        return None

    async def _report(self) -> float | None:
        """Write what has changed; the seconds to wait where that can wait."""
        status = self.agent.status(self.devices.kubelet_silence if self.devices else "")
        status = msgspec.structs.replace(status, lease=self.lease)
        if self.devices is not None:
            status = report.with_holders(status, self.devices.holders.pod_of)
        self.status = status
        ops = report.patch(self.writer.written, status)
        if not ops:
            self.reported = True
            return None
        delay = self._delay(status)
        if delay > 0:
            return delay
        before = self.writer.written
        await self.writer.patch(status, ops)
        self.reported = True
        for each in report.worsened(before, status):
            if each.reason != ServingReason.KUBELET_SILENT:
                self.warn(each.reason, "Check", each.message)
        return None

    def _delay(self, status: InstasliceStatus) -> float:
        """How long further changes may gather. A report that leaves nothing in progress goes immediately: the next
        comes only after the controller has written again, and it gathers as well."""
        now, writer = self.clock.monotonic(), self.writer
        if not report.urgent(writer.written, status):
            return writer.wrote_at + LAZY_SECONDS - now
        return writer.free_at - now if report.in_progress(status) else 0.0
