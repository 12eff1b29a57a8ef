"""What ordinary users may not do to pods with slices, and what we may."""

import asyncio

import pytest
import workloads
from workloads import SLICE, pod

from instaslice.api import names
from instaslice.kube import errors
from instaslice.kube.client import JsonOp
from instaslice.kube.core import PODS
from instaslice.kube.meta import Key
from instaslice.webhook import policy
from instaslice.webhook.policy import BINDINGS, POLICIES

GATED = {"schedulingGates": [{"name": names.GATE}]}
UNGATE = [JsonOp(op="remove", path="/spec/schedulingGates")]


def noted(annotation, value="MIG-forged"):
    return {"metadata": {"annotations": {annotation: value}}}


@pytest.fixture
async def ours(user):
    """The user whom the policy lets by: who stands for our controller."""
    return await user("controller")


@pytest.fixture
async def ann(user):
    return (await user("ann"))[1]


@pytest.fixture
async def guarded(client, registered, ours, ann):
    """A pod with a slice in a namespace where the policy is in force."""
    name = f"pods-{registered.namespace}"
    await client.create(POLICIES, policy.policy([ours[0]], name=name))
    await client.create(BINDINGS, policy.binding(name=name, namespaces=[registered.namespace]))
    await client.create(PODS, pod(registered.namespace, "train", SLICE))
    await _heard(ann, registered.namespace)
    yield Key(registered.namespace, "train")
    await client.delete(BINDINGS, Key("", name))
    await client.delete(POLICIES, Key("", name))


async def _heard(client, namespace):
    """The API server compiles a policy some time after it is written: dry runs until one is refused."""
    forged = pod(namespace, "probe", annotations={names.MIG_UUIDS: "MIG-forged"})
    async with asyncio.timeout(60):
        while True:
            try:
                await workloads.create(client, forged, dry_run=True)
            except errors.Forbidden:
                return
            await asyncio.sleep(0.1)


async def test_a_user_cannot_remove_the_gate(guarded, ann):
    with pytest.raises(errors.Forbidden, match=r"the gate gpu.das.com/slice goes when the slices of the pod are there"):
        await ann.patch(PODS, guarded, UNGATE)


@pytest.mark.parametrize("annotation", names.RESERVED_ANNOTATIONS)
@pytest.mark.parametrize("subresource", ["", "status"], ids=["pod", "status"])
async def test_a_user_cannot_forge_an_annotation(guarded, ann, annotation, subresource):
    with pytest.raises(errors.Forbidden, match=f"the annotation {annotation} is written by InstaSlice"):
        await ann.merge(PODS, guarded, noted(annotation), subresource=subresource)


async def test_a_user_cannot_remove_the_record(guarded, ann):
    with pytest.raises(errors.Forbidden, match="leave it as it is"):
        await ann.merge(PODS, guarded, noted(names.REQUESTED, None))


@pytest.mark.parametrize("annotation", names.RESERVED_ANNOTATIONS)
async def test_a_user_cannot_make_a_plain_pod_with_our_annotation(guarded, ann, annotation):
    with pytest.raises(errors.Forbidden, match="leave it out"):
        await ann.create(PODS, pod(guarded.namespace, "forged", annotations={annotation: "{}"}))


@pytest.mark.parametrize(
    "limits, more, message",
    [
        pytest.param(None, GATED, "is for pods that ask for slices; leave it out", id="our gate without a slice"),
        pytest.param({names.MEMORY: "5"}, {}, "comes with slices", id="GPU memory without a slice"),
        pytest.param(
            SLICE,
            {"initContainers": [{"name": "first", "image": "none", "resources": {"limits": {names.MEMORY: "5"}}}]},
            "comes with slices",
            id="GPU memory for a container without a slice",
        ),
    ],
)
async def test_a_user_cannot_take_what_comes_with_slices(guarded, ann, limits, more, message):
    with pytest.raises(errors.Forbidden, match=message):
        await ann.create(PODS, pod(guarded.namespace, "odd", limits, **more))


async def test_users_do_everything_else_as_before(guarded, ann):
    await ann.merge(PODS, guarded, {"metadata": {"labels": {"step": "2"}, "annotations": {"note": "mine"}}})
    await ann.create(PODS, pod(guarded.namespace, "plain"))
    await ann.create(PODS, pod(guarded.namespace, "second", SLICE))
    await ann.delete(PODS, guarded, grace_seconds=0)


async def test_a_namespace_that_is_opted_out_cannot_take_slices_past_the_gate(client, guarded, ann):
    await workloads.opt_out(client, guarded.namespace)
    await ann.create(PODS, pod(guarded.namespace, "nvidias", SLICE))
    with pytest.raises(errors.Forbidden, match="opted out"):
        await ann.create(PODS, pod(guarded.namespace, "ours", {"gpu.das.com/mig-1g.5gb": "1"}))


async def test_our_account_notes_the_slices_and_removes_the_gate(guarded, ours):
    _, controller = ours
    await controller.merge(PODS, guarded, noted(names.MIG_UUIDS, "MIG-1"))
    done = await controller.patch(PODS, guarded, UNGATE)
    assert not done.spec.scheduling_gates
    assert done.metadata.annotations[names.MIG_UUIDS] == "MIG-1"
