"""Pods on the real node that print the slices they were given."""

import msgspec
from waiting import until

from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES
from instaslice.kube.core import PODS
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import Key
from instaslice.local import images, realnode

PATIENCE = 150
SHOW = "env | grep ^INSTASLICE_ | sort"


def sample(namespace, name, script=SHOW, *, limits=None, init=None, **spec):
    """A pod as a user writes it; `init` are the limits of an init container that prints its slices, too."""

    def container(called, asked, script):
        resources = {"limits": {f"nvidia.com/mig-{profile}": str(n) for profile, n in asked.items()}}
        return {"name": called, "image": images.BUSYBOX, "command": ["sh", "-c", script], "resources": resources}

    body = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container("main", limits or {"1g.5gb": 1}, script)],
        **({"initContainers": [container("first", init, SHOW)]} if init else {}),
        **spec,
    }
    return {"metadata": {"namespace": namespace, "name": name}, "spec": body}


def by_memory(name, gb, script=f"{SHOW}; sleep 3600"):
    """A container of such a pod that asks for memory and names no profile."""
    resources = {"limits": {names.MEMORY: str(gb)}}
    return {"name": name, "image": images.BUSYBOX, "command": ["sh", "-c", script], "resources": resources}


async def phase(client, namespace, name, *wanted):
    async def reached():
        pod = await client.get(PODS, Key(namespace, name))
        return pod if pod.status.phase in wanted else None

    return await until(reached, PATIENCE, f"pod {name} {wanted}")


async def printed(client, namespace, name, container="main", previous=False):
    """What a container wrote, as variables."""
    which = {"container": container, "previous": "true" if previous else "false"}
    text = (await client.raw("GET", f"/api/v1/namespaces/{namespace}/pods/{name}/log", params=which)).decode()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


async def running(client, namespace, name, *containers):
    """The slices of a container that runs and has printed them; of the last one, where several are named."""

    async def shown():
        try:
            told = [await printed(client, namespace, name, container=each) for each in containers or ("main",)]
            return all(told) and told[-1].get("INSTASLICE_MIG_UUIDS")
        except KubeError:
            return None  # it has not begun

    await phase(client, namespace, name, "Running")
    return (await until(shown, PATIENCE, f"pod {name} prints")).split(",")


def promised(pod):
    return pod.metadata.annotations[names.MIG_UUIDS].split(",")


async def container(client, namespace, name):
    """The identity of a pod's container and how often it was started again."""
    found = msgspec.json.decode(await client.raw("GET", f"/api/v1/namespaces/{namespace}/pods/{name}"))
    status = found["status"]["containerStatuses"][0]
    return status["containerID"], status["restartCount"]


async def slices(client):
    """Pod uid → slice, by the object of the node."""
    thing = await client.get(INSTASLICES, Key("", realnode.NAME))
    made = {each.id: each.mig_uuid for each in thing.status.slices if each.state == "created"}
    return {each.pod.uid: made[each.id] for each in thing.spec.allocations if each.id in made}


async def serves(client):
    """The kubelet offers slices: it takes a moment to say so after a restart."""

    async def offered():
        node = msgspec.json.decode(await client.raw("GET", f"/api/v1/nodes/{realnode.NAME}"))
        return node["status"]["allocatable"].get(f"{names.RESOURCE}1g.5gb") == "7"

    await until(offered, PATIENCE, "the node offers seven slices")
