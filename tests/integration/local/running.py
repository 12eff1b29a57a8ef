"""Pods for the tests of the local cluster, and waiting for what becomes of them."""

import asyncio
import random
from typing import Any

import manifests

from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS, Pod
from instaslice.kube.meta import Key
from instaslice.kube.watch import Reflector


def pod(
    namespace: str, name: str, *, image: str = "none", command: list[str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod of one container. Keywords that are annotations go there, the rest into the spec."""
    annotations = {f"local.gpu.das.com/{key}": spec.pop(key) for key in ("run-for", "exit-code") if key in spec}
    containers = [manifests.container(image=image, **({"command": command} if command else {}))]
    spec = {"restartPolicy": "Never", "containers": containers, **spec}
    return manifests.pod(name, namespace=namespace, annotations=annotations, **spec)


async def phase(client: Client, namespace: str, name: str, *wanted: str, seconds: float = 90) -> Pod:
    """The pod once it is in one of the phases wanted. Fails with the phase it stays in."""
    cache: Cache[Pod] = Cache()
    changed = asyncio.Event()
    cache.on_change(lambda _old, _new: changed.set())
    selector = Selector(namespace=namespace, fields=f"metadata.name={name}")
    reflector = Reflector(client, PODS, cache, clock=SystemClock(), rng=random.Random(0), selector=selector)
    watching = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = cache.get(Key(namespace, name))
                if found and found.status.phase in wanted:
                    return found
                await changed.wait()
                changed.clear()
    except TimeoutError:
        seen = cache.get(Key(namespace, name))
        raise AssertionError(f"pod {name} is {seen.status.phase if seen else 'gone'}, not {wanted}") from None
    finally:
        watching.cancel()
