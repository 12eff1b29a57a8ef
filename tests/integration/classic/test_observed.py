"""What Prometheus, the kubelet and people on call see of our three processes while pods come and go."""

import asyncio
import contextlib
import json
import sys
import uuid

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from stage import PATIENCE, pod
from waiting import until

from instaslice.api import names, roles
from instaslice.controller.state_times import ALLOCATION_STATES
from instaslice.local.control_plane import CLIENTS
from instaslice.local.objects import BINDINGS, GRANTS, ROLES, ClusterObjects
from instaslice.local.operator import AGENT, CONTROLLER, WEBHOOK, observe_port
from instaslice.local.pki import Authority
from instaslice.observe.metrics import METRICS

BY_NAME = {each.name: each for each in METRICS}
STATES = [phase.value for phase in ALLOCATION_STATES]
BOUNDED = {"namespace", "pod", "container"}
PAUSE = 0.05
"""Seconds between two scrapes: nothing says when a metric changes."""


class Scraped:
    """Our processes, as Prometheus sees them."""

    def __init__(self, http, ports):
        self._http, self._ports = http, ports

    async def get(self, process, path):
        async with self._http.get(f"http://127.0.0.1:{self._ports[observe_port(process)]}{path}") as answer:
            return answer.status, await answer.text()

    async def metrics(self, process):
        """(name, labels) → value, of every series."""
        status, text = await self.get(process, "/metrics")
        assert status == 200
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def value(self, process, name, **labels):
        return (await self.metrics(process)).get((name, frozenset(labels.items())), 0.0)

    async def until(self, wanted):
        """Scrape until (process, name, labels) → value are all so. A process that just starts may not listen yet."""
        seen = {}
        try:
            async with asyncio.timeout(PATIENCE):
                while seen != wanted:
                    await asyncio.sleep(PAUSE)
                    with contextlib.suppress(aiohttp.ClientConnectionError):
                        scraped = {process: await self.metrics(process) for process, _, _ in wanted}
                        seen = {key: scraped[key[0]].get(key[1:], 0.0) for key in wanted}
        except TimeoutError:
            raise AssertionError(f"{seen} and not {wanted}") from None

    async def allocations(self, **states):
        """Until so many allocations are in these states, and none in others."""
        wanted = {state: float(states.get(state, 0)) for state in STATES}
        await self.until(
            {
                (CONTROLLER, "instaslice_allocations", frozenset({("state", state)})): count
                for state, count in wanted.items()
            }
        )


@pytest.fixture
async def scraped(sliced):
    async with aiohttp.ClientSession() as http:
        yield Scraped(http, sliced.record().ports)


@pytest.mark.parametrize("process", [CONTROLLER, WEBHOOK, AGENT])
async def test_a_process_is_alive_and_ready_and_its_metrics_are_described(scraped, process):
    assert await scraped.get(process, "/healthz") == (200, "ok")
    assert await scraped.get(process, "/readyz") == (200, "ok")
    _, text = await scraped.get(process, "/metrics")
    families = {each.name: each for each in text_string_to_metric_families(text)}
    ours = [each for each in families.values() if not each.name.startswith("process_")]
    assert len(ours) > 3
    for family in ours:
        metric = BY_NAME.get(family.name) or BY_NAME[f"{family.name}_total"]
        assert process.removeprefix("instaslice-") in metric.components
        assert family.documentation == metric.help
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)
            assert not BOUNDED & set(sample.labels) or family.name == "instaslice_slice_info"


async def test_the_metrics_follow_a_pod_through_its_life(scraped, stage):
    await scraped.allocations()
    node = await stage.node(gpus=1)
    admitted = await scraped.value(WEBHOOK, "instaslice_admissions_total", result="changed")
    released = await scraped.value(CONTROLLER, "instaslice_state_seconds_count", state="deleting")
    created = {"operation": "create", "profile": "4g.20gb"}
    made = await scraped.value(AGENT, "instaslice_slice_operation_seconds_count", **created)
    await stage.create(pod("train", "4g.20gb"))
    await stage.running("train")
    await scraped.allocations(ungated=1)
    assert await scraped.value(WEBHOOK, "instaslice_admissions_total", result="changed") == admitted + 1
    assert await scraped.value(AGENT, "instaslice_slice_operation_seconds_count", **created) == made + 1
    (held,) = stage.thing(node).status.slices
    of_slice = {
        "UUID": held.gpu, "GPU_I_ID": str(held.gi), "GPU_I_PROFILE": "4g.20gb", "mig_uuid": held.mig_uuid,
        "namespace": stage.namespace, "pod": "train", "container": "main",
    }  # fmt: skip
    assert await scraped.value(AGENT, "instaslice_slice_info", **of_slice) == 1

    # One that finds no room waits, and says why.
    await stage.create(pod("waits", "7g.40gb"))
    await stage.waits("waits")
    waiting = {
        (CONTROLLER, "instaslice_queue_length", frozenset()): 1.0,
        (CONTROLLER, "instaslice_waiting_pods", frozenset({("reason", "Waiting")})): 1.0,
    }
    await scraped.until(waiting)
    assert await scraped.value(CONTROLLER, "instaslice_state_oldest_seconds", state="waiting") > 0

    await stage.delete("waits", "train")
    await stage.free()
    await scraped.allocations()
    await scraped.until(dict.fromkeys(waiting, 0.0))
    assert await scraped.value(CONTROLLER, "instaslice_state_seconds_count", state="deleting") == released + 1
    assert await scraped.value(AGENT, "instaslice_slice_info", **of_slice) == 0


async def test_a_controller_that_was_killed_comes_back_with_the_same_gauges(scraped, stage, sliced):
    await stage.node(gpus=1)
    await stage.create(pod("train", "3g.20gb"))
    await stage.running("train")
    await stage.create(pod("waits", "7g.40gb"))
    await stage.waits("waits")
    await scraped.allocations(ungated=1)
    gauges = (
        "instaslice_gpu",
        "instaslice_allocations",
        "instaslice_queue",
        "instaslice_slices_held",
        "instaslice_nodes",
    )

    async def read():
        return {key: value for key, value in (await scraped.metrics(CONTROLLER)).items() if key[0].startswith(gauges)}

    before = await read()
    assert before
    await asyncio.to_thread(sliced.kill, CONTROLLER)
    with pytest.raises(aiohttp.ClientConnectionError):
        await scraped.get(CONTROLLER, "/metrics")
    await asyncio.to_thread(sliced.start, CONTROLLER)
    await scraped.until({(CONTROLLER, "instaslice_leader", frozenset()): 1.0, **_of(CONTROLLER, before)})
    assert await scraped.value(CONTROLLER, "instaslice_state_seconds_count", state="waiting") == 0


def _of(process, values):
    return {(process, *key): value for key, value in values.items()}


async def test_a_pod_is_found_in_three_logs_by_its_uid(stage, sliced):
    await stage.node(gpus=1)
    await stage.create(pod("train", "1g.5gb"))
    (running,) = await stage.running("train")
    uid, request = running.metadata.uid, running.metadata.annotations[names.ADMISSION]
    await stage.delete("train")

    def lines(process, key):
        return [line for line in sliced.processes.log(process).read_text().splitlines() if key in line]

    def of_controller():
        told = [line.replace(" pod=", " ") for line in lines(CONTROLLER, f"uid={uid}")]
        return [word for line in told for word in words if f" {word} " in line][:5]

    def of_agent():
        return [line.split()[2] for line in lines(AGENT, f"uid={uid}")]

    words = ["waits", "creating", "created", "ungated", "deleting"]
    # A process may log what it did a moment after others have seen it.
    await until(lambda: of_controller() == words, PATIENCE, of_controller)
    await until(lambda: of_agent() == ["create", "destroy"], PATIENCE, of_agent)
    assert [line.split()[2] for line in lines(WEBHOOK, f"request={request}")] == ["CREATE:"]
    assert f"request={request}" in lines(CONTROLLER, f"uid={uid}")[0]


@contextlib.asynccontextmanager
async def guarded(sliced):
    """An agent without nodes whose metrics are not for everybody: where it serves them, and what it logs as JSON."""
    command = [
        *(sys.executable, "-m", "instaslice.cli", "agent", "--emulated", "--nodes", f"none={uuid.uuid4().hex}"),
        *("--observe", "127.0.0.1:0", "--metrics-auth", "--log-format", "json"),
        *("--kubeconfig", str(sliced.plane().kubeconfig(AGENT))),
    ]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(PATIENCE):
            while "served at" not in (said := json.loads(await process.stderr.readline())["message"]):
                pass
            yield said.split()[-1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_metrics_are_for_those_whom_the_api_server_lets_read_them(sliced):
    authority = Authority(sliced.plane().layout.pki)
    reader, other = "kwok", "instaslice-webhook"
    async with (
        ClusterObjects.connect(sliced.kubeconfig) as objects,
        guarded(sliced) as address,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http,
    ):

        async def asked(token, path="/metrics"):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with http.get(f"{address}{path}", headers=headers) as answer:
                return answer.status, await answer.text()

        assert address.startswith("https://")
        # Without the role that comes with the flag it cannot ask who somebody is, and lets nobody in.
        status, why = await asked(authority.token(reader))
        assert status == 503 and "create tokenreviews" in why
        await _grant(objects)
        assert await _settled(lambda: asked("forged"), 503, 429) == (401, "the API server does not know this token")
        assert (await asked(None))[0] == 401
        # Of one address, one new token a second is looked up.
        status, why = await _settled(lambda: asked(authority.token(other)), 429)
        assert status == 403 and why.startswith(f"{CLIENTS[other]} may not read the metrics")
        assert "instaslice_build_info" in (await _settled(lambda: asked(authority.token(reader)), 429))[1]
        # The kubelet has no token.
        assert await asked(None, "/healthz") == (200, "ok")
        assert (await asked(None, "/readyz"))[0] == 503


async def _grant(objects):
    subject = {"kind": "User", "apiGroup": roles.RBAC, "name": CLIENTS[AGENT]}
    for document in roles.documents("instaslice-metrics-auth", roles.METRICS_AUTH, subject):
        await objects.apply(GRANTS[document["kind"]], document)
    await objects.apply(ROLES, roles.METRICS_READER)
    name = roles.METRICS_READER["metadata"]["name"]
    binding = {
        "metadata": {"name": name},
        "subjects": [{"kind": "User", "apiGroup": roles.RBAC, "name": CLIENTS["kwok"]}],
        "roleRef": {"apiGroup": roles.RBAC, "kind": "ClusterRole", "name": name},
    }
    await objects.apply(BINDINGS, binding)


async def _settled(ask, *before):
    """The first answer with another status: the API server takes a moment to know of a new role."""
    async with asyncio.timeout(PATIENCE):
        while (answer := await ask())[0] in before:
            await asyncio.sleep(PAUSE)
        return answer
