"""Kills, one a round: which part, when, and how long it stays away are drawn from one seed.

Parts are killed with SIGKILL and started anew, as a kubelet would; some rounds wait until the part does its work again,
others do not. Twice the leader is stopped for longer than its Lease, a second controller takes over, and the first
wakes up deposed.
"""

import asyncio
import random
import signal
import time

from instaslice.api import names
from instaslice.kube.core import LEASES
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import Key
from instaslice.local.operator import AGENT, CONTROLLER, WEBHOOK

OURS = (CONTROLLER, AGENT, WEBHOOK)
SECOND = f"{CONTROLLER}-second"
WEIGHTS = {
    CONTROLLER: 30,
    AGENT: 32,
    WEBHOOK: 16,
    "kube-apiserver": 10,
    "etcd": 4,
    "kube-scheduler": 5,
    "kube-controller-manager": 3,
}
SERVING = ("etcd", "kube-apiserver")
"""Without these nothing goes on, so a round in which they die waits for them."""
TAKES_OVER = 60.0


class Rounds:
    def __init__(self, cluster, client, rng):
        self._cluster = cluster
        self._client = client
        self._rng = rng
        self._stopped = False
        """Whether the first controller is stopped: it is not to be killed then."""
        self._began = time.monotonic()
        self.number = 0
        self.told = []
        """What was done in each round."""
        self.ended = []
        """Our processes that ended by themselves, and their last words."""

    async def run(self, count):
        episodes = {count // 5: signal.SIGTERM, count * 3 // 5: signal.SIGKILL}
        deposing = asyncio.create_task(asyncio.sleep(0))
        for self.number in range(count):
            await asyncio.sleep(self._rng.uniform(0.0, 1.0))
            await asyncio.to_thread(self._look_after)
            if self.number in episodes:
                await deposing
                # Its own dice: what goes on beside it would draw from ours in any order.
                dice = random.Random(self._rng.random())
                deposing = asyncio.create_task(self._depose(episodes[self.number], dice))
                self._stopped = True
            part = self._draw()
            away, waits = self._rng.choice([0.0, self._rng.uniform(0.0, 0.5)]), self._rng.random() < 0.3
            self.say(f"kill {part}, away {away:.2f} s{', wait for it' if waits else ''}")
            await asyncio.to_thread(self._cluster.kill, part)
            await asyncio.sleep(away)
            await asyncio.to_thread(self._start, part, waits or part in SERVING)
        await deposing

    async def mend(self):
        """Everything runs, and works."""
        # After many restarts of the API server these look for it only once a minute. Not kwok: a new one waits for the
        # leases of its nodes.
        for part in ("kube-scheduler", "kube-controller-manager"):
            await asyncio.to_thread(self._cluster.kill, part)
            await asyncio.to_thread(self._start, part, True)
        for part in WEIGHTS:
            await asyncio.to_thread(self._start, part, True)

    def _draw(self):
        parts = {part: weight for part, weight in WEIGHTS.items() if not (self._stopped and part == CONTROLLER)}
        return self._rng.choices(list(parts), list(parts.values()))[0]

    def _start(self, part, waits):
        if waits:
            self._cluster.start(part)
        elif part in OURS:
            self._cluster.operator().start(part)
        else:
            self._cluster.processes.start(part, self._cluster.plane().commands()[part])

    def _look_after(self):
        """Start what has ended by itself, as a kubelet would, and remember it."""
        for part in OURS:
            if self._cluster.processes.find(part) is None:
                self.ended.append(f"round {self.number}: {part}: {self._cluster.processes.last_log_line(part)}")
                self._start(part, False)

    async def _depose(self, end, dice):
        """Stop the leader; a second takes over; the first goes on where it was, and finds that it leads no more."""
        self.say("stop the leader")
        await asyncio.to_thread(self._cluster.pause, CONTROLLER)
        argv = self._cluster.operator().commands()[CONTROLLER]
        argv = [f"--identity={SECOND}" if word.startswith("--identity=") else word for word in argv]
        argv.append("--observe=")  # the first has the port
        await asyncio.to_thread(self._cluster.processes.start, SECOND, argv)
        await self._led_by(SECOND)
        await asyncio.sleep(dice.uniform(0.0, 2.0))
        self.say("the second leads; the first goes on")
        await asyncio.to_thread(self._cluster.resume, CONTROLLER)
        await asyncio.sleep(dice.uniform(0.0, 3.0))
        self.say(f"the second gets {end.name}")
        self._cluster.processes.find(SECOND).send_signal(end)
        await self._led_by(CONTROLLER)
        await asyncio.to_thread(self._cluster.kill, SECOND)
        self._stopped = False

    async def _led_by(self, who):
        key = Key(names.NAMESPACE, "instaslice-controller")
        try:
            async with asyncio.timeout(TAKES_OVER):
                while await self._holder(key) != who:
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"round {self.number}: {who} does not lead after {TAKES_OVER:.0f} s") from None

    async def _holder(self, key):
        try:
            return (await self._client.get(LEASES, key)).spec.holder_identity
        except KubeError:
            return ""

    def say(self, words):
        self.told.append(f"round {self.number}, {time.monotonic() - self._began:.1f} s: {words}")
