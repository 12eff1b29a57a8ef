"""A pod asks for GPU memory and names no profile."""

import json

import msgspec
import pytest
from stage import container, pod
from waiting import until

from instaslice.api import names
from instaslice.kube import errors
from instaslice.kube.core import PODS
from instaslice.kube.meta import Key
from instaslice.kube.quotas import RESOURCE_QUOTAS

COUNTED = f"requests.{names.MEMORY}"


def by_memory(name, gb, **more):
    return pod(name, {names.MEMORY: gb}, **more)


async def test_it_gets_the_slice_that_wastes_least_is_told_so_is_charged_what_it_asked_for_and_gives_it_back(stage):
    small, large = await stage.node(), await stage.node(model="A100-80GB")
    quota = Key(stage.namespace, "gpu-memory")
    hard = {COUNTED: "50"}
    await stage.client.create(
        RESOURCE_QUOTAS, {"metadata": {"namespace": quota.namespace, "name": quota.name}, "spec": {"hard": hard}}
    )

    async def used(gb):
        status = msgspec.json.decode(await stage.client.raw("GET", RESOURCE_QUOTAS.path(*quota))).get("status", {})
        return status.get("used") == {COUNTED: str(gb)} and status.get("hard") == hard

    await until(lambda: used(0), 60, "a quota in force")
    await stage.create(by_memory("half", 36))
    (half,) = await stage.running("half")
    assert half.spec.node_name == large
    asked = half.spec.containers[0].resources.requests
    assert {name: asked[name] for name in asked if "das.com" in name} == {names.MEMORY: "36", names.ANY_SLICE: "1"}
    given = {"main": {"asked": 36, "gb": 40, "profile": "3g.40gb"}}
    assert json.loads(half.metadata.annotations[names.GIVEN]) == given
    assert "3g.40gb for 36 GB at" in (await stage.said("half", "SliceReady")).message
    assert "3g.40gb for 36 GB at" in await stage.event("half", "SliceReady")
    (allocation,) = stage.held("half")
    assert (allocation.profile, allocation.asked_gb) == ("3g.40gb", 36)
    await until(lambda: used(36), 60, "a charge of what it asked for")
    with pytest.raises(errors.Forbidden, match=f"exceeded quota: gpu-memory, requested: {COUNTED}=15"):
        await stage.create(by_memory("more", 15))
    await stage.delete("half")
    await stage.gone("half")
    await stage.free()
    await until(lambda: used(0), 60, "its charge back")
    assert small != large


async def test_several_containers_ask_each_in_its_own_way(stage):
    node = await stage.node()
    containers = [container("a", {names.MEMORY: 20}), container("b", "1g.5gb"), container("c", {names.MEMORY: 3})]
    await stage.create(pod("several", containers=containers))
    await stage.running("several")
    found = {each.container: (each.profile, each.asked_gb) for each in stage.held("several")}
    assert found == {"a": ("3g.20gb", 20), "b": ("1g.5gb", 0), "c": ("1g.5gb", 3)}
    advertised = stage.nodes.get(Key("", node)).status.allocatable
    assert (advertised[names.MEMORY], advertised[names.ANY_SLICE]) == ("40", "7")


async def test_a_pod_that_waits_for_the_tightest_slice_can_be_told_to_take_any(stage):
    small, large = await stage.node(), await stage.node(model="A100-80GB")
    await stage.create(pod("whole", "7g.40gb"))
    await stage.running("whole")
    await stage.create(by_memory("waits", 5))
    assert f"annotate the pod with {names.FIT}=any" in await stage.waits("waits")
    body = {"metadata": {"annotations": {names.FIT: "any"}}}
    await stage.client.merge(PODS, Key(stage.namespace, "waits"), body)
    (waits,) = await stage.running("waits")
    assert (waits.spec.node_name, stage.held("waits")[0].profile) == (large, "1g.10gb")
    assert stage.held("whole")[0].profile == "7g.40gb"
    assert small != large


@pytest.mark.parametrize(
    "slices, annotations, message",
    [
        pytest.param({names.MEMORY: "8Gi"}, {}, "8Gi is not a number of GB", id="a unit"),
        pytest.param({names.MEMORY: "0"}, {}, "0 is not a number of GB", id="none"),
        pytest.param({names.MEMORY: "8", "1g.5gb": 1}, {}, "mem is 8 and the slices beside it", id="disagrees"),
        pytest.param({names.MEMORY: "8", "nvidia.com/gpu": 1}, {}, "and for nvidia.com/gpu", id="a whole GPU"),
        pytest.param({names.MEMORY: "8"}, {names.FIT: "loose"}, "'loose'; write tight", id="unknown fit"),
        pytest.param({names.ANY_SLICE: 1}, {}, "is what InstaSlice adds", id="our own resource"),
        pytest.param({names.MEMORY: "5000"}, {}, "no slice of a known GPU has 5000 GB", id="more than there is"),
    ],
)
async def test_what_is_refused(stage, slices, annotations, message):
    with pytest.raises(errors.KubeError, match=message):
        await stage.create(pod("odd", slices, annotations=annotations))
