"""Which error an answer becomes, and what its message says."""

import msgspec
import pytest

from instaslice.errors import InstasliceError
from instaslice.kube import errors


def status(reason, **details):
    return msgspec.json.encode({"kind": "Status", "message": "because", "reason": reason, "details": details})


@pytest.mark.parametrize(
    "code, body, kind",
    [
        pytest.param(400, status("BadRequest"), errors.BadRequest, id="400"),
        pytest.param(403, status("Forbidden"), errors.Forbidden, id="403"),
        pytest.param(404, status("NotFound"), errors.NotFound, id="404"),
        pytest.param(409, status("Conflict"), errors.Conflict, id="409 of a version"),
        pytest.param(409, status("AlreadyExists"), errors.AlreadyExists, id="409 of a name"),
        pytest.param(410, status("Expired"), errors.Gone, id="410"),
        pytest.param(413, status("RequestEntityTooLarge"), errors.Refused, id="413, as a policy may say"),
        pytest.param(418, b"no tea", errors.Refused, id="any other 4xx, as a webhook may say"),
        pytest.param(422, status("Invalid"), errors.Invalid, id="422"),
        pytest.param(429, status("TooManyRequests"), errors.TooManyRequests, id="429"),
        pytest.param(500, b"<html>oops</html>", errors.ServerError, id="a load balancer's page"),
        pytest.param(
            504,
            status("Timeout", causes=[{"reason": "ResourceVersionTooLarge"}]),
            errors.Gone,
            id="a version from the future needs a fresh list too",
        ),
    ],
)
def test_an_answer_becomes_the_error_that_fits(code, body, kind):
    error = errors.from_answer("get pods team-a/train", code, body)
    assert type(error) is kind
    assert isinstance(error, InstasliceError)
    assert error.status == code
    assert str(error).startswith(f"get pods team-a/train: {code} ")


@pytest.mark.parametrize(
    "header, body, wait",
    [
        pytest.param("7", status("TooManyRequests", retryAfterSeconds=3), 7, id="the header first"),
        pytest.param(None, status("TooManyRequests", retryAfterSeconds=3), 3, id="then the status"),
        pytest.param(None, status("TooManyRequests"), None, id="not asked"),
    ],
)
def test_how_long_the_server_asks_us_to_wait(header, body, wait):
    assert errors.from_answer("get", 429, body, header).retry_after == wait


@pytest.mark.parametrize("code", [400, 401, 403, 413, 418, 422])
def test_a_4xx_that_has_no_meaning_of_its_own_is_a_refusal(code):
    assert isinstance(errors.from_answer("patch", code, status("Whatever")), errors.Refused)


@pytest.mark.parametrize("code", [404, 409, 410, 429, 500, 503])
def test_no_other_answer_is_a_refusal(code):
    assert not isinstance(errors.from_answer("patch", code, status("Whatever")), errors.Refused)
