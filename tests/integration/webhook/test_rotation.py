"""Certificates are renewed while pods are made: nobody is refused."""

import asyncio
import datetime

import pytest
import workloads
from workloads import SLICE, pod

from instaslice.api.largest_node import LargestNode
from instaslice.errors import BadInput
from instaslice.kube.client import JsonOp
from instaslice.kube.clock import SystemClock
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.webhook.certificate_sources import SECRETS, STATE, Secret, SecretSource
from instaslice.webhook.certificates import DAY, Lifetimes
from instaslice.webhook.manifests import CONFIGURATIONS, bundle
from instaslice.webhook.server import Webhook

# Everything is due at once; an API server on this machine hears of a new authority well within the pause.
HASTY = Lifetimes(
    authority=20 * DAY,
    authority_early=30 * DAY,
    leaf=10 * DAY,
    leaf_early=20 * DAY,
    settle=datetime.timedelta(seconds=4),
)


class Forgetful(Webhook):
    """Ends every connection: ones that stay open would hide a certificate that the API server does not trust."""

    async def _review(self, request):
        response = await super()._review(request)
        response.force_close()
        return response


async def test_authority_and_leaf_change_under_a_stream_of_pods(client, register):
    async with register(HASTY, Forgetful(LargestNode(), SystemClock())) as hook:
        first = hook.source.state
        rotated = asyncio.Event()
        made = 0

        async def create():
            nonlocal made
            while not rotated.is_set():
                await workloads.create(client, pod(hook.namespace, f"train-{made}", SLICE), dry_run=True)
                made += 1
                await asyncio.sleep(0.02)

        async def rotate():
            while len(hook.source.state.retired) < 2:
                await hook.source.refresh()
                await asyncio.sleep(0.5)
            rotated.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(create())
            group.create_task(rotate())
        assert hook.webhook.answered == {"changed": made}
        assert hook.source.state.leaf != first.leaf
        assert first.authority.certificate in hook.source.state.retired
        configuration = await client.get(CONFIGURATIONS, Key("", hook.configuration))
        assert configuration.webhooks[0].client_config.ca_bundle == bundle(hook.source.state.trusted)


async def test_replicas_share_one_authority(client, register, namespace):
    async with register() as hook:
        other = SecretSource(
            client, Key(namespace, "webhook-tls"), ["127.0.0.1"], configuration=hook.configuration, clock=SystemClock()
        )
        await other.refresh()
        assert other.state == hook.source.state


async def test_a_secret_that_is_deleted_refuses_nobody_at_the_other_replicas(client, register, namespace):
    async with register(webhook=Forgetful(LargestNode(), SystemClock())) as hook:
        key = Key(namespace, "webhook-tls")
        other = SecretSource(client, key, ["127.0.0.1"], configuration=hook.configuration, clock=SystemClock())
        await other.refresh()
        await client.delete(SECRETS, key)
        await other.refresh()
        # This one has not looked since.
        for number in range(50):
            await workloads.create(client, pod(namespace, f"train-{number}", SLICE), dry_run=True)
        assert hook.webhook.answered == {"changed": 50}
        assert (await client.get(SECRETS, key)).data[STATE]


async def test_a_ca_bundle_that_somebody_emptied_is_filled_in_again(client, register):
    async with register() as hook:
        key = Key("", hook.configuration)
        await client.patch(CONFIGURATIONS, key, [JsonOp(op="remove", path="/webhooks/0/clientConfig/caBundle")])
        await hook.source.refresh()
        configuration = await client.get(CONFIGURATIONS, key)
        assert configuration.webhooks[0].client_config.ca_bundle == bundle(hook.source.state.trusted)


async def test_two_replicas_that_start_at_once_agree(client, namespace):
    sources = [
        SecretSource(client, Key(namespace, "tls"), ["127.0.0.1"], configuration="none", clock=SystemClock())
        for _ in range(5)
    ]
    await asyncio.gather(*(source.refresh() for source in sources))
    assert len({source.state.leaf.certificate for source in sources}) == 1


async def test_a_secret_that_cannot_be_read_is_named_with_the_remedy(client, namespace):
    meta = ObjectMeta(namespace=namespace, name="tls")
    await client.create(SECRETS, Secret(metadata=meta, data={STATE: b"{}"}))
    source = SecretSource(client, Key(namespace, "tls"), ["a"], configuration="none", clock=SystemClock())
    remedy = "delete the Secret: .* otherwise a new authority is made"
    with pytest.raises(BadInput, match=f"^secret {namespace}/tls: .*{remedy}$"):
        await source.refresh()
