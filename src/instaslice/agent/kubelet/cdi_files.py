"""The CDI files of one node: one for each device id that is bound to an existing slice.

A file is written only when the holder of its id is known. A container that starts before that is refused by the runtime
and retried by the kubelet; one that restarts later finds the same file, whether the agent runs or not.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any

from instaslice.agent.kubelet import cdi
from instaslice.agent.kubelet.cdi import CdiFolder, Edits
from instaslice.agent.kubelet.device_ids import DeviceId
from instaslice.agent.kubelet.wiring import Wiring
from instaslice.api import names
from instaslice.api.instaslice import Allocation
from instaslice.drivers import DriverError, Slice
from instaslice.drivers.executor import GpuExecutor
from instaslice.kube.clock import Clock

RETRY_SECONDS = 1.0

AllocatedSlice = tuple[Allocation, Slice]
"""An allocation and the slice that exists for it."""


class CdiFiles(CdiFolder):
    """Keeps the files true."""

    def __init__(
        self,
        folder: Path,
        wiring: Wiring,
        *,
        executor: GpuExecutor,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        warn: Callable[[str], None],
        described: Callable[[], None],
    ) -> None:
        """A driver that blocks describes slices in a task of its own, started by `spawn`; `described` says that one has
        ended, and `warn` why it failed."""
        super().__init__(folder)
        self._wiring, self._executor, self._clock = wiring, executor, clock
        self._spawn, self._warn, self._described = spawn, warn, described
        self._edits: dict[Slice, Edits] = {}
        self._pending: set[Slice] = set()

    def update(
        self, bound: Mapping[DeviceId, AllocatedSlice], slices: Sequence[AllocatedSlice], keep: Set[DeviceId]
    ) -> None:
        """Have files for `bound` and no other ids, except those to `keep` as they are. `slices` are all of the node:
        a file also names the other slices of its container."""
        files = {}
        for device, (allocation, held) in bound.items():
            edits = self._edits_for(held)
            if edits is not None:
                files[device] = _file(device, allocation, edits, slices)
        self.replace(files, keep=keep)
        exist = {held for _, held in slices}
        self._edits = {held: edits for held, edits in self._edits.items() if held in exist}

    def _edits_for(self, held: Slice) -> Edits | None:
        """What the container of a slice needs; None until a driver that blocks has described it."""
        if held not in self._edits and self._wiring.immediate:
            self._edits[held] = self._wiring.edits(held)
        elif held not in self._edits and held not in self._pending:
            self._pending.add(held)
            self._spawn(self._describe(held))
        return self._edits.get(held)

    async def _describe(self, held: Slice) -> None:
        edits = partial(self._wiring.edits, held)
        try:
            self._edits[held] = await self._executor.call(held.gpu, "describe a slice", edits)
        except (DriverError, OSError) as error:
            self._warn(f"{held.placement} of GPU {held.gpu} cannot be given to its container: {error}")
            await self._clock.sleep(RETRY_SECONDS)
        self._pending.discard(held)
        self._described()


def _file(device: DeviceId, allocation: Allocation, edits: Edits, slices: Sequence[AllocatedSlice]) -> bytes:
    of_pod = [(each, held) for each, held in slices if each.pod.uid == allocation.pod.uid]
    number = next(n for n, (each, _) in enumerate(of_pod) if each == allocation)
    uuids = [str(held.mig_uuid) for each, held in of_pod if each.container == allocation.container]
    env = {
        **edits.env,
        # The same in every file of a container: where two devices set one variable, the runtime keeps the last.
        "INSTASLICE_MIG_UUIDS": ",".join(uuids),
        f"INSTASLICE_MIG_UUID_{number}": str(of_pod[number][1].mig_uuid),
        f"INSTASLICE_MIG_PROFILE_{number}": allocation.profile,
    }
    pod = f"{allocation.pod.namespace}/{allocation.pod.name}"
    notes = {f"{names.GROUP}/allocation": allocation.id, f"{names.GROUP}/pod": pod}
    return cdi.specification(device, Edits(env, edits.nodes, edits.mounts, edits.hooks), notes)
