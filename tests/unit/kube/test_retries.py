"""Which answers are asked for again, and after how long."""

import random

import pytest

from instaslice.kube import errors
from instaslice.kube.limits import Backoff
from instaslice.kube.transport import wait_for


@pytest.mark.parametrize(
    "error, first_refusal, wait",
    [
        pytest.param(errors.TooManyRequests("x", retry_after=7), True, 7, id="429 waits as long as it was asked to"),
        pytest.param(errors.TooManyRequests("x", retry_after=0), True, 0.2, id="429 never hammers"),
        pytest.param(errors.TooManyRequests("x"), True, 0.2, id="429 that does not say how long"),
        pytest.param(errors.TooManyRequests("x", retry_after=31), True, None, id="longer than a caller should hang"),
        pytest.param(errors.ServerError("x", retry_after=1), True, 1, id="5xx that asks us to come back"),
        pytest.param(errors.ServerError("x"), True, None, id="5xx may have done it: the caller judges"),
        pytest.param(errors.Unauthorized("x"), True, 0, id="401: the token may be new by now"),
        pytest.param(errors.Unauthorized("x"), False, None, id="401 with the new token too"),
        pytest.param(errors.Conflict("x"), True, None, id="409 is never repeated blindly"),
        pytest.param(errors.NotFound("x"), True, None, id="404"),
    ],
)
def test_how_long_until_the_same_request_may_go_again(clock, error, first_refusal, wait):
    backoff = Backoff(clock=clock, rng=random.Random(1), first=0.2, most=5.0, jitter=0)
    assert wait_for(error, first_refusal=first_refusal, backoff=backoff) == wait
