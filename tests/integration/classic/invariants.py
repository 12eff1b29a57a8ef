"""The invariants, checked during and after every test of the folder: `from invariants import invariants` in a conftest.

During: an Overseer follows pods and Instaslice objects and judges every write in order, so that a place that two pods
held for a moment is found. After: the cluster must settle, with nothing wrong and nothing under way. A story in which
something is meant to break says so: `invariants.allow(Invariant.SLICE_EXISTS)`.
"""

import contextlib

import pytest

from instaslice.doctor import Overseer, settled

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
async def overseen(client):
    """For tests that bring their own cluster: `async with overseen(client) as allowed`."""
    allowed = Allowed()
    async with Overseer(client) as overseer:
        yield allowed
    allowed.judge("during", overseer.findings)
    if allowed.settles:
        allowed.judge("after", await settled(client, SETTLES_WITHIN))


@pytest.fixture(autouse=True)
async def invariants(client):
    async with overseen(client) as allowed:
        yield allowed
