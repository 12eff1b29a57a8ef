"""NVML as a binding shows it, over GPUs that are not there: what `pynvml` would do on an H200, an A100 or a T4.

It stands where the C library stands: structures, constants and errors are pynvml's own, and a function that is not
written here does not exist. Behaves as measured on an H200 with driver 580: creating on a taken slot is "insufficient
resources", or "invalid argument" where something smaller is in it; destroying what is held is "in use"; a 1g.35gb
filled by its own slice count leaves multiprocessors idle; the numbers of MIG devices have gaps; and a GPU instance that
this process has asked for no compute profile since it was made gets no compute instance ("not supported").
"""

# ruff: noqa: N802, N815 - the names are NVML's
import functools
import threading
from dataclasses import dataclass, field

import pynvml

from instaslice.geometry import States, models
from instaslice.geometry.states import ILLEGAL

COMPUTE_IDS = 100
"""Ids of compute profiles begin here, so that an id taken for a number is noticed."""


@dataclass
class Instance:
    """A GPU instance; as a handle too."""

    card: "Card"
    id: int
    placement: int
    cis: dict[int, int] = field(default_factory=dict)
    """Number of the compute profile by compute instance id."""
    asked_by: list["FakeNvml"] = field(default_factory=list)
    """Processes that have asked it for a compute profile."""


@dataclass(eq=False)
class Card:
    """One GPU. `needs_reset` is an Ampere; `virtualization` 2 is a vGPU. `lost` answers nothing. `hangs` maps names of
    calls to what they wait for before they come back."""

    product: str
    uuid: str
    model: object = None
    mig: bool = True
    pending: bool = True
    needs_reset: bool = False
    virtualization: int = 1
    lost: bool = False
    hangs: dict[str, threading.Event] = field(default_factory=dict)
    busy: bool = False
    action: int = 0
    rows_failed: bool = False
    instances: dict[int, Instance] = field(default_factory=dict)
    held: dict[int, list] = field(default_factory=dict)
    """Pids by GPU instance id; a monitor is a negative pid and holds the GPU instance alone."""

    @functools.cached_property
    def states(self):
        return States.of(self.model)

    def profile(self, gi_id):
        return next(each for each in self.model.profiles if each.gi_id == gi_id)

    def spot(self, gi):
        return self.states.placements[gi.placement]


def h200(uuid="GPU-h200", **more):
    return Card("NVIDIA H200", uuid, models.named("H200"), **more)


def a100(uuid="GPU-a100", **more):
    return Card("NVIDIA A100-SXM4-40GB", uuid, models.named("A100-40GB"), needs_reset=True, **more)


def t4(uuid="GPU-t4"):
    return Card("Tesla T4", uuid)


class Room:
    """A C type of which arrays are made to be filled with handles."""

    def __mul__(self, length):
        return lambda: [None] * length


class FakeNvml:
    """A binding. `calls` is what was called; `before` runs ahead of each call and may raise, or kill; `pause` is how it
    waits for events in vain."""

    c_nvmlGpuInstance_t = Room()

    def __init__(self, *cards, installed=True, names=True):
        self.cards = list(cards)
        self.installed, self.names = installed, names
        self.sessions, self.calls, self.events = 0, [], []
        self.registered = []
        self.before = lambda name: None
        self.pause = lambda seconds: None

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        if not name.startswith("nvml"):
            return found

        @functools.wraps(found)
        def call(*arguments, **named):
            self.calls.append(name)
            self.before(name)
            if name != "nvmlInit" and not self.sessions:
                raise refused("UNINITIALIZED")
            card = arguments[0].card if arguments and isinstance(arguments[0], Instance) else (arguments or [None])[0]
            if name == "nvmlDeviceGetHandleByIndex":
                card = self.cards[card]
            if name == "nvmlEventSetWait_v2":
                card = arguments[0][0]
            if isinstance(card, Card) and (answer := card.hangs.get(name)):
                answer.wait()
            if isinstance(card, Card) and card.lost and name != "nvmlDeviceGetUUID":
                raise refused("GPU_IS_LOST")
            return found(*arguments, **named)

        return call

    def __getattr__(self, name):
        if name.startswith("nvml"):
            raise AttributeError(f"{name} is not part of the fake: write it, as the real one behaves")
        return getattr(pynvml, name)

    # The session and the GPUs ---------------------------------------------------------------------------------------

    def nvmlInit(self):
        if not self.installed:
            raise refused("LIBRARY_NOT_FOUND")
        self.sessions += 1

    def nvmlShutdown(self):
        self.sessions -= 1

    def nvmlSystemGetDriverVersion(self):
        return "580.159.04"

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.cards[index]

    def nvmlDeviceGetHandleByPciBusId(self, address):
        for number, card in enumerate(self.cards):
            if _address(number) == address:
                return card
        raise refused("NOT_FOUND")

    def nvmlDeviceGetPciInfo(self, card):
        return pynvml.nvmlFriendlyObject({"busId": _address(self.cards.index(card))})

    def nvmlDeviceGetUUID(self, device):
        if device is None:
            raise refused("INVALID_ARGUMENT")
        return device.uuid if isinstance(device, Card) else f"MIG-{device[0].card.uuid}-{device[0].id}-{device[1]}"

    def nvmlDeviceGetName(self, card):
        return card.product

    def nvmlDeviceGetMinorNumber(self, card):
        return self.cards.index(card)

    def nvmlDeviceGetMemoryInfo(self, card):
        info = pynvml.c_nvmlMemory_t()
        info.total = 150754820096 if card.product == "NVIDIA H200" else 42949672960
        return info

    def nvmlDeviceGetVirtualizationMode(self, card):
        return card.virtualization

    def nvmlDeviceGetMigMode(self, card):
        if card.model is None:
            raise refused("NOT_SUPPORTED")
        return [int(card.mig), int(card.pending)]

    def nvmlDeviceSetMigMode(self, card, mode):
        if card.busy:
            return pynvml.NVML_ERROR_IN_USE
        card.pending = bool(mode)
        if card.needs_reset:
            return pynvml.NVML_ERROR_RESET_REQUIRED
        card.mig = bool(mode)
        return 0

    # Profiles -------------------------------------------------------------------------------------------------------

    def nvmlDeviceGetGpuInstanceProfileInfo(self, card, number, version):
        if number >= pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT:
            raise refused("INVALID_ARGUMENT")
        found = [each for each in card.model.profiles if each.nvml_enum == number]
        if not found or (version == 2 and not (card.mig and self.names)):
            raise refused("NOT_SUPPORTED")
        (profile,) = found
        info = pynvml.c_nvmlGpuInstanceProfileInfo_v2_t() if version == 2 else pynvml.c_nvmlGpuInstanceProfileInfo_t()
        info.id, info.sliceCount, info.instanceCount = profile.gi_id, profile.compute, profile.limit
        info.multiprocessorCount, info.memorySizeMB = profile.sms, profile.memory_mib
        info.copyEngineCount, info.decoderCount = profile.engines.copy, profile.engines.decoders
        info.encoderCount, info.jpegCount, info.ofaCount = (0, profile.engines.jpeg, profile.engines.ofa)
        if version == 2:
            info.name = f"MIG {profile.name}"
        return info

    def nvmlDeviceGetGpuInstancePossiblePlacements(self, card, gi_id, found, count):
        places = card.profile(gi_id).placements()
        for spot, place in zip(found or (), places, strict=False):
            spot.start, spot.size = place.start, place.size
        count._obj.value = len(places)

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(self, gi, number, engines, version):
        size = gi.card.profile(gi.card.model.profile(gi.card.spot(gi).profile).gi_id)
        if number >= pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT:
            raise refused("INVALID_ARGUMENT")
        if number == 0:
            multiprocessors = min(16, size.sms)
        elif number == size.ci_enum:
            multiprocessors = size.sms
        else:
            raise refused("NOT_SUPPORTED")
        gi.asked_by.append(self)
        info = pynvml.c_nvmlComputeInstanceProfileInfo_t()
        info.id, info.multiprocessorCount = COMPUTE_IDS + number, multiprocessors
        return info

    # Instances ------------------------------------------------------------------------------------------------------

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, card, gi_id, place):
        if not card.mig:
            raise refused("NOT_SUPPORTED")
        number = card.states.placement(card.profile(gi_id).name, place._obj.start)
        if number is None or card.states.placements[number].size != place._obj.size:
            raise refused("INVALID_ARGUMENT")
        held = [each.placement for each in card.instances.values()]
        if card.states.state(sorted([*held, number])) == ILLEGAL:
            wanted, there = card.states.placements[number], [card.states.placements[each] for each in held]
            cut = any(_overlap(wanted, each) and each.size < wanted.size for each in there)
            raise refused("INVALID_ARGUMENT" if cut else "INSUFFICIENT_RESOURCES")
        free = next(each for each in range(1, 20) if each not in card.instances)
        card.instances[free] = Instance(card, free, number)
        return card.instances[free]

    def nvmlGpuInstanceGetInfo(self, gi):
        spot = gi.card.spot(gi)
        info = pynvml.c_nvmlGpuInstanceInfo_t()
        info.id, info.profileId = gi.id, gi.card.model.profile(spot.profile).gi_id
        info.placement.start, info.placement.size = spot.start, spot.size
        return info

    def nvmlDeviceGetGpuInstances(self, card, gi_id, found, count):
        if not card.mig:
            raise refused("NOT_SUPPORTED")
        name = card.profile(gi_id).name
        some = [gi for gi in card.instances.values() if card.spot(gi).profile == name]
        found[: len(some)] = some
        count._obj.value = len(some)

    def nvmlDeviceGetGpuInstanceById(self, card, number):
        if not card.mig:
            raise refused("NOT_SUPPORTED")
        if number not in card.instances:
            raise refused("NOT_FOUND")
        return card.instances[number]

    def nvmlGpuInstanceDestroy(self, gi):
        if gi.cis or gi.card.held.get(gi.id):
            raise refused("IN_USE")
        del gi.card.instances[gi.id]

    def nvmlGpuInstanceCreateComputeInstance(self, gi, profile):
        if self not in gi.asked_by:
            raise refused("NOT_SUPPORTED")
        number = next(each for each in range(8) if each not in gi.cis)
        gi.cis[number] = profile - COMPUTE_IDS
        return gi, number

    def nvmlGpuInstanceGetComputeInstanceById(self, gi, number):
        if number not in gi.cis:
            raise refused("NOT_FOUND")
        return gi, number

    def nvmlComputeInstanceDestroy(self, ci):
        gi, number = ci
        if any(pid > 0 for pid in gi.card.held.get(gi.id, ())):
            raise refused("IN_USE")
        del gi.cis[number]

    def nvmlDeviceGetMaxMigDeviceCount(self, card):
        return 7 if card.mig else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card, index):
        devices = [(gi, ci) for gi in card.instances.values() for ci in gi.cis]
        # Number 0 stays empty while there is room, as after the first slice was destroyed.
        numbers = range(1, 7) if len(devices) < 7 else range(7)
        if index not in numbers[: len(devices)]:
            raise refused("NOT_FOUND")
        return devices[numbers.index(index)]

    def nvmlDeviceGetGpuInstanceId(self, device):
        return device[0].id

    def nvmlDeviceGetComputeInstanceId(self, device):
        return device[1]

    def nvmlDeviceGetComputeRunningProcesses(self, device):
        return [pynvml.nvmlFriendlyObject({"pid": pid}) for pid in device[0].card.held.get(device[0].id, ()) if pid > 0]

    # Health ---------------------------------------------------------------------------------------------------------

    def nvmlDeviceGetFieldValues(self, card, fields):
        (value,) = (pynvml.c_nvmlFieldValue_t * 1)()
        if card.action is None:
            value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
        else:
            value.value.uiVal = card.action
        return [value]

    def nvmlDeviceGetRemappedRows(self, card):
        return (0, 0, 0, int(card.rows_failed))

    def nvmlEventSetCreate(self):
        return []

    def nvmlEventSetFree(self, events):
        self.registered = [each for each in self.registered if each[1] is not events]

    def nvmlDeviceGetSupportedEventTypes(self, card):
        return 0x1F

    def nvmlDeviceRegisterEvents(self, card, kinds, events):
        events.append(card)
        self.registered.append((card.uuid, events))

    def nvmlEventSetWait_v2(self, events, milliseconds):
        for number, (card, kind, data) in enumerate(self.events):
            if card in events:
                del self.events[number]
                return pynvml.nvmlFriendlyObject({"device": card, "eventType": kind, "eventData": data})
        self.pause(milliseconds / 1000)
        raise refused("TIMEOUT")


def _address(number):
    return f"00000000:{number:02X}:00.0"


def _overlap(one, other):
    return one.start < other.start + other.size and other.start < one.start + one.size


def refused(name):
    return pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{name}"))
