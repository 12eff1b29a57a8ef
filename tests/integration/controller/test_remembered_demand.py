"""What pods asked for, kept on a real API server with no more than the controller's own permissions."""

import asyncio
import random

from fake_clock import FakeClock
from waiting import passes, until

from instaslice.api import names, roles
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.learning import QUIET_SECONDS, Learning
from instaslice.controller.work_queues import WorkQueues
from instaslice.kube.client import Client
from instaslice.kube.core import CONFIG_MAPS
from instaslice.kube.errors import Forbidden, NotFound
from instaslice.kube.meta import Key
from instaslice.local.objects import ClusterObjects
from instaslice.local.operator import CONTROLLER
from instaslice.placement import policies


def learning(client, namespace, clock):
    policy = policies.named("adaptive", random=random.Random(0))
    state = ClusterState(policy)
    queues = WorkQueues(state, None, clock)
    return policy, Learning(client, policy, state, queues, clock, namespace=namespace, leads=lambda: True)


async def test_a_controller_goes_on_with_what_an_earlier_one_knew(cluster, client, namespace):
    clock, key = FakeClock(), Key(namespace, names.DEMAND)
    await ClusterObjects(client).grant(CONTROLLER, roles.controller(), namespace=namespace)
    async with await Client.connect(cluster.plane().kubeconfig(CONTROLLER)) as controller:

        async def readable():
            try:
                await controller.get(CONFIG_MAPS, key)
            except Forbidden:
                return False
            except NotFound:
                return True

        await until(readable, 30)
        policy, first = learning(controller, namespace, clock)
        for profile in ("1g.5gb", "1g.5gb", "1g.5gb+me", "3g.20gb"):
            policy.arrived(profile)
        await first.recall()
        running = asyncio.create_task(first.run())
        await passes(clock, QUIET_SECONDS + 1)

        async def record():
            try:
                return (await client.get(CONFIG_MAPS, key)).data
            except NotFound:
                return None

        assert await until(record, 30) == {"mig-1g.5gb": "2", "mig-1g.5gb.me": "1", "mig-3g.20gb": "1"}
        running.cancel()
        again, second = learning(controller, namespace, clock)
        await second.recall()
        assert again.asked == policy.asked
