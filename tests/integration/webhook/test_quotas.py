"""Quotas and limits that were written for `nvidia.com/mig-*`, on the real API server, with its own controllers."""

import asyncio
import random
from contextlib import asynccontextmanager

import msgspec
import pytest
import workloads
from waiting import until
from workloads import SLICE, pod

from instaslice.api import names
from instaslice.controller.kept_quotas import KeptQuotas, companion_key, is_companion
from instaslice.kube import errors
from instaslice.kube.client import Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import EVENTS, PODS
from instaslice.kube.meta import Key
from instaslice.kube.quotas import LIMIT_RANGES, RESOURCE_QUOTAS

FIVE, OURS = "requests.nvidia.com/mig-1g.5gb", "requests.gpu.das.com/mig-1g.5gb"


@asynccontextmanager
async def keeping(client):
    """A controller that does nothing but this."""
    task = asyncio.create_task(KeptQuotas(client, SystemClock(), random.Random(0), wanted=True).run())
    try:
        yield
    finally:
        assert not task.done(), task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def quota(client, namespace, hard, name="gpus", **spec):
    """Make one, and return once the API server judges by it."""
    await client.create(
        RESOURCE_QUOTAS, {"metadata": {"namespace": namespace, "name": name}, "spec": {"hard": hard, **spec}}
    )
    await in_force(client, Key(namespace, name), hard)


async def in_force(client, key, hard):
    """Its status holds what it demands: before that, the API server refuses every pod that it concerns."""

    async def known():
        try:
            body = await client.raw("GET", RESOURCE_QUOTAS.path(*key))
        except errors.NotFound:
            return False
        return msgspec.json.decode(body).get("status", {}).get("hard") == hard

    await until(known, 60, what=f"{key}: {hard}")


async def test_without_the_flag_a_quota_on_the_old_names_counts_no_pod(client, registered):
    namespace = registered.namespace
    await quota(client, namespace, {FIVE: "2"})
    for number in range(3):
        await client.create(PODS, pod(namespace, f"train-{number}", SLICE))
    found = await client.get(RESOURCE_QUOTAS, Key(namespace, "gpus"))
    assert found.status.used == {FIVE: "0"}


async def test_with_the_flag_the_third_pod_of_two_is_refused(client, registered):
    namespace = registered.namespace
    await quota(client, namespace, {FIVE: "2"})
    async with keeping(client):
        await in_force(client, Key(namespace, "gpus-instaslice"), {OURS: "2"})
        for number in range(2):
            await client.create(PODS, pod(namespace, f"train-{number}", SLICE))
        with pytest.raises(errors.Forbidden, match=f"exceeded quota: gpus-instaslice, requested: {OURS}=1"):
            await client.create(PODS, pod(namespace, "train-2", SLICE))
        await client.create(PODS, pod(namespace, "other", {"nvidia.com/mig-2g.10gb": "1"}))
        await client.delete(PODS, Key(namespace, "train-0"))

        async def room():
            try:
                return await client.create(PODS, pod(namespace, "train-3", SLICE))
            except errors.Forbidden:
                return None

        assert await until(room, 60)


async def test_the_pod_of_a_deployment_that_is_too_much_is_named_in_an_event(client, registered):
    namespace = registered.namespace
    await quota(client, namespace, {FIVE: "0"})
    async with keeping(client):
        await in_force(client, Key(namespace, "gpus-instaslice"), {OURS: "0"})
        await client.create(workloads.WORKLOADS["Deployment"], workloads.workload("Deployment", namespace, SLICE))

        async def refused():
            events = await client.list(EVENTS, Selector(namespace=namespace))
            return [each.note for each in events if each.regarding.kind == "ReplicaSet" and "exceeded" in each.note]

        (note, *_) = await until(refused, 60)
    assert "gpus-instaslice" in note


async def test_a_companion_follows_the_quota_and_goes_with_it(client, registered):
    """Also where no controller of ours runs then: the API server's collects what has lost its owner."""
    namespace, key = registered.namespace, Key(registered.namespace, "gpus")
    await quota(client, namespace, {FIVE: "2", "pods": "50"}, scopes=["NotTerminating"])
    async with keeping(client):
        await in_force(client, companion_key(key), {OURS: "2"})
        await client.merge(RESOURCE_QUOTAS, key, {"spec": {"hard": {FIVE: "5"}}})
        await in_force(client, companion_key(key), {OURS: "5"})
        made = await client.get(RESOURCE_QUOTAS, companion_key(key))
        assert is_companion(made) and made.spec.scopes == ["NotTerminating"]
        await client.merge(RESOURCE_QUOTAS, companion_key(key), {"spec": {"hard": {OURS: "9"}}})
        await in_force(client, companion_key(key), {OURS: "5"})
        await client.merge(RESOURCE_QUOTAS, companion_key(key), {"metadata": {"labels": {names.COMPANION: None}}})
        await client.merge(RESOURCE_QUOTAS, key, {"spec": {"hard": {FIVE: "3"}}})
        await in_force(client, companion_key(key), {OURS: "3"})
        assert is_companion(await client.get(RESOURCE_QUOTAS, companion_key(key)))
    await client.delete(RESOURCE_QUOTAS, key)

    async def gone():
        return not await client.list(RESOURCE_QUOTAS, Selector(namespace=namespace))

    await until(gone, 60)


async def test_pods_from_before_are_taken_off(client, namespace, register):
    """They have the old names, and the old quota counts them until they end."""
    await quota(client, namespace, {FIVE: "3"})
    key = Key(namespace, "gpus-instaslice")
    for number in range(2):
        await client.create(PODS, pod(namespace, f"old-{number}", SLICE))
    async with register(), keeping(client):
        await in_force(client, key, {OURS: "1"})
        await client.delete(PODS, Key(namespace, "old-0"), grace_seconds=0)
        await in_force(client, key, {OURS: "2"})


def limits(namespace, item):
    return {"metadata": {"namespace": namespace, "name": "slices"}, "spec": {"limits": [item]}}


@pytest.mark.parametrize(
    "default, asked, given",
    [
        pytest.param("0", None, None, id="none by default"),
        pytest.param("0", SLICE, "1", id="one where none is the default"),
        pytest.param("1", None, "1", id="one by default"),
        pytest.param("1", {"nvidia.com/mig-1g.5gb": "3"}, "3", id="more than the default"),
    ],
)
async def test_a_default_of_a_limit_range_works_as_before(client, registered, default, asked, given):
    """The API server fills it in before it calls the webhook, and again after it."""
    namespace = registered.namespace
    item = {"type": "Container", "default": {"nvidia.com/mig-1g.5gb": default}}
    await client.create(LIMIT_RANGES, limits(namespace, item))

    async def applied():
        """The API server knows the limits: a pod that asks for nothing reaches the webhook."""
        before = registered.asked
        await workloads.create(client, pod(namespace, "probe"), dry_run=True)
        return registered.asked > before

    await until(applied, 60)
    made = await workloads.create(client, pod(namespace, "train", asked), dry_run=True)
    resources = made["spec"]["containers"][0].get("resources", {})
    assert resources.get("limits", {}).get("gpu.das.com/mig-1g.5gb") == given
    assert "nvidia.com" not in str(resources)
    assert bool(made["spec"].get("schedulingGates")) == bool(given)


async def test_a_limit_under_the_old_name_refuses_pods_and_one_under_the_new_name_limits_them(client, registered):
    namespace, key = registered.namespace, Key(registered.namespace, "slices")
    await client.create(LIMIT_RANGES, limits(namespace, {"type": "Pod", "max": {"nvidia.com/mig-1g.5gb": "2"}}))

    async def refused(count, words):
        try:
            await workloads.create(client, pod(namespace, "train", {"nvidia.com/mig-1g.5gb": count}), dry_run=True)
        except errors.Forbidden as error:
            return words in str(error)
        return False

    await until(lambda: refused("1", "maximum nvidia.com/mig-1g.5gb usage per Pod is 2.  No limit is specified"), 60)
    await client.delete(LIMIT_RANGES, key)
    await client.create(LIMIT_RANGES, limits(namespace, {"type": "Pod", "max": {"gpu.das.com/mig-1g.5gb": "2"}}))
    await until(lambda: refused("3", "maximum gpu.das.com/mig-1g.5gb usage per Pod is 2, but limit is 3"), 60)
    await workloads.create(client, pod(namespace, "train", {"nvidia.com/mig-1g.5gb": "2"}), dry_run=True)
