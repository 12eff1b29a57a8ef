"""What the server answers, apart from pods."""

import pytest
from aiohttp.test_utils import TestClient, TestServer

from instaslice.webhook.largest import LargestNode
from instaslice.webhook.server import PATH, Webhook


@pytest.fixture
async def webhook():
    return Webhook(LargestNode())


@pytest.fixture
async def http(webhook):
    async with TestClient(TestServer(webhook.app())) as made:
        yield made


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="no request"),
        pytest.param(b'{"request":{"uid":"1","object":{"spec":{"containers":7}}}}', id="not a pod"),
    ],
)
async def test_what_is_not_a_review_is_a_bad_request(http, webhook, body):
    answer = await http.post(PATH, data=body)
    assert answer.status == 400
    assert (await answer.text()).startswith("not an AdmissionReview of a pod: ")
    assert webhook.answered == {"not a review": 1}


async def test_a_webhook_that_stops_is_alive_but_not_ready(http, webhook):
    assert (await http.get("/readyz")).status == 200
    webhook.ready = False
    assert (await http.get("/readyz")).status == 503
    assert (await http.get("/healthz")).status == 200


async def test_a_webhook_that_stops_answers_and_gives_up_the_connection(http, webhook):
    review = b'{"request":{"uid":"1"}}'
    assert "Connection" not in (await http.post(PATH, data=review)).headers
    webhook.ready = False
    answer = await http.post(PATH, data=review)
    assert (answer.status, answer.headers["Connection"]) == (200, "close")
