"""Whether the webhook answers as its configuration says: on real sockets, and behind a Service by what is readable."""

import asyncio
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest
from installations import bundle
from memory_server import MemoryServer

from instaslice.doctor.installation_kinds import ServiceReference, WebhookAddress
from instaslice.doctor.webhook_call import ENDPOINT_SLICES, SERVICES, EndpointSlice, Service, call
from instaslice.kube.config import load_pair
from instaslice.webhook.certificates import Lifetimes, advance

NAMES = ["127.0.0.1", "instaslice-webhook.instaslice-system.svc"]
OURS = advance(None, datetime.now(UTC), NAMES, Lifetimes())
OTHER = advance(None, datetime.now(UTC), NAMES, Lifetimes())
ELSEWHERE = advance(None, datetime.now(UTC), ["example.com"], Lifetimes())
REFERENCE = ServiceReference(namespace="instaslice-system", name="instaslice-webhook")


@asynccontextmanager
async def serving(state=OURS, *, tls=True):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, state.leaf.certificate, state.leaf.key)

    async def answer(_reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context if tls else None)
    async with server:
        yield server.sockets[0].getsockname()[1]


def at(port, ca=None):
    return WebhookAddress(url=f"https://127.0.0.1:{port}/mutate", ca_bundle=bundle(OURS.trusted) if ca is None else ca)


async def test_one_that_answers_as_its_configuration_says():
    async with serving() as port:
        answer = await call(MemoryServer().client(), at(port))
    assert (answer.failed, answer.unknown) == ("", "")


@pytest.mark.parametrize(
    "state, tls, said",
    [
        pytest.param(OTHER, True, "is not one that the caBundle trusts", id="of another authority"),
        pytest.param(ELSEWHERE, True, "is not one that the caBundle trusts", id="for another name"),
        pytest.param(OURS, False, "does not speak TLS", id="without TLS"),
    ],
)
async def test_one_that_answers_otherwise_is_wrong(state, tls, said):
    async with serving(state, tls=tls) as port:
        answer = await call(MemoryServer().client(), at(port))
    assert said in answer.failed
    assert not answer.unknown


async def test_an_address_where_nothing_listens_is_wrong():
    async with serving() as port:
        pass
    answer = await call(MemoryServer().client(), at(port))
    assert f"https://127.0.0.1:{port}/mutate does not answer (Connection refused)" in answer.failed


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("127.0.0.1:99999", id="a port that there is not"),
        pytest.param(f"{'a' * 64}.example", id="a name that DNS cannot hold"),
        pytest.param("[::1", id="half an address"),
    ],
)
async def test_a_url_that_is_no_address_is_wrong(where):
    address = WebhookAddress(url=f"https://{where}/mutate", ca_bundle=bundle(OURS.trusted))
    answer = await call(MemoryServer().client(), address)
    assert f"its url https://{where}/mutate is no address (" in answer.failed
    assert answer.failed.endswith("; correct it")


async def test_a_bundle_that_is_none_is_left_to_the_rule_about_bundles():
    answer = await call(MemoryServer().client(), at(1, ca="%%"))
    assert (answer.failed, answer.unknown) == ("", "")


def behind(server, address="127.0.0.1", ready=True):
    meta = {"namespace": "instaslice-system", "name": "instaslice-webhook"}
    server.put(SERVICES, msgspec.convert({"metadata": meta, "spec": {"clusterIP": address}}, Service))
    labels = {"kubernetes.io/service-name": "instaslice-webhook"}
    slices = {"metadata": {**meta, "labels": labels}, "endpoints": [{"conditions": {"ready": ready}}]}
    server.put(ENDPOINT_SLICES, msgspec.convert(slices, EndpointSlice))
    return server


async def of_service(server, port=443):
    reference = msgspec.structs.replace(REFERENCE, port=port)
    return await call(server.client(), WebhookAddress(service=reference, ca_bundle=bundle(OURS.trusted)))


async def test_a_service_is_called_by_its_name_at_its_cluster_address():
    async with serving() as port:
        answer = await of_service(behind(MemoryServer()), port)
        assert (answer.failed, answer.unknown) == ("", "")
    async with serving(OTHER) as port:
        assert (
            "trusts for instaslice-webhook.instaslice-system.svc"
            in (await of_service(behind(MemoryServer()), port)).failed
        )


async def test_a_service_that_is_missing_or_has_nobody_behind_it_is_wrong():
    assert "does not exist" in (await of_service(MemoryServer())).failed
    assert "has no ready endpoint" in (await of_service(behind(MemoryServer(), ready=False))).failed


async def test_a_service_that_is_out_of_reach_is_neither_right_nor_wrong():
    async with serving() as port:
        pass
    answer = await of_service(behind(MemoryServer()), port)
    assert "cannot be reached from here" in answer.unknown
    assert not answer.failed


async def test_a_service_that_may_not_be_read_is_neither_right_nor_wrong():
    server = MemoryServer()
    server.refuse("GET", "services", 403)
    assert "grant `get` on services" in (await of_service(server)).unknown
