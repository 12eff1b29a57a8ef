"""The invariants, checked during and after every test of a folder: `from invariants import invariants` in a conftest.

During: a ClusterMonitor watches pods and Instaslice objects and checks every write in order, so that a placement that
two pods held for a moment is found. After: the cluster must settle, with nothing wrong and no slice in transition. A
story in which something is meant to break says so: `invariants.allow(Invariant.SLICE_EXISTS)`.
"""

import contextlib

import pytest
from cluster_monitor import ClusterMonitor

from instaslice.doctor import wait_until_settled

SETTLES_WITHIN = 60.0
"""Seconds; deleted pods take up to 30 to go."""


class Allowed:
    """What a test lets be wrong."""

    def __init__(self):
        self._allowed = set()
        self.settles = True
        """False where the test leaves the cluster in pieces."""

    def allow(self, *invariants):
        self._allowed.update(invariants)

    def judge(self, when, found):
        wrong = [str(each) for each in found if each.invariant not in self._allowed]
        assert not wrong, f"{when} the test: " + "\n".join(wrong[:20])


@contextlib.asynccontextmanager
async def monitored(client):
    """For tests that bring their own cluster: `async with monitored(client) as allowed`."""
    allowed = Allowed()
    async with ClusterMonitor(client) as monitor:
        yield allowed
    allowed.judge("during", monitor.findings)
    if allowed.settles:
        allowed.judge("after", await wait_until_settled(client, SETTLES_WITHIN))


@pytest.fixture(autouse=True)
async def invariants(client):
    async with monitored(client) as allowed:
        yield allowed
