"""Rates and back-off, on a clock that stands still."""

import random

import pytest

from instaslice.kube.limits import Backoff, TokenBucket, exponential_delay


def test_a_bucket_lets_a_burst_through_and_then_the_rate(clock):
    bucket = TokenBucket(rate=2, burst=3, clock=clock)
    assert [bucket.reserve() for _ in range(5)] == [0, 0, 0, 0.5, 1.0]


def test_a_bucket_never_holds_more_than_its_burst(clock):
    bucket = TokenBucket(rate=2, burst=3, clock=clock)
    clock.advance(1000)
    assert [bucket.reserve() for _ in range(4)] == [0, 0, 0, 0.5]


def test_waits_double_up_to_the_most(clock):
    backoff = Backoff(clock=clock, rng=random.Random(1), jitter=0)
    assert [backoff.next() for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]


def test_no_number_of_failures_is_too_many():
    assert [exponential_delay(0.005, 1000.0, failures) for failures in (0, 1, 64, 10_000)] == [0.005, 0.01, 1000, 1000]


def test_jitter_stretches_a_wait_to_at_most_twice(clock):
    backoff = Backoff(clock=clock, rng=random.Random(1), first=1, most=1)
    waits = [backoff.next() for _ in range(200)]
    assert all(1 <= wait <= 2 for wait in waits)
    assert max(waits) - min(waits) > 0.5


@pytest.mark.parametrize(
    "healthy, wait",
    [pytest.param(121, 0.8, id="long enough: starts over"), pytest.param(100, 3.2, id="too short: goes on")],
)
def test_a_healthy_time_starts_the_waits_over(clock, healthy, wait):
    backoff = Backoff(clock=clock, rng=random.Random(1), jitter=0)
    clock.advance(backoff.next())
    clock.advance(backoff.next())
    clock.advance(healthy)
    assert backoff.next() == wait
