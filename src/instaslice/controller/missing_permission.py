"""A permission that comes with a flag and was not granted.

It is missing for every object alike: a line for each attempt at each of a thousand nodes would hide all else in a log.
"""

import logging
from math import inf
from typing import Final

from instaslice.kube.clock import Clock
from instaslice.kube.errors import Forbidden

log = logging.getLogger(__name__)

AGAIN: Final = 60.0
"""Seconds from one attempt to the next, and between two warnings."""


class MissingPermission:
    def __init__(self, flag: str, clock: Clock) -> None:
        self._flag = flag
        self._clock = clock
        self._quiet_until = -inf

    def report(self, error: Forbidden) -> float:
        """Warn, unless that was done within the last minute; returns the seconds after which to try again."""
        now = self._clock.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + AGAIN
            log.warning(
                "%s; grant the controller what %s needs, or leave the flag away (tried again every %.0f s)",
                error,
                self._flag,
                AGAIN,
            )
        return AGAIN
