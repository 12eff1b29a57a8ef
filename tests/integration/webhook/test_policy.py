"""What ordinary users may not do to pods with slices, and what we may."""

import asyncio
import contextlib

import msgspec
import pytest
import workloads
from workloads import SLICE, pod

from instaslice.api import names
from instaslice.api.largest_node import LargestNode
from instaslice.kube import errors
from instaslice.kube.client import JsonOp
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import PODS
from instaslice.kube.meta import Key
from instaslice.webhook import manifests, policy, review
from instaslice.webhook.manifests import CONFIGURATIONS
from instaslice.webhook.policy import BINDINGS, POLICIES
from instaslice.webhook.server import Webhook, serving

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
    async with in_force(client, ann, registered.namespace, ours[0]):
        await client.create(PODS, pod(registered.namespace, "train", SLICE))
        yield Key(registered.namespace, "train")


@contextlib.asynccontextmanager
async def in_force(client, user, namespace, *trusted, **how):
    """The policies, for the pods of one namespace."""
    name = f"pods-{namespace}"
    written = [(POLICIES, each) for each in policy.policies(trusted, name=name, **how)]
    written += [(BINDINGS, each) for each in policy.bindings(name=name, namespaces=[namespace])]
    for resource, document in written:
        await client.create(resource, document)
    try:
        await _heard(user, namespace)
        yield
    finally:
        for resource, document in reversed(written):
            await client.delete(resource, Key("", document["metadata"]["name"]))


async def _heard(client, namespace):
    """The API server compiles a policy some time after it is written: forged requests until each is refused."""
    forged = {names.MIG_UUIDS: "MIG-forged"}
    async with asyncio.timeout(60):
        await _until_forbidden(lambda: workloads.create(client, pod(namespace, "x", annotations=forged), dry_run=True))
        # Of a pod that is not there: whoever may bind it is told so, whom the policy stops is not.
        await _until_forbidden(lambda: workloads.bind(client, Key(namespace, "x"), "gpu-0", annotations=forged))


async def _until_forbidden(attempt):
    while True:
        with contextlib.suppress(errors.NotFound):
            try:
                await attempt()
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


@pytest.mark.parametrize("value", ["{}", ""], ids=["an empty record", "an empty text"])
@pytest.mark.parametrize("annotation", names.RESERVED_ANNOTATIONS)
async def test_a_user_cannot_make_a_plain_pod_with_our_annotation(guarded, ann, annotation, value):
    forged = pod(guarded.namespace, "forged", annotations={annotation: value})
    with pytest.raises(errors.Forbidden, match="leave it out"):
        await ann.create(PODS, forged)
    with pytest.raises(errors.Forbidden, match="leave it out"):
        await ann.apply(PODS, forged, manager="ann")
    forged["metadata"] |= {"name": "", "generateName": "forged-"}
    with pytest.raises(errors.Forbidden, match="leave it out"):
        await ann.create(PODS, forged)


@pytest.mark.parametrize("annotation", names.RESERVED_ANNOTATIONS)
async def test_a_user_cannot_forge_an_annotation_by_an_apply(guarded, ann, annotation):
    document = pod(guarded.namespace, guarded.name, SLICE, annotations={annotation: "MIG-forged"})
    with pytest.raises(errors.Forbidden, match=f"the annotation {annotation} is written by InstaSlice"):
        await ann.apply(PODS, document, manager="ann", force=True)


GONE_ELSEWHERE = {"nodeSelector": {"nobody": "has"}}
"""Keeps kube-scheduler from a pod that a test binds."""


@pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])
@pytest.mark.parametrize("annotation", names.RESERVED_ANNOTATIONS)
async def test_a_user_cannot_forge_an_annotation_by_a_binding(guarded, ann, annotation, legacy):
    plain = Key(guarded.namespace, "plain")
    await ann.create(PODS, pod(*plain, **GONE_ELSEWHERE))
    for value in ("MIG-forged", ""):
        with pytest.raises(errors.Forbidden, match=f"the annotation {annotation} of a pod is written by InstaSlice"):
            await workloads.bind(ann, plain, "gpu-0", annotations={annotation: value}, legacy=legacy)
    await workloads.bind(ann, plain, "gpu-0", annotations={"note": "mine"}, legacy=legacy)
    bound = await ann.get(PODS, plain)
    assert (bound.spec.node_name, bound.metadata.annotations) == ("gpu-0", {"note": "mine"})


async def test_the_scheduler_binds_pods_as_before(guarded, ann):
    plain = Key(guarded.namespace, "plain")
    await ann.create(PODS, pod(*plain))
    async with asyncio.timeout(60):
        while not (await ann.get(PODS, plain)).spec.node_name:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize"])
async def test_other_subresources_take_no_annotation_and_no_gate(guarded, ann, subresource):
    before = await ann.get(PODS, guarded)
    forged = dict.fromkeys(names.RESERVED_ANNOTATIONS, "MIG-forged")
    body = {"metadata": {"annotations": forged}, "spec": {"schedulingGates": None}}
    # Whether that is an error is for the API server to say.
    with contextlib.suppress(errors.Invalid, errors.Forbidden):
        await ann.merge(PODS, guarded, body, subresource=subresource)
    after = await ann.get(PODS, guarded)
    assert (after.metadata.annotations, after.spec) == (before.metadata.annotations, before.spec)


async def test_the_gate_comes_with_slices_only(guarded, ann):
    with pytest.raises(errors.Forbidden, match="is for pods that ask for slices; leave it out"):
        await ann.create(PODS, pod(guarded.namespace, "odd", None, **GATED))


async def test_gpu_memory_alone_is_an_ask_for_a_slice(guarded, ann):
    made = await ann.create(PODS, pod(guarded.namespace, "memory", {names.MEMORY: "5"}))
    assert made.spec.containers[0].resources.limits == {names.MEMORY: "5", names.ANY_SLICE: "1"}
    assert [gate.name for gate in made.spec.scheduling_gates] == [names.GATE]


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
    for limits in ({names.MEMORY: "5"}, {names.MEMORY: "5", names.ANY_SLICE: "1"}):
        with pytest.raises(errors.Forbidden, match="opted out"):
            await ann.create(PODS, pod(guarded.namespace, "memory", limits))
    first = {"initContainers": [{"name": "first", "image": "none", "resources": {"limits": {names.MEMORY: "5"}}}]}
    with pytest.raises(errors.Forbidden, match=r"has not seen the gpu.das.com/mem"):
        await ann.create(PODS, pod(guarded.namespace, "memory", **first))


OURS = {"gpu.das.com/mig-1g.5gb": "1"}
RECORD = {names.REQUESTED: '{"main":{"nvidia.com/mig-1g.5gb":1}}'}


@pytest.fixture
async def unasked(client, namespace, ours, ann):
    """A namespace where the policy is in force and nobody asks the webhook."""
    async with in_force(client, ann, namespace, ours[0]):
        yield namespace


@pytest.mark.parametrize(
    "annotations, limits, more, message",
    [
        pytest.param(RECORD, OURS, {}, "starts with the gate gpu.das.com/slice", id="no gate"),
        pytest.param({}, OURS, GATED, "has not seen the gpu.das.com/mig-", id="no record"),
        pytest.param({names.REQUESTED: "{}"}, OURS, GATED, "has not seen the gpu.das.com/mig-", id="an empty record"),
        pytest.param(
            {names.REQUESTED: ""}, OURS, GATED, "has not seen the gpu.das.com/mig-", id="a record that is an empty text"
        ),
        pytest.param({}, SLICE, {}, "InstaSlice's webhook has not seen", id="nvidia's name"),
        pytest.param(
            RECORD,
            OURS,
            {**GATED, "initContainers": [{"name": "first", "image": "none", "resources": {"limits": SLICE}}]},
            "InstaSlice's webhook has not seen",
            id="nvidia's name beside ours",
        ),
    ],
)
async def test_a_pod_with_slices_comes_as_the_webhook_makes_it(unasked, ann, annotations, limits, more, message):
    with pytest.raises(errors.Forbidden, match=message):
        await ann.create(PODS, pod(unasked, "odd", limits, annotations=annotations, **more))
    await ann.create(PODS, pod(unasked, "even", OURS, annotations=RECORD, **GATED))


async def test_where_the_webhook_does_not_look_slices_are_nvidias(client, namespace, ours, ann):
    async with in_force(client, ann, namespace, ours[0], namespaces=["elsewhere"]):
        made = await ann.create(PODS, pod(namespace, "nvidias", SLICE))
        assert not made.spec.scheduling_gates
        with pytest.raises(errors.Forbidden, match="opted out"):
            await ann.create(PODS, pod(namespace, "ours", OURS, annotations=RECORD, **GATED))


class Adding(Webhook):
    """Another webhook, which gives slices to the last container of each pod."""

    def answer(self, request):
        last = len(request.object.spec.containers) - 1
        patch = {"op": "add", "path": f"/spec/containers/{last}/resources", "value": {"limits": SLICE}}
        self.answered["changed"] += 1
        return review.allowed(request.uid, [patch])


@pytest.fixture
async def later(client, registered):
    """That webhook, registered under a name that sorts after ours."""
    webhook = Adding(LargestNode(), SystemClock())
    async with serving(webhook, registered.source.context, host="127.0.0.1", port=0) as port:
        address = manifests.at_address("127.0.0.1", port, registered.source.state.trusted)
        document = manifests.configuration(address, name=f"zz-{registered.configuration}")
        (hook,) = document["webhooks"]
        del hook["matchConditions"]
        hook["reinvocationPolicy"] = "Never"
        hook["namespaceSelector"] = {"matchExpressions": manifests.only_in([registered.namespace])}
        hook["rules"][0]["operations"] = ["CREATE"]
        await client.create(CONFIGURATIONS, document)
        async with asyncio.timeout(60):
            while not webhook.answered:
                with contextlib.suppress(errors.Forbidden):
                    await workloads.create(client, pod(registered.namespace, "probe"), dry_run=True)
        yield
        await client.delete(CONFIGURATIONS, Key("", document["metadata"]["name"]))


async def test_slices_that_a_later_webhook_gives_to_a_pod_that_had_none_are_refused(guarded, later, ann):
    with pytest.raises(errors.Forbidden, match="a name that sorts before instaslice-webhook"):
        await ann.create(PODS, pod(guarded.namespace, "plain"))


async def test_slices_that_a_later_webhook_adds_to_others_are_taken_too(guarded, later, ann):
    asked = pod(guarded.namespace, "second", SLICE)
    asked["spec"]["containers"].append({"name": "side", "image": "none"})
    made = await ann.create(PODS, asked)
    assert [each.resources.limits for each in made.spec.containers] == [{**OURS, names.MEMORY: "5"}] * 2
    record = msgspec.json.decode(made.metadata.annotations[names.REQUESTED])
    assert record == {"main": {"nvidia.com/mig-1g.5gb": 1}, "side": {"nvidia.com/mig-1g.5gb": 1}}


async def test_our_account_notes_the_slices_and_removes_the_gate(guarded, ours):
    _, controller = ours
    await controller.merge(PODS, guarded, noted(names.MIG_UUIDS, "MIG-1"))
    done = await controller.patch(PODS, guarded, UNGATE)
    assert not done.spec.scheduling_gates
    assert done.metadata.annotations[names.MIG_UUIDS] == "MIG-1"
