"""Emulated GPUs: any model of known geometry, any number, mixed, with the behaviour of real ones.

They refuse what real ones refuse, take as long if asked to, fail on demand, serialise the calls for one GPU, and keep
their slices when the process that emulates them is killed.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import msgspec

from instaslice.drivers.driver import Driver, Gpu, GpuUuid, MigUuid, Slice, Unhealthy
from instaslice.drivers.errors import DriverError, InUse, SlotTaken, Unsupported
from instaslice.drivers.faults import Faults
from instaslice.drivers.latencies import INSTANT, Latencies, Span
from instaslice.drivers.state_file import EmulatedInstance, GpuContents, InstanceChange, NodeContents, StateFile
from instaslice.geometry import Model, Profile, States, UnknownProfile
from instaslice.geometry.states import ILLEGAL

_OURS = uuid.UUID("6d8f3c52-0a54-5d0e-9a3b-6f2b9a0c7e11")


class EmulatedDriver(Driver):
    """A Driver for the GPUs of one emulated node, one for each of `models`, in that order.

    UUIDs follow from the node's name alone. With `file` the slices outlive the process; a GPU whose model differs from
    the file starts empty. Raises Unsupported for a model whose placements are unknown.
    """

    def __init__(
        self,
        node: str,
        models: Iterable[Model],
        *,
        file: Path | None = None,
        latencies: Latencies = INSTANT,
        faults: Faults | None = None,
        rng: Random | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.faults = faults or Faults()
        self._gpus = {gpu.uuid: gpu for gpu in (_gpu(node, index, model) for index, model in enumerate(models))}
        self._states = {gpu.uuid: States.of(gpu.model) for gpu in self._gpus.values()}
        self._latencies = latencies
        self._rng = rng or Random()
        self._sleep = sleep
        self._busy = {gpu: threading.Lock() for gpu in self._gpus}
        self._lock = threading.Lock()
        self._state = StateFile(file)
        self._start()

    # The interface --------------------------------------------------------------------------------------------------

    def immediate(self, gpu: GpuUuid) -> bool:
        return self._latencies == INSTANT and not self.faults.hangs(gpu)

    def boot_id(self) -> str:
        return self._contents().boot_id

    def discover(self) -> tuple[Gpu, ...]:
        return tuple(self._gpus.values())

    def slices(self, gpu: GpuUuid) -> tuple[Slice, ...]:
        with self._at(gpu):
            self.faults.check(gpu, "list slices")
            found = [self._slice(gpu, gi, made) for gi, made in self._instances(gpu).items()]
            return tuple(sorted(found, key=lambda each: each.placement.start))

    def create(self, gpu: GpuUuid, profile: str, start: int) -> Slice:
        with self._at(gpu):
            what = f"create {profile} at {start}"
            self.faults.check(gpu, what)
            size, gi = self._legal(gpu, profile, start)
            steps = self._latencies
            self._pause(steps.create_gi if self._instances(gpu) else steps.create_first_gi, size)
            self._store(gpu, gi, EmulatedInstance(profile=size.name, start=start))
            self.faults.check(gpu, what)
            self._pause(steps.create_ci, size)
            made = EmulatedInstance(profile=size.name, start=start, ci=0)
            self._store(gpu, gi, made)
            return self._slice(gpu, gi, made)

    def destroy(self, doomed: Slice) -> None:
        gpu = doomed.gpu
        with self._at(gpu):
            self.faults.check(gpu, f"destroy {doomed.placement}")
            made = self._instances(gpu).get(doomed.gi)
            if made is None or (made.profile, made.start) != doomed.placement[:2]:
                return
            size = self._gpus[gpu].model.profile(made.profile)
            fault = self.faults.held(gpu, made.start)
            if fault and (made.ci is None or not fault.monitor):
                raise _in_use(doomed, fault.holders)
            if made.ci is not None:
                self._pause(self._latencies.destroy_ci, size)
                self._store(gpu, doomed.gi, msgspec.structs.replace(made, ci=None))
            if fault:
                raise _in_use(doomed, fault.holders)
            self.faults.check(gpu, f"destroy {doomed.placement}")
            self._pause(self._latencies.destroy_gi, size)
            self._store(gpu, doomed.gi, None)

    def watch_health(self, gpu: GpuUuid, known: Unhealthy | None, seconds: float) -> Unhealthy | None:
        return self.faults.watch(gpu, known, seconds)

    # Beyond the interface -------------------------------------------------------------------------------------------

    def reboot(self, boot_id: str = "") -> None:
        """The machine reboots: no slices, a new boot id; random unless one is given."""
        with self._lock:
            empty: dict[str, GpuContents] = {gpu.uuid: GpuContents(model=gpu.model.name) for gpu in self._gpus.values()}
            boot = boot_id or str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
            self._state.write(NodeContents(boot_id=boot, gpus=empty))

    # Inside ---------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._state.contents is None:
            self.reboot()
            return
        with self._lock:
            found = self._contents()
            cards: dict[str, GpuContents] = {gpu: self._restored(gpu, found.gpus.get(gpu)) for gpu in self._gpus}
            self._state.write(NodeContents(boot_id=found.boot_id, gpus=cards))

    def _restored(self, gpu: GpuUuid, card: GpuContents | None) -> GpuContents:
        """The instances of a GPU from the file: none where its model has changed, or has other placements now."""
        model, states = self._gpus[gpu].model.name, self._states[gpu]
        if card is None or card.model != model or states.state(card.instances) == ILLEGAL:
            return GpuContents(model=model)
        same = all(states.placement(made.profile, made.start) == gi for gi, made in card.instances.items())
        return card if same else GpuContents(model=model)

    def _at(self, gpu: GpuUuid) -> threading.Lock:
        """Held during a whole call: seven threads on one GPU take as long as one."""
        try:
            return self._busy[gpu]
        except KeyError:
            raise DriverError(f"GPU {gpu} is not in this node (it has {', '.join(self._gpus)})") from None

    def _legal(self, gpu: GpuUuid, profile: str, start: int) -> tuple[Profile, int]:
        """The profile, and the id of its GPU instance: the number of the placement in the model's states. Raises
        Unsupported, SlotTaken."""
        model = self._gpus[gpu].model
        try:
            wanted = model.placement(profile, start)
        except UnknownProfile as error:
            raise Unsupported(f"GPU {gpu}: {error}") from None
        states = self._states[gpu]
        held = sorted(self._instances(gpu))
        gi = states.placement(wanted.profile, start)
        assert gi is not None, f"{wanted} is legal on {model.name}"
        if self.faults.take_refusal(gpu) or states.after[states.state(held)][gi] == ILLEGAL:
            self._pause(self._latencies.refuse, model.profile(profile))
            there = ", ".join(str(states.placements[k]) for k in held) or "nothing that can be listed"
            raise SlotTaken(f"GPU {gpu}: {wanted} does not fit beside what is there: {there}")
        return model.profile(profile), gi

    def _slice(self, gpu: GpuUuid, gi: int, made: EmulatedInstance) -> Slice:
        placement = self._gpus[gpu].model.placement(made.profile, made.start)
        if made.ci is None:
            return Slice(gpu, placement, gi)
        # After a destroy the same place gets the same UUID again: the harder case for code that remembers one.
        return Slice(gpu, placement, gi, made.ci, MigUuid(f"MIG-{uuid.uuid5(_OURS, f'{gpu}/{gi}/{made.ci}')}"))

    def _contents(self) -> NodeContents:
        contents = self._state.contents
        assert contents is not None, "written when the driver was made"
        return contents

    def _instances(self, gpu: GpuUuid) -> dict[int, EmulatedInstance]:
        return self._contents().gpus[gpu].instances

    def _store(self, gpu: GpuUuid, gi: int, made: EmulatedInstance | None) -> None:
        """One atomic step, whenever the process is killed. None removes the instance."""
        with self._lock:
            self._state.apply(InstanceChange(gpu=gpu, gi=gi, instance=made))

    def _pause(self, step: Span, size: Profile) -> None:
        if step.high:
            self._sleep(step.draw(size.compute, self._rng))


def _gpu(node: str, index: int, model: Model) -> Gpu:
    if not any(profile.starts for profile in model.profiles):
        raise Unsupported(f"{model.name} cannot be emulated: its placements are not known")
    return Gpu(GpuUuid(f"GPU-{uuid.uuid5(_OURS, f'{node}/{index}')}"), index, model)


def _in_use(held: Slice, holders: tuple[str, ...]) -> InUse:
    by = ", ".join(holders) or "a process that the driver does not name"
    return InUse(f"GPU {held.gpu}: {held.placement} is in use by {by}; end it and destroy again", holders)
