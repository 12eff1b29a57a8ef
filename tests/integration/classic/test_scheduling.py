"""Pods that the scheduler would bind only to some nodes: their slices are cut there, or not at all."""

from stage import STORY, pod

from instaslice.kube.core import PODS
from instaslice.kube.meta import Key
from instaslice.kube.storage import CLAIMS, CLASSES, VOLUMES

HOST = "kubernetes.io/hostname"


def apart(app, key=HOST):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def labelled(document, **labels):
    document["metadata"]["labels"] = labels
    return document


def needs(*claims):
    return {"volumes": [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]}


async def claim(stage, name, of):
    """Nobody makes volumes of the class `of`."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": of}
    await stage.client.create(CLAIMS, {"metadata": {"namespace": stage.namespace, "name": name}, "spec": spec})


async def volume(stage, name, of, node=None, claimed=None):
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of,
        "hostPath": {"path": f"/tmp/{name}"},
    }
    if node:
        line = {"key": HOST, "operator": "In", "values": [node]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [line]}]}}
    if claimed:
        spec["claimRef"] = {"namespace": stage.namespace, "name": claimed}
    await stage.client.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})


async def test_replicas_that_must_not_share_a_node_are_spread_and_one_too_many_says_why_it_waits(stage):
    nodes = await stage.some_nodes(3)
    names = [f"replica-{number}" for number in range(4)]
    await stage.create(*(labelled(pod(name, **apart("web")), app="web") for name in names[:3]))
    assert {each.spec.node_name for each in await stage.running(*names[:3])} == set(nodes)
    await stage.create(labelled(pod(names[3], **apart("web")), app="web"))
    assert "pod anti-affinity with pods app=web already there" in await stage.waits(names[3])
    await stage.delete(names[1])
    await stage.running(names[3])


async def test_a_hard_spread_is_kept(stage):
    zone = "example.com/zone"
    nodes = [await stage.node(gpus=1, labels={zone: each}) for each in ("a", "b")]
    spread = {"maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    names = [f"replica-{number}" for number in range(6)]
    await stage.create(*(labelled(pod(name, topologySpreadConstraints=[spread]), app="web") for name in names))
    at = [each.spec.node_name for each in await stage.running(*names)]
    assert [at.count(node) for node in nodes] == [3, 3]


async def test_a_pod_whose_claim_is_unbound_keeps_its_gate_and_runs_once_it_is_bound(stage):
    await stage.node(gpus=1)
    of = f"{stage.namespace}-none"
    await stage.create(pod("train", **needs("data")))
    told = await stage.said("train", "WaitingForVolume")
    assert told.message == f"waits for PersistentVolumeClaim {stage.namespace}/data, which does not exist"
    await claim(stage, "data", of)
    assert not stage.held("train")
    found = await stage.client.get(PODS, Key(stage.namespace, "train"))
    assert found.spec.scheduling_gates
    try:
        await volume(stage, f"{stage.namespace}-data", of, claimed="data")
        await stage.running("train")
    finally:
        await stage.client.delete(VOLUMES, Key("", f"{stage.namespace}-data"))


async def test_a_slice_is_cut_where_the_local_volume_is(stage):
    first, second = await stage.some_nodes(2)
    of = f"{stage.namespace}-local"
    local = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    await stage.client.create(CLASSES, {"metadata": {"name": of}, **local})
    made = [f"{stage.namespace}-{each}" for each in ("one", "two")]
    try:
        await volume(stage, made[0], of, node=second)
        for name in ("one", "two"):
            await claim(stage, name, of)
        await stage.create(pod("one", **needs("one")))
        (ran,) = await stage.running("one")
        assert ran.spec.node_name == second
        await stage.create(pod("two", **needs("two")))
        assert f"volume claim two: no volume of class {of} is free there" in await stage.waits("two")
        await volume(stage, made[1], of, node=first)
        (ran,) = await stage.running("two")
        assert ran.spec.node_name == first
    finally:
        for name in made:
            await stage.client.delete(VOLUMES, Key("", name))
        await stage.client.delete(CLASSES, Key("", of))


async def test_a_host_port_is_given_once_a_node(stage):
    nodes = await stage.some_nodes(2)
    names = ["first", "second", "third"]
    for name in names:
        document = pod(name)
        document["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 18080}]
        await stage.create(document)
    at = {each.spec.node_name for each in await stage.running(*names[:2])}
    assert at == set(nodes)
    assert "host port 18080/TCP is in use" in await stage.waits("third")
    assert STORY in stage.pod("third").spec.node_selector
    await stage.delete("first")
    await stage.running("third")
