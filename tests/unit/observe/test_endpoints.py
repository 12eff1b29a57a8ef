"""What the endpoints answer, and to whom."""

import socket

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from fake_clock import FakeClock
from prometheus_client.parser import text_string_to_metric_families

from instaslice import __version__
from instaslice.errors import BadInput
from instaslice.kube.clock import SystemClock
from instaslice.kube.errors import Unreachable
from instaslice.observe import access as rights
from instaslice.observe import registry as registries
from instaslice.observe.access import ACCESS_REVIEWS, TOKEN_REVIEWS, Access, SubjectAccessReview, TokenReview
from instaslice.observe.api_calls import ApiCalls
from instaslice.observe.endpoints import Address, ProcessHealth, application, serving
from instaslice.observe.metrics import ALLOCATIONS, BUILD, FAILURES, Component


class ApiServer:
    """Knows these tokens, and who of their users may read metrics. Counts what it is asked."""

    def __init__(self):
        self.users = {"prometheus": "monitoring:prometheus", "somebody": "team-a:default"}
        self.allowed = {"monitoring:prometheus"}
        self.asked = []
        self.away = False

    async def create(self, resource, body):
        self.asked.append(resource.kind)
        if self.away:
            raise Unreachable("create: no answer")
        if resource is TOKEN_REVIEWS:
            user = self.users.get(body["spec"]["token"])
            status = {"authenticated": bool(user), "user": {"username": user or "", "groups": ["all"]}}
            return _decoded(TokenReview, status)
        assert resource is ACCESS_REVIEWS
        assert body["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        assert body["spec"]["groups"] == ["all"]
        return _decoded(SubjectAccessReview, {"allowed": body["spec"]["user"] in self.allowed})


def _decoded(kind, status):
    return msgspec.convert({"status": status}, kind)


@pytest.fixture
def registry():
    return registries.new(Component.AGENT)


@pytest.fixture
def api():
    return ApiServer()


@pytest.fixture
def clock():
    return FakeClock()


async def asked(app, path="/metrics", token=None, **headers):
    """Status, text and headers of the answer."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    async with TestClient(TestServer(app)) as http:
        answer = await http.get(path, headers=headers)
        return answer.status, await answer.text(), answer.headers


async def test_what_is_served_is_read_by_the_parser_of_prometheus(registry):
    states = {("creating",): 2.0, ("ungated",): 3.0}
    registries.read_from(registry, lambda: [(ALLOCATIONS, states), (FAILURES, {(): 1.0})])
    status, text, headers = await asked(application(registry, ProcessHealth()))
    assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
    found = {each.name: each for each in text_string_to_metric_families(text)}
    allocations = found["instaslice_allocations"]
    assert {each.labels["state"]: each.value for each in allocations.samples} == {"creating": 2.0, "ungated": 3.0}
    assert (allocations.type, allocations.documentation) == ("gauge", ALLOCATIONS.help)
    assert found["instaslice_failures"].type == "counter"
    (build,) = found[BUILD.name].samples
    assert build.labels == {"version": __version__, "component": "agent"}
    assert "process_resident_memory_bytes" in found


async def test_the_state_is_read_at_each_scrape(registry):
    states = {("creating",): 2.0}
    registries.read_from(registry, lambda: [(ALLOCATIONS, states)])
    app = application(registry, ProcessHealth())
    assert 'instaslice_allocations{state="creating"} 2.0' in (await asked(app))[1]
    states.clear()
    assert "instaslice_allocations{" not in (await asked(application(registry, ProcessHealth())))[1]


async def test_open_metrics_on_request(registry):
    calls = ApiCalls(registry)
    calls.answered("get", "pods", "200")
    _, text, headers = await asked(
        application(registry, ProcessHealth()), Accept="application/openmetrics-text;version=1.0.0"
    )
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert 'instaslice_api_requests_total{code="200",resource="pods",verb="get"} 1.0' in text
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize("version", ["abc", "", "1.x", "1.0.0.0.0", "-1", "1..0", "\u00b2"])
async def test_a_version_that_is_none_is_answered_by_text(registry, version):
    app = application(registry, ProcessHealth())
    for kind in ("application/openmetrics-text", "text/plain"):
        async with TestClient(TestServer(app)) as http:
            answer = await http.get("/metrics", headers={"Accept": f"{kind};version={version}"})
            assert answer.status == 200
            assert "instaslice_build_info" in await answer.text()


@pytest.mark.parametrize(
    "health, path, status, text",
    [
        pytest.param(ProcessHealth(), "/healthz", 200, "ok", id="alive"),
        pytest.param(ProcessHealth(), "/readyz", 200, "ok", id="ready"),
        pytest.param(ProcessHealth(stuck=lambda: "stuck"), "/healthz", 503, "stuck", id="stuck"),
        pytest.param(ProcessHealth(stuck=lambda: "stuck"), "/readyz", 200, "ok", id="stuck is not unready"),
        pytest.param(ProcessHealth(not_ready=lambda: "stopping"), "/readyz", 503, "stopping", id="stopping"),
        pytest.param(ProcessHealth(not_ready=lambda: "stopping"), "/healthz", 200, "ok", id="stopping and alive"),
    ],
)
async def test_health(registry, health, path, status, text):
    assert (await asked(application(registry, health), path))[:2] == (status, text)


async def test_two_processes_cannot_have_one_port(registry):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=rf"127.0.0.1:{port}: another process listens there; give another with"):
            async with serving(application(registry, ProcessHealth()), Address("127.0.0.1", port), clock=SystemClock()):
                pass


# Who may read ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token, status, words",
    [
        pytest.param("prometheus", 200, "instaslice_build_info", id="who may"),
        pytest.param(None, 401, "Authorization: Bearer TOKEN", id="nobody"),
        pytest.param("", 401, "Authorization: Bearer TOKEN", id="an empty token"),
        pytest.param("forged", 401, "does not know this token", id="a stranger"),
        pytest.param(
            "somebody", 403, "team-a:default may not read the metrics; bind it to a ClusterRole", id="who may not"
        ),
    ],
)
async def test_who_reads_the_metrics(registry, api, clock, token, status, words):
    answer = await asked(application(registry, ProcessHealth(), Access(api, clock)), token=token)
    assert answer[0] == status
    assert words in answer[1]
    assert ("WWW-Authenticate" in answer[2]) == (status == 401)


@pytest.mark.parametrize("token", ["\u00ff", "\udcff"], ids=["a letter", "a byte that is no text"])
async def test_a_token_that_is_not_ascii_is_refused_without_a_review(api, clock, token):
    assert (await Access(api, clock).refusal({"Authorization": f"Bearer {token}"})).status == 401
    assert not api.asked


async def test_health_is_for_everybody(registry, api, clock):
    app = application(registry, ProcessHealth(), Access(api, clock))
    assert (await asked(app, "/healthz"))[0] == 200
    assert not api.asked


async def test_an_answer_is_remembered_for_a_minute(api, clock):
    access, headers = Access(api, clock), {"Authorization": "Bearer prometheus"}
    assert await access.refusal(headers) is None
    api.allowed.clear()
    clock.advance(rights.REMEMBERED_SECONDS - 1)
    assert await access.refusal(headers) is None
    assert api.asked == ["TokenReview", "SubjectAccessReview"]
    clock.advance(1)
    assert (await access.refusal(headers)).status == 403


async def test_an_api_server_that_is_away_lets_nobody_in_and_is_asked_again(api, clock):
    access, headers = Access(api, clock), {"Authorization": "Bearer prometheus"}
    api.away = True
    assert (await access.refusal(headers)).status == 503
    api.away = False
    clock.advance(rights.STRANGER_SECONDS)
    assert await access.refusal(headers) is None


async def test_strangers_are_forgotten_and_not_gathered(api, clock):
    access = Access(api, clock)
    for number in range(rights.MOST_REMEMBERED * 2):
        clock.advance(0.001)
        assert (await access.refusal({"Authorization": f"Bearer {number}"}, f"10.0.0.{number}")).status == 401
    assert len(access._refused) == rights.MOST_REMEMBERED
    clock.advance(rights.STRANGER_SECONDS)
    await access.refusal({"Authorization": "Bearer last"})
    assert len(access._turns) == 1


async def test_strangers_of_one_address_are_looked_up_once_a_second(api, clock):
    access = Access(api, clock)
    answers = []
    for number in range(30):
        answers.append((await access.refusal({"Authorization": f"Bearer {number}"}, "10.0.0.1")).status)
        assert await access.refusal({"Authorization": "Bearer prometheus"}, "10.0.0.2") is None
        clock.advance(0.1)
    assert (answers.count(401), answers.count(429)) == (3, 27)


async def test_strangers_do_not_lock_out_who_was_let_in(api, clock, monkeypatch):
    access, headers = Access(api, clock), {"Authorization": "Bearer prometheus"}
    assert await access.refusal(headers, "10.0.0.1") is None
    for number in range(rights.MOST_REMEMBERED):
        await access.refusal({"Authorization": f"Bearer {number}"}, f"10.0.1.{number}")
    api.asked.clear()
    assert await access.refusal(headers, "10.0.0.1") is None
    assert not api.asked, "strangers evicted it"
    clock.advance(rights.REMEMBERED_SECONDS)
    monkeypatch.setattr(rights, "MOST_ASKED", 0)
    assert await access.refusal(headers, "10.0.0.1") is None
    assert api.asked == ["TokenReview", "SubjectAccessReview"]
    # A right that was taken away makes a stranger of it.
    api.allowed.clear()
    clock.advance(rights.REMEMBERED_SECONDS)
    assert (await access.refusal(headers, "10.0.0.1")).status == 403
    clock.advance(rights.REMEMBERED_SECONDS)
    assert (await access.refusal(headers, "10.0.0.1")).status == 429


async def test_few_are_looked_up_at_once(api, clock, monkeypatch):
    monkeypatch.setattr(rights, "MOST_ASKED", 0)
    assert (await Access(api, clock).refusal({"Authorization": "Bearer prometheus"})).status == 429
    assert not api.asked
