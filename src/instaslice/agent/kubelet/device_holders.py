"""Who holds which device id: learned from the kubelet, and kept in a file over restarts of the agent.

The file is written before the kubelet gets its answer to Allocate.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

import grpc.aio
import msgspec

from instaslice.agent.kubelet import pod_resources
from instaslice.agent.kubelet.device_ids import (
    DeviceAssignments,
    DeviceHolder,
    DeviceId,
    PodSlice,
    SliceAddress,
    described,
    kind_of,
)
from instaslice.agent.kubelet.device_plugin import NoSlice
from instaslice.agent.kubelet.paths import NodePaths
from instaslice.agent.kubelet.pod_resources import Holders
from instaslice.api.instaslice import Allocation
from instaslice.drivers import Slice
from instaslice.errors import InstasliceError
from instaslice.files import write_atomically
from instaslice.kube.clock import Clock

log = logging.getLogger(__name__)

INIT_SECONDS = 0.1
"""After which an open id without a holder in the PodResources API may be an init container's."""
FORGET_SECONDS = 60.0
"""After which an open id without a holder is forgotten: the kubelet was killed before it read our answer."""
UNEXPECTED_SECONDS = 5.0
"""After which people are warned about a holder without an allocation."""


class DeviceHolders:
    """The device ids of one node."""

    def __init__(self, paths: NodePaths, clock: Clock, warn: Callable[[str], None]) -> None:
        """Raises InstasliceError where the file cannot be read."""
        self._paths = paths
        self._clock = clock
        self._warn = warn
        self._assignments = DeviceAssignments(_load(paths))
        self.held: set[DeviceId] = set()
        """Ids with a holder, by the last answer of the kubelet."""
        self._open_since: dict[DeviceId, float] = {}
        self._allocated: dict[DeviceId, int] = {}
        """How often this process handed out each id. An older answer of the kubelet may name its previous holder."""
        self._warned: set[DeviceId] = set()

    @property
    def assigned(self) -> Mapping[DeviceId, PodSlice | None]:
        return self._assignments.by_id

    @property
    def opened(self) -> set[DeviceId]:
        """Ids whose holder is not known yet."""
        return self._assignments.opened()

    def pod_of(self, address: SliceAddress) -> str:
        """The uid of the pod that holds the slice at an address, by the last answer of the kubelet; empty: none."""
        bound = (self.assigned.get(each) for each in self.held)
        return next((each.pod for each in bound if each is not None and each.address == address), "")

    async def in_use(self, slices: Sequence[Slice]) -> dict[Slice, str]:
        """Those of the slices that containers hold, and which, by asking the kubelet now. Raises InstasliceError where
        the kubelet does not answer."""
        try:
            holders = await pod_resources.from_pod_resources(self._paths.pod_resources)
        except grpc.aio.AioRpcError as error:
            raise InstasliceError(f"no kubelet answers at {self._paths.pod_resources}: {error.details()}") from None
        return self._assignments.in_use(slices, holders)

    def allocate(self, devices: Sequence[DeviceId], wanted: Sequence[Allocation]) -> None:
        """Hand out ids to a container that is not known yet. Raises NoSlice where there are fewer slices than ids."""
        for kind in {kind_of(each) for each in devices}:
            count = sum(kind_of(each) == kind for each in devices)
            free = self._assignments.free(kind, wanted, self.held - set(devices))
            if count > free:
                asked = f"{count} slice{'s' if count > 1 else ''} {described(kind)}"
                raise NoSlice(
                    f"{asked} requested, and {free} there that no pod holds; slices are created for pods that went "
                    "through InstaSlice's webhook: create the pod again"
                )
        for each in devices:
            self._open_since[each] = self._clock.monotonic()
            self._allocated[each] = self._allocated.get(each, 0) + 1
            self._warned.discard(each)
        self._assignments.open(devices)
        self._save()

    async def refresh(self, wanted: Sequence[Allocation]) -> bool:
        """Ask the kubelet who holds what, and bind ids accordingly. Whether other ids have holders than before."""
        allocated = dict(self._allocated)
        try:
            holders = await pod_resources.from_pod_resources(self._paths.pod_resources)
        except grpc.aio.AioRpcError as error:
            log.info("the kubelet does not say who holds which slice: %s", error.details())
            return False
        now = self._clock.monotonic()
        self._add_init_containers(holders, now)
        before, self.held = self.held, set(holders)
        current = {each: who for each, who in holders.items() if self._allocated.get(each) == allocated.get(each)}
        if self._assignments.bind(current, wanted):
            self._save()
        opened = self.opened
        self._forget(opened - holders.keys(), now)
        self._warn_unexpected({each: holders[each] for each in opened & holders.keys()}, now)
        return before != self.held

    def _add_init_containers(self, holders: Holders, now: float) -> None:
        """The PodResources API leaves them out, the kubelet's checkpoint has them."""
        late = {each for each in self.opened - holders.keys() if self._open_for(each, now) >= INIT_SECONDS}
        if not late:
            return
        try:
            known = pod_resources.from_checkpoint(self._paths.plugins)
        except msgspec.MsgspecError as error:
            self._warn_once(late, f"the kubelet's checkpoint cannot be read ({error}): init containers get no slices")
            return
        holders.update({each: known[each] for each in late & known.keys()})

    def _forget(self, without_holder: set[DeviceId], now: float) -> None:
        gone = [each for each in without_holder if self._open_for(each, now) >= FORGET_SECONDS]
        for each in gone:
            del self._assignments.by_id[each]
        if gone:
            self._save()
        for each in self._open_since.keys() - self.opened:
            del self._open_since[each]

    def _warn_unexpected(self, unexpected: Mapping[DeviceId, Sequence[DeviceHolder]], now: float) -> None:
        for each, (holder, *_) in unexpected.items():
            if self._open_for(each, now) >= UNEXPECTED_SECONDS:
                self._warn_once(
                    {each},
                    f"{holder} asks for a slice {described(kind_of(each))} that is not "
                    "reserved for it, and will not start: create the pod again, through InstaSlice's webhook",
                )

    def _warn_once(self, devices: set[DeviceId], note: str) -> None:
        if devices - self._warned:
            self._warned |= devices
            self._warn(note)

    def _open_for(self, device: DeviceId, now: float) -> float:
        return now - self._open_since.setdefault(device, now)

    def _save(self) -> None:
        write_atomically(self._paths.assignments, msgspec.json.encode(self.assigned), sync=True)


def _load(paths: NodePaths) -> dict[DeviceId, PodSlice | None]:
    file = paths.assignments
    try:
        found = msgspec.json.decode(file.read_bytes(), type=dict[str, PodSlice | None])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise InstasliceError(
            f"{file} does not say who holds which device id ({error}); remove it: it is rebuilt from the kubelet"
        ) from None
    return {DeviceId(each): held for each, held in found.items()}
