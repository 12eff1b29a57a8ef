"""What the server answers, apart from pods."""

import asyncio
import base64
import datetime
import logging
import ssl

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from fake_clock import FakeClock
from slice_pods import container, mutated, pod
from waiting import until

from instaslice.api import names
from instaslice.api.largest_node import LargestNode
from instaslice.kube.config import load_pair
from instaslice.observe.connections import PATIENCE
from instaslice.webhook import server
from instaslice.webhook.certificates import Lifetimes, advance
from instaslice.webhook.server import PATH, Webhook, serving


@pytest.fixture
async def webhook():
    return Webhook(LargestNode(), FakeClock())


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


async def test_a_webhook_that_stops_answers_and_gives_up_the_connection(http, webhook):
    review = b'{"request":{"uid":"1"}}'
    assert "Connection" not in (await http.post(PATH, data=review)).headers
    webhook.draining = True
    answer = await http.post(PATH, data=review)
    assert (answer.status, answer.headers["Connection"]) == (200, "close")


FIVE = {"nvidia.com/mig-1g.5gb": "1"}


async def asked(http, document, **request):
    """The response within the AdmissionReview that answers."""
    body = {"request": {"uid": "17", "namespace": "team-a", "operation": "CREATE", "object": document, **request}}
    answer = await http.post(PATH, data=msgspec.json.encode(body))
    assert answer.status == 200
    review = await answer.json()
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert review["response"].pop("uid") == "17"
    return review["response"]


async def test_a_pod_that_is_changed_is_answered_by_a_patch(http, webhook):
    response = await asked(http, pod(container(limits=FIVE)))
    assert (response["allowed"], response["patchType"]) == (True, "JSONPatch")
    assert {step["op"] for step in msgspec.json.decode(base64.b64decode(response["patch"]))} == {"add"}
    assert webhook.answered == {"changed": 1}


async def test_a_pod_that_stays_as_it_is_is_answered_without_a_patch(http, webhook):
    assert await asked(http, mutated(pod(container(limits=FIVE)))) == {"allowed": True}
    assert webhook.answered == {"unchanged": 1}


@pytest.mark.parametrize("meta, name", [({"name": "train"}, "train"), ({"generateName": "train-"}, "train-")])
async def test_a_pod_that_is_refused_is_a_bad_request_with_its_name(http, webhook, meta, name):
    document = {**pod(container(limits={"nvidia.com/mig-1g.5gb": "-1"})), "metadata": meta}
    response = await asked(http, document)
    assert response["allowed"] is False
    assert (response["status"]["code"], response["status"]["reason"]) == (400, "BadRequest")
    assert response["status"]["message"].startswith(f"pod team-a/{name}: container main: ")
    assert webhook.answered == {"refused": 1}


async def test_an_update_is_not_judged_as_a_new_pod(http):
    once = mutated(pod(container(limits=FIVE)))
    once["spec"]["containers"][0]["resources"]["limits"] |= FIVE
    once["spec"]["schedulingGates"] = []
    response = await asked(http, once, operation="UPDATE")
    (step,) = msgspec.json.decode(base64.b64decode(response["patch"]))
    assert step["op"] == "remove"


async def test_the_largest_pod_that_the_api_server_takes_is_read(http):
    whole = pod(container(limits=FIVE), annotations={"note": "x" * (3 << 20)})
    assert (await asked(http, whole, oldObject=whole))["allowed"] is True


async def test_nobody_is_served_any_more_once_it_has_ended(webhook):
    now = datetime.datetime.now(datetime.UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf = advance(None, now, ["127.0.0.1"], Lifetimes()).leaf
    load_pair(context, leaf.certificate, leaf.key)
    async with serving(webhook, context, host="127.0.0.1", port=0) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_the_admission_is_noted_in_the_pod_once_and_logged(http, caplog):
    caplog.set_level(logging.INFO, "instaslice.webhook.server")
    document = pod(container(limits=FIVE))
    response = await asked(http, document)
    steps = msgspec.json.decode(base64.b64decode(response["patch"]))
    (noted,) = [step["value"] for step in steps if "annotations" in step["path"]]
    assert noted[names.ADMISSION] == "17"
    # The API server calls again when another webhook has changed the pod, with another uid.
    again = await asked(http, mutated(document))
    assert "patch" not in again
    assert [each.request for each in caplog.records] == ["17", "17"]
    assert [each.getMessage() for each in caplog.records] == ["CREATE: changed", "CREATE: unchanged"]


async def test_a_refusal_is_logged_with_its_reason(http, caplog):
    caplog.set_level(logging.INFO, "instaslice.webhook.server")
    await asked(http, pod(container(limits={"nvidia.com/mig-9g.90gb": "1"})))
    (line,) = caplog.records
    assert line.getMessage().startswith("CREATE: refused: container ")
    assert line.pod.startswith("team-a/")


async def unfinished(port, size):
    """A connection on which the last byte of a review is missing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"request":{"uid":"1"}}'.ljust(size)
    writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), size) + body[:-1])
    await writer.drain()
    return reader, writer


async def test_few_large_reviews_are_read_at_once_and_small_ones_meanwhile(webhook, monkeypatch):
    monkeypatch.setattr(server, "SMALL_BYTES", 100)
    async with TestServer(webhook.app()) as served:
        large = [await unfinished(served.port, 200) for _ in range(server.MOST_LARGE)]
        await until(lambda: webhook._large.held == server.MOST_LARGE)
        waiting = await unfinished(served.port, 200)
        waiting[1].write(b" ")
        reader, writer = await unfinished(served.port, 50)
        writer.write(b" ")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert webhook.answered == {"unchanged": 1}
        large[0][1].write(b" ")
        for reader, _ in (large[0], waiting):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        for _, each in [*large, waiting, (reader, writer)]:
            each.close()


async def test_a_large_review_that_does_not_arrive_ends_for_one_that_waits(webhook):
    async with TestServer(webhook.app()) as served:
        size = 2 * server.SMALL_BYTES
        large = [await unfinished(served.port, size) for _ in range(server.MOST_LARGE)]
        await until(lambda: webhook._large.held == server.MOST_LARGE)
        waiting = await unfinished(served.port, size)
        waiting[1].write(b" ")
        await until(lambda: webhook._large.waiting == 1)
        webhook.clock.advance(PATIENCE / 2)
        assert webhook._large.held == server.MOST_LARGE
        webhook.clock.advance(PATIENCE / 2)
        assert (await waiting[0].readline()).startswith(b"HTTP/1.1 200")
        ended = [asyncio.create_task(reader.read()) for reader, _ in large]
        await asyncio.wait(ended, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result() for each in ended if each.done()] == [b""], "the other is in nobody's way"
        for each in ended:
            each.cancel()
        for _, each in [*large, waiting]:
            each.close()
