"""What the webhook says at start of quotas and limits that name what pods do not have any more."""

import logging

import msgspec
import pytest
from memory_server import MemoryServer

from instaslice.api import names
from instaslice.kube.core import NAMESPACES, Namespace
from instaslice.kube.errors import Unreachable
from instaslice.kube.meta import ObjectMeta
from instaslice.kube.quotas import LIMIT_RANGES, RESOURCE_QUOTAS, LimitRange, ResourceQuota
from instaslice.webhook import quota_notice
from instaslice.webhook.quota_notice import MOST_NOTICES

FIVE = "nvidia.com/mig-1g.5gb"


@pytest.fixture
def server():
    return MemoryServer()


def put(server, resource, kind, spec, namespace="team", name="gpus"):
    meta = {"namespace": namespace, "name": name}
    server.put(resource, msgspec.convert({"metadata": meta, "spec": spec}, kind))


def put_quota(server, hard, **more):
    put(server, RESOURCE_QUOTAS, ResourceQuota, {"hard": hard}, **more)


async def said(server, caplog, level=logging.WARNING):
    caplog.set_level(logging.INFO)
    await quota_notice.report(server.client())
    return [each.message for each in caplog.records if each.levelno == level]


async def test_a_quota_is_named_with_what_to_write(server, caplog):
    put_quota(server, {f"requests.{FIVE}": "2", "requests.cpu": "4"})
    assert await said(server, caplog) == [
        f"resourcequota team/gpus: requests.{FIVE} counts no new pod, as InstaSlice renames the resource; write "
        "requests.gpu.das.com/mig-1g.5gb, or let `instaslice controller --keep-quotas` do it"
    ]


@pytest.mark.parametrize(
    "hard",
    [
        pytest.param({"requests.cpu": "4", "requests.nvidia.com/gpu": "1"}, id="names nothing that is renamed"),
        pytest.param({f"requests.{FIVE}": "2", "requests.gpu.das.com/mig-1g.5gb": "2"}, id="has the new name too"),
    ],
)
async def test_a_quota_that_counts_is_not_named(server, caplog, hard):
    put_quota(server, hard)
    assert await said(server, caplog) == []


async def test_a_quota_with_a_companion_is_not_named(server, caplog):
    put_quota(server, {f"requests.{FIVE}": "2"})
    put_quota(server, {f"requests.{FIVE}": "2"}, namespace="other")
    put_quota(server, {"requests.gpu.das.com/mig-1g.5gb": "2"}, name="gpus-instaslice")
    (only,) = await said(server, caplog)
    assert only.startswith("resourcequota other/gpus: ")


async def test_a_namespace_that_is_opted_out_is_not_looked_at(server, caplog):
    labels = {names.OPT_OUT: names.OPTED_OUT}
    server.put(NAMESPACES, Namespace(metadata=ObjectMeta(name="team", labels=labels)))
    put_quota(server, {f"requests.{FIVE}": "2"})
    assert await said(server, caplog) == []


@pytest.mark.parametrize("field", ["max", "min", "maxLimitRequestRatio"])
async def test_a_limit_that_refuses_pods_is_named(server, caplog, field):
    put(server, LIMIT_RANGES, LimitRange, {"limits": [{"type": "Container", field: {FIVE: "1", "cpu": "1"}}]})
    (only,) = await said(server, caplog)
    assert only.startswith(f"limitrange team/gpus: it limits {FIVE}, which no pod has any more")
    assert only.endswith("until it says gpu.das.com/mig-1g.5gb")


async def test_a_default_works_as_before_and_is_not_named(server, caplog):
    put(server, LIMIT_RANGES, LimitRange, {"limits": [{"type": "Container", "default": {FIVE: "0"}}]})
    assert await said(server, caplog) == []


async def test_many_are_counted(server, caplog):
    for number in range(MOST_NOTICES + 3):
        put_quota(server, {f"requests.{FIVE}": "2"}, namespace=f"team-{number}")
    told = await said(server, caplog)
    assert len(told) == MOST_NOTICES + 1
    assert told[-1] == "and 3 more quotas and limits like these"


@pytest.mark.parametrize("error", [403, 500, Unreachable("away")], ids=["forbidden", "broken", "away"])
async def test_a_server_that_does_not_say_costs_the_notice_only(server, caplog, error):
    server.refuse("GET", "resourcequotas", error)
    (only,) = await said(server, caplog, logging.INFO)
    assert only.startswith("quotas that name nvidia.com/mig-* were not looked for: ")
