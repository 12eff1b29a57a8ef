"""How soon a watch that broke is opened again, and how changes are taken from one that stands."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from instaslice.kube.cache import Cache
from instaslice.kube.core import PODS
from instaslice.kube.errors import Invalid, Unreachable
from instaslice.kube.observer import UNOBSERVED
from instaslice.kube.watch import FLOOD_SECONDS, Reflector


class Server:
    """Ends each watch after these seconds, one after the other."""

    observer = UNOBSERVED

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


class Told:
    """A watch that is told these lines at these times, and notes how long it was asked to let them gather."""

    observer = UNOBSERVED

    def __init__(self, clock, *chunks):
        self._clock, self._chunks = clock, list(chunks)
        self.gathered = []

    async def pages(self, resource, selector):
        yield resource.page_decoder.decode(b'{"metadata":{"resourceVersion":"1"},"items":[]}')

    @asynccontextmanager
    async def watch(self, resource, selector, params, *, silent_after):
        if "sendInitialEvents" in params:
            raise Invalid("a server without watch lists")
        yield self

    async def read(self):
        if not self._chunks:
            await asyncio.Event().wait()
        after, lines = self._chunks.pop(0)
        self._clock.advance(after)
        return EVENT * lines

    async def gather(self, seconds):
        self.gathered.append((len(self._chunks), seconds))


EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"7"},"spec":{"containers":[]}}}\n'


async def test_changes_that_come_in_a_flood_are_let_gather_and_one_that_comes_alone_is_not(clock):
    told = Told(clock, (1, 1), (1, 1), (0.001, 1), (1, 3), (1, 1))
    running = asyncio.create_task(Reflector(told, PODS, Cache(), clock=clock, rng=random.Random(1)).run())
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    assert told.gathered == [(2, FLOOD_SECONDS), (1, FLOOD_SECONDS)]
