"""How soon a watch that broke is opened again."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from instaslice.kube.cache import Cache
from instaslice.kube.core import PODS
from instaslice.kube.errors import Unreachable
from instaslice.kube.watch import Reflector


class Server:
    """Ends each watch after these seconds, one after the other."""

    def __init__(self, clock, lives):
        self._clock = clock
        self._lives = iter(lives)
        self.opened, self.ended = [], []

    @asynccontextmanager
    async def watch(self, *_, **__):
        self.opened.append(self._clock.monotonic())
        await self._clock.sleep(next(self._lives, 1e9))
        self.ended.append(self._clock.monotonic())
        raise Unreachable("away")
        yield


@pytest.mark.parametrize(
    "lives, least, most",
    [
        pytest.param([0], 0.8, 1.6, id="the first time it breaks"),
        pytest.param([0, 0, 0], 3.2, 6.4, id="refused three times: ever later"),
        pytest.param([0] * 20, 10, 20, id="refused for long: not later than this"),
        pytest.param([*[0] * 20, 30], 0.8, 1.6, id="away for long, then back for half a minute"),
    ],
)
async def test_the_wait_before_the_next_watch(clock, lives, least, most):
    server = Server(clock, lives)
    running = asyncio.create_task(Reflector(server, PODS, Cache(), clock=clock, rng=random.Random(1)).run())
    while len(server.opened) <= len(lives):
        for _ in range(5):
            await asyncio.sleep(0)
        clock.advance(0.1)
    running.cancel()
    assert least - 0.2 <= server.opened[-1] - server.ended[-1] <= most + 0.2
