"""Faults of emulated GPUs, injected one by one."""

from instaslice.drivers import Unhealthy
from instaslice.drivers.faults import FALLEN, Faults, SliceHold


class InjectedFaults(Faults):
    def refuse(self, gpu, times=1):
        """The next creates on this GPU raise SlotTaken, though nothing is listed there."""
        with self._changed:
            self._refusals[gpu] += times

    def hold(self, gpu, start, *holders, monitor=False):
        """The slice at `start` is in use."""
        with self._changed:
            self._holds[gpu, start] = SliceHold(holders, monitor)

    def release(self, gpu, start):
        with self._changed:
            self._holds.pop((gpu, start), None)

    def fail(self, gpu, reason=FALLEN):
        """Every call for this GPU raises GpuLost, and watchers are notified."""
        with self._changed:
            self._unhealthy[gpu] = Unhealthy(reason)
            self._changed.notify_all()

    def hang(self, gpu):
        """Calls for this GPU do not return until `heal`; then they continue."""
        with self._changed:
            self._hanging.add(gpu)

    def heal(self, gpu):
        """It neither fails nor hangs any more."""
        with self._changed:
            self._unhealthy.pop(gpu, None)
            self._hanging.discard(gpu)
            self._changed.notify_all()
