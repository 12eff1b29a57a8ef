"""Rate limit and backoff. Pure arithmetic over a Clock."""

import random

from instaslice.kube.clock import Clock


class TokenBucket:
    """`rate` tokens per second, `burst` at once."""

    def __init__(self, *, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._at = clock.monotonic()

    def reserve(self) -> float:
        """Take one token; the seconds to wait before using it. Tokens may be taken ahead of time, each further out."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)


class Backoff:
    """Growing waits: `first`, doubled up to `most`, each extended by up to `jitter` of itself.

    `forget_after` seconds without a failure reset it, so that a connection that breaks once an hour is retried at once
    and one that breaks immediately is not hammered.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        first: float = 0.8,
        most: float = 30.0,
        jitter: float = 1.0,
        forget_after: float = 120.0,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._first = first
        self._most = most
        self._jitter = jitter
        self._forget_after = forget_after
        self._failures = 0
        self._until = clock.monotonic()

    def next(self) -> float:
        """Seconds to wait after one more failure."""
        now = self._clock.monotonic()
        if now - self._until > self._forget_after:
            self._failures = 0
        wait = exponential_delay(self._first, self._most, self._failures) * (1 + self._jitter * self._rng.random())
        self._failures += 1
        self._until = now + wait
        return wait


def exponential_delay(first: float, most: float, failures: int) -> float:
    """Seconds to wait after so many earlier failures: `first`, doubled for each, never more than `most`."""
    # 2**64 times anything is past every `most`; more would overflow a float.
    return min(most, first * 2.0 ** min(failures, 64))
