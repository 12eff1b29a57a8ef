"""Work for a cluster while its parts are killed: pods of every size that come, end, and are deleted; a Deployment.

Whoever creates a pod hears of it when the webhook or the API server is away, and tries again, as users do.
"""

import asyncio
from dataclasses import dataclass, field

import manifests
import msgspec
from waiting import until

from instaslice.api import names
from instaslice.api.pods import gated
from instaslice.kube.core import PODS, PartialObjectMetadata
from instaslice.kube.errors import AlreadyExists, Forbidden, NotFound, ServerError, TooManyRequests, Unreachable
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource

NAMESPACE = "default"
DEPLOYMENTS = Resource(PartialObjectMetadata, "Deployment", "deployments", group="apps")
WORKERS = "workers"
RETRY = 0.2
SHAPES = [
    *[[{"1g.5gb": 1}]] * 6,
    *[[{"2g.10gb": 1}]] * 3,
    *[[{"3g.20gb": 1}]] * 3,
    [{"1g.10gb": 1}],
    [{"1g.5gb.me": 1}],
    [{"4g.20gb": 1}],
    [{"7g.40gb": 1}],
    [{"1g.5gb": 2}],
    [{"3g.20gb": 1}, {"2g.10gb": 1}],
    [{"2g.10gb": 1, "1g.5gb": 2}],
]
"""What pods ask for: a mapping for each container. Small ones are the most frequent."""
LONG = [[{"1g.5gb": 1}], [{"3g.20gb": 1}], [{"2g.10gb": 1}, {"1g.5gb": 1}], [{"1g.5gb": 2}], [{"2g.10gb": 1}]]
"""Of those that run from the beginning to the end."""


def pod(name, shape, *, run_for=""):
    """As a user writes it."""
    containers = [
        manifests.container(
            f"c{number}",
            limits={f"nvidia.com/mig-{profile}": str(count) for profile, count in wants.items()},
            requests={"cpu": "100m"},
        )
        for number, wants in enumerate(shape)
    ]
    annotations = {"local.gpu.das.com/run-for": run_for} if run_for else None
    return manifests.pod(
        name, namespace=NAMESPACE, annotations=annotations, restartPolicy="Never", containers=containers
    )


def deployment(replicas):
    labels = {"app": WORKERS}
    made = pod(WORKERS, [{"1g.5gb": 1}])["spec"]
    made["restartPolicy"] = "Always"
    template = {"metadata": {"labels": labels}, "spec": made}
    told = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"namespace": NAMESPACE, "name": WORKERS}, "spec": told}


async def insist(attempt):
    """Until it goes; what is there already, or gone already, is as good."""
    while True:
        try:
            return await attempt()
        except (AlreadyExists, NotFound):
            return None
        except (Forbidden, ServerError, TooManyRequests, Unreachable):
            # Forbidden: an API server that was just started has not read its policies yet.
            await asyncio.sleep(RETRY)


@dataclass
class Load:
    """Everything that was asked for. `rng` decides what comes and when."""

    client: object
    rng: object
    finite: set = field(default_factory=set)
    """Names of the pods that are to succeed."""
    deleted: set = field(default_factory=set)
    ungated: list = field(default_factory=list)
    """Pods that came back from their creation without our gate."""

    async def begin(self):
        """The pods that must not notice anything, and the Deployment."""
        for number, shape in enumerate(LONG):
            await self.create(pod(f"long-{number}", shape))
        await insist(lambda: self.client.create(DEPLOYMENTS, deployment(1)))

    async def run(self, rate):
        """Pods at that rate a second until cancelled; what has begun is brought to its end."""
        number = 0
        async with asyncio.TaskGroup() as group:
            over = asyncio.current_task()
            try:
                while True:
                    await asyncio.sleep(self.rng.expovariate(rate))
                    number += 1
                    group.create_task(self._one(f"pod-{number:04}"))
                    if number % 10 == 0:
                        group.create_task(self.scale(self.rng.randint(0, 6)))
            except asyncio.CancelledError:
                over.uncancel()

    async def create(self, document):
        made = await insist(lambda: self.client.create(PODS, document))
        if made is not None and not gated(made):
            self.ungated.append(made.metadata.name)

    async def scale(self, replicas):
        body = {"spec": {"replicas": replicas}}
        await insist(lambda: self.client.merge(DEPLOYMENTS, Key(NAMESPACE, WORKERS), body))

    async def delete(self, name, **options):
        await insist(lambda: self.client.delete(PODS, Key(NAMESPACE, name), **options))

    async def _one(self, name):
        shape, seconds = self.rng.choice(SHAPES), self.rng.uniform(0.2, 3.0)
        dies_after = self.rng.uniform(0.0, 4.0) if self.rng.random() < 0.2 else None
        forced = self.rng.random() < 0.3
        (self.finite if dies_after is None else self.deleted).add(name)
        await self.create(pod(name, shape, run_for=f"{seconds:.1f}s"))
        if dies_after is not None:
            await asyncio.sleep(dies_after)
            await self.delete(name, **({"grace_seconds": 0} if forced else {}))


class Witness:
    """A Store for a Reflector: sees every pod, and whether one got further than its gate without us."""

    def __init__(self):
        self.pods = {}
        self.passed = []

    def replace(self, objects):
        self.pods = dict(objects)
        for each in objects.values():
            self._judge(each)

    def upsert(self, new):
        self.pods[Key(new.metadata.namespace, new.metadata.name)] = new
        self._judge(new)

    def remove(self, last):
        self.pods.pop(Key(last.metadata.namespace, last.metadata.name), None)

    def _judge(self, each):
        if each.metadata.namespace != NAMESPACE or gated(each):
            return
        annotations = each.metadata.annotations
        if names.REQUESTED not in annotations or names.MIG_UUIDS not in annotations:
            self.passed.append(each.metadata.name)

    async def until(self, done, seconds, what):
        """Wait until `done(pods)` says nothing more; fails with what it says."""

        def left():
            return done(self.pods.values())

        await until(lambda: not left(), seconds, lambda: f"{what}: {left()[:10]}")


async def lives(client):
    """Of each long pod: all that a restart of anything must not change."""
    found = {}
    for number in range(len(LONG)):
        body = await client.raw("GET", PODS.path(NAMESPACE, f"long-{number}"))
        told = msgspec.json.decode(body)
        found[told["metadata"]["name"]] = (
            told["metadata"]["uid"],
            told["metadata"]["annotations"][names.MIG_UUIDS],
            told["spec"]["nodeName"],
            told["status"]["phase"],
            [(each["state"], each["restartCount"]) for each in told["status"]["containerStatuses"]],
        )
    return found
