"""Workloads and pods come, go and are interrupted at random: no place is held for good, and nobody who fits waits.

`KueueWorld.settle` and `check` hold the rest: legal placements, what the ledger counts, and that nobody is overlooked.
"""

from random import Random

import msgspec
import pytest
from kueue_world import KueueWorld

from instaslice.api import names
from instaslice.api.instaslice import Health
from instaslice.geometry import models
from instaslice.kube.core import Container, ResourceRequirements
from instaslice.kueue.objects import EVICTED

PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb", "1g.12gb")
MODELS = ("A100-40GB", "H100-96GB")
STEPS = 40


class RandomStory:
    def __init__(self, seed):
        self.rng = Random(seed)
        self.world = KueueWorld(seed=seed)
        self.asked = {}  # by the name of the workload: profiles, GB, and the pods that are yet to come
        for name in "ab":
            self.world.add_node(name, gpus=self.rng.choice([1, 2]), model=models.named(self.rng.choice(MODELS)))
        self.world.settle()

    def step(self, number):
        happens = [self.workload, self.admission, self.workload_ends, self.evicted, self.by_memory, self.health]
        happens += [self.pod, self.pod, self.pod_ends, self.cordon, self.restart, self.time]
        self.rng.choice(happens)(f"w{number}")
        if self.rng.random() < 0.6:
            self.world.settle()
            return
        for _ in range(self.rng.randrange(6)):
            if deeds := self.world.deeds():
                self.world.do(self.rng.choice(deeds))

    def workload(self, name):
        gb = self.rng.choice([0, 0, 5, 8, 12, 20])
        profiles = [] if gb else [self.rng.choice(PROFILES)]
        count, limits = self.rng.choice([1, 1, 2, 3]), {names.MEMORY: str(gb)} if gb else {}
        retries, namespace = self.rng.choice([None, 1, 7]), self.rng.choice(["team", "other"])
        self.world.queue(name, *profiles, count=count, namespace=namespace, retries=retries, **limits)
        self.asked[name] = [profiles, gb, count]

    def ready(self):
        """One that Kueue was told to admit."""
        known = [each for each in sorted(self.asked) if each in self.world.workloads]
        found = [
            each for each in known if self.world.state(each) == "Ready" and not self.world.workloads[each].has(EVICTED)
        ]
        return self.rng.choice(found) if found else None

    def admission(self, _):
        if name := self.ready():
            self.world.admit(name)

    def evicted(self, _):
        if name := self.ready():
            self.world.evict(name)

    def workload_ends(self, _):
        if name := self.ready():
            self.world.delete(name)

    def pod(self, _):
        name = self.ready()
        if name is None or not self.asked[name][2] or not self.world.answer(name).pod_set_updates:
            return
        profiles, gb, _count = self.asked[name]
        self.asked[name][2] -= 1
        more = {"containers": [by_memory(gb)]} if gb else {}
        self.world.pod_of(name, *profiles, namespace=self.world.workloads[name].metadata.namespace, **more)

    def by_memory(self, _):
        """Outside of all queues."""
        uid = self.world.add_pod(containers=[by_memory(self.rng.choice([4, 5, 8, 12, 18]))])
        meta = self.world.pods[uid].metadata
        fit = {names.FIT: self.rng.choice(["any", "tight"])}
        meta = msgspec.structs.replace(meta, annotations={**meta.annotations, **fit})
        self.world._set(msgspec.structs.replace(self.world.pods[uid], metadata=meta))

    def pod_ends(self, _):
        if running := self.world.running():
            self.world.end_pod(self.rng.choice(running))

    def health(self, _):
        node = self.rng.choice("ab")
        gpus = list(self.world.instaslices[node].status.gpus)
        gpus[0] = msgspec.structs.replace(gpus[0], health=self.rng.choice([Health.HEALTHY, Health.UNHEALTHY]))
        self.world.report(node, gpus=tuple(gpus))

    def cordon(self, _):
        self.world.cordon(self.rng.choice("ab"), self.rng.random() < 0.5)

    def restart(self, _):
        self.world.begin()

    def time(self, _):
        self.world.now += self.rng.choice([1, 6, 30, 61])


def by_memory(gb):
    limits = {names.MEMORY: str(gb), names.ANY_SLICE: "1"}
    return Container(name="main", resources=ResourceRequirements(limits=limits))


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_held_for_good(seed):
    story = RandomStory(seed)
    for number in range(STEPS):
        story.step(number)
    story.world.settle()
    story.world.wait(1000)
    world = story.world
    assert world.held() == []
    assert not world.dispatcher.holds._holds
    assert not world.dispatcher.placer._requests.keys() - world.pods.keys(), "of pods that never existed"
