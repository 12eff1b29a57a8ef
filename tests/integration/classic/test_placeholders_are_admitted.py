"""A placeholder beside our webhook and policies: admitted ungated, with what the flag grants, and no finding."""

import asyncio
import random
from contextlib import suppress

from fitting import container, pod
from waiting import until

from instaslice.api import names, roles
from instaslice.controller.autoscaling import PRIORITY_CLASSES, AutoscalingHints
from instaslice.controller.placeholders import PRIORITY
from instaslice.doctor import check
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import NAMESPACES, PODS
from instaslice.kube.errors import Forbidden
from instaslice.kube.meta import Key
from instaslice.local.objects import ClusterObjects
from instaslice.local.operator import CONTROLLER


async def test_the_controller_makes_placeholders_with_what_the_flag_grants_and_removes_them(sliced, client):
    async def there():
        return await client.list(PODS, Selector(namespace=names.PLACEHOLDERS))

    async def granted():
        with suppress(Forbidden):
            await controller.apply(PRIORITY_CLASSES, PRIORITY, manager=names.CONTROLLER, force=True)
            return True

    objects, waits = ClusterObjects(client), pod(container(cpu="1", **{"gpu.das.com/mig-1g.5gb": "1"}))
    async with await Client.connect(sliced.plane().kubeconfig(CONTROLLER)) as controller:
        assert not await granted()
        await objects.grant(CONTROLLER, roles.controller(autoscaling_hints=True))
        try:
            await until(granted, 30)
            rng, clock = random.Random(0), SystemClock()
            hints = AutoscalingHints(controller, clock, names.PLACEHOLDERS, 1, rng=rng, patience=0)
            running = asyncio.create_task(hints.run())
            hints.set({"u": waits}, {"u": 10_000})
            (placeholder,) = await until(there, 30)
            assert not placeholder.spec.scheduling_gates
            assert [each for each in await check(client) if names.PLACEHOLDERS in each.object] == []
            hints.set({})

            async def gone():
                return not await there()

            await until(gone, 30)
            running.cancel()
        finally:
            await objects.grant(CONTROLLER, roles.controller())
            await client.delete(NAMESPACES, Key("", names.PLACEHOLDERS))
