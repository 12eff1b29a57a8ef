"""Who is in the way of a waiting pod, and what to do where it is the pod's own Deployment."""

from datetime import timedelta

import msgspec
import pytest
from small_worlds import NOW, allocation, instaslice, node, pod, uuid, world

from instaslice.api.instaslice import SliceState
from instaslice.api.names import GATE, SLICE_READY
from instaslice.controller.explain import Explainer, Stage
from instaslice.controller.slice_holders import TEMPLATE_HASH, owner_of
from instaslice.kube.core import Condition
from instaslice.kube.meta import OwnerReference
from instaslice.kube.workloads import WorkloadResource
from instaslice.placement import policies


def owned(each, kind, name, hash_=""):
    owner = OwnerReference(api_version="v1", kind=kind, name=name, uid=f"uid-{name}", controller=True)
    labels = {TEMPLATE_HASH: hash_} if hash_ else {}
    meta = msgspec.structs.replace(each.metadata, owner_references=[owner], labels=labels)
    return msgspec.structs.replace(each, metadata=meta)


def of_deployment(each, name="web", hash_="111"):
    return owned(each, "ReplicaSet", f"{name}-{hash_}", hash_)


def holding(name, profile="7g.40gb", gpu="GPU-0", start=0, **more):
    held = allocation(name, profile, start, gpu=gpu)
    return held, pod(name, profile, on="gpu-0", given=[uuid(held)], **more)


def explained(here, name="w", deployment=None):
    found = next(each for each in here.pods if each.metadata.name == name)
    return Explainer(here, policies.named("adaptive")).explain(found, deployment)


OWNERS = [
    pytest.param(("ReplicaSet", "web-5d4f", "5d4f"), ("Deployment", "web"), id="a Deployment by its ReplicaSet's name"),
    pytest.param(("ReplicaSet", "web-5d4f", ""), ("ReplicaSet", "web-5d4f"), id="a ReplicaSet of its own"),
    pytest.param(("Job", "train", ""), ("Job", "train"), id="a Job"),
    pytest.param(("StatefulSet", "db", ""), ("StatefulSet", "db"), id="a StatefulSet"),
]


@pytest.mark.parametrize("owner, said", OWNERS)
def test_who_created_a_pod(owner, said):
    assert owner_of(owned(pod("w"), *owner)) == said


def test_a_pod_that_nobody_created_has_no_owner():
    assert owner_of(pod("w")) is None


def test_who_holds_the_slices_is_named_with_owner_and_time_the_longest_first():
    one, first = holding("train-x", age=7200)
    two, second = holding("web-111-y", gpu="GPU-1", age=60)
    here = world(
        [pod("w", "7g.40gb", gates=[GATE]), of_deployment(second), owned(first, "Job", "train")],
        [instaslice(one, two)],
    )
    found = [(each.pod, each.owner, each.node, each.holds, each.since) for each in explained(here).held_by]
    assert found == [
        ("team-a/train-x", "Job train", "gpu-0", {"7g.40gb": 1}, NOW - timedelta(hours=2)),
        ("team-a/web-111-y", "Deployment web", "gpu-0", {"7g.40gb": 1}, NOW - timedelta(minutes=1)),
    ]


def test_since_is_when_it_got_its_slices_where_its_condition_says_so():
    held, holder = holding("h", age=7200)
    at = NOW - timedelta(minutes=5)
    ready = Condition(type=SLICE_READY, status="True", last_transition_time=at)
    holder = msgspec.structs.replace(holder, status=msgspec.structs.replace(holder.status, conditions=[ready]))
    other, beside = holding("o", gpu="GPU-1")
    here = world([pod("w", "7g.40gb", gates=[GATE]), holder, beside], [instaslice(held, other)])
    assert next(each.since for each in explained(here).held_by if each.pod == "team-a/h") == at


def test_only_nodes_that_could_hold_the_pod_count():
    held, holder = holding("h")
    elsewhere = allocation("e", "7g.40gb", 0, gpu="GPU-2")
    cordoned = node("gpu-1")
    cordoned = msgspec.structs.replace(cordoned, spec=msgspec.structs.replace(cordoned.spec, unschedulable=True))
    other, beside = holding("o", gpu="GPU-1")
    here = world(
        [pod("w", "7g.40gb", gates=[GATE]), holder, beside, pod("e", "7g.40gb", on="gpu-1", given=[uuid(elsewhere)])],
        [instaslice(held, other), instaslice(elsewhere, name="gpu-1", gpus=["GPU-2"])],
        [node(), cordoned],
    )
    assert {each.pod for each in explained(here).held_by} == {"team-a/h", "team-a/o"}


def test_slices_that_we_did_not_create_are_named_too():
    held, holder = holding("h")
    foreign = msgspec.structs.replace(
        instaslice(allocation("x", "7g.40gb", 0, gpu="GPU-1")).status.slices[0], state=SliceState.FOREIGN, id="foreign"
    )
    there = instaslice(held)
    there = msgspec.structs.replace(
        there, status=msgspec.structs.replace(there.status, slices=(*there.status.slices, foreign))
    )
    here = world([pod("w", "7g.40gb", gates=[GATE]), holder], [there])
    assert [(each.pod, each.holds) for each in explained(here).held_by] == [
        ("team-a/h", {"7g.40gb": 1}),
        ("", {"7g.40gb": 1}),
    ]


def deployment(strategy, replicas=2):
    spec = {"replicas": replicas, "strategy": strategy}
    return msgspec.convert({"metadata": {"name": "web", "namespace": "team-a"}, "spec": spec}, WorkloadResource)


def surge(most, unavailable=0, replicas=2):
    return deployment(
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": most, "maxUnavailable": unavailable}}, replicas
    )


FREES_FIRST = "these are deleted first; it is placed when they have ended"
NEEDS_ONE = "these are deleted only when it is ready, so it needs a free slice beside theirs"
DELETES_ONE = "up to 1 of these at a time are deleted first; it is placed when they have ended"
STRATEGIES = [
    pytest.param(deployment({"type": "Recreate"}), f"with Recreate {FREES_FIRST}", False, id="Recreate"),
    pytest.param(surge(0), f"with maxSurge 0 {FREES_FIRST}", False, id="maxSurge 0"),
    pytest.param(surge("0%"), f"with maxSurge 0 {FREES_FIRST}", False, id="maxSurge 0%"),
    pytest.param(surge(1), f"with maxSurge 1 {NEEDS_ONE}", True, id="maxSurge 1"),
    pytest.param(
        surge("25%", "25%", 3),
        f"with maxSurge 25% {NEEDS_ONE}",
        True,
        id="the default of 3: one more, none may be missing",
    ),
    pytest.param(
        surge("25%", "25%", 4),
        f"with maxUnavailable 25% {DELETES_ONE}",
        False,
        id="the default of 4: one may be missing",
    ),
    pytest.param(
        deployment({}, 4), f"with maxUnavailable 25% {DELETES_ONE}", False, id="4, and the default is not said"
    ),
    pytest.param(surge(1, 1), f"with maxUnavailable 1 {DELETES_ONE}", False, id="maxUnavailable 1"),
    pytest.param(None, "(its strategy may not be read)", True, id="a Deployment that may not be read"),
]


@pytest.mark.parametrize("strategy, said, remedy", STRATEGIES)
def test_what_a_pod_is_told_whose_own_deployment_holds_the_slices(strategy, said, remedy):
    told = explained(in_a_rollout(), deployment=strategy).rollout
    assert told.startswith("its own Deployment web is in a rollout, and its older pods hold slices (team-a/web-111-a, ")
    assert said in told
    assert ("kubectl patch deployment web -n team-a -p" in told) is remedy


ENDING = "those that end make room; wait for them first"


@pytest.mark.parametrize(
    "strategy, said",
    [
        pytest.param(surge(1), ENDING, id="maxSurge 1"),
        pytest.param(None, ENDING, id="a Deployment that may not be read"),
        pytest.param(deployment({"type": "Recreate"}), f"with Recreate {FREES_FIRST}", id="Recreate"),
    ],
)
def test_nothing_is_to_be_changed_where_an_older_pod_is_being_deleted_already(strategy, said):
    told = explained(in_a_rollout(deleted=True), deployment=strategy).rollout
    assert "team-a/web-111-a, which is being deleted" in told
    assert told.endswith(said)


def in_a_rollout(**more):
    """A pod that waits for the slices of two older ones; `more` of the first of these."""
    one, old = holding("web-111-a", **more)
    two, other = holding("web-111-b", gpu="GPU-1")
    return world(
        [of_deployment(pod("w", "7g.40gb", gates=[GATE]), hash_="222"), of_deployment(old), of_deployment(other)],
        [instaslice(one, two)],
    )


NO_ROLLOUT = [
    pytest.param(of_deployment(pod("w", "7g.40gb", gates=[GATE])), id="pods of the same template"),
    pytest.param(of_deployment(pod("w", "7g.40gb", gates=[GATE]), "other", "222"), id="another Deployment"),
    pytest.param(pod("w", "7g.40gb", gates=[GATE]), id="a pod without an owner"),
    pytest.param(owned(pod("w", "7g.40gb", gates=[GATE]), "Job", "web"), id="a Job of the same name"),
]


@pytest.mark.parametrize("waits", NO_ROLLOUT)
def test_no_rollout_is_made_up(waits):
    one, old = holding("web-111-a")
    two, other = holding("web-111-b", gpu="GPU-1")
    here = world([waits, of_deployment(old), of_deployment(other)], [instaslice(one, two)])
    assert explained(here, deployment=surge(1)).rollout == ""


def test_all_that_waits_is_listed_as_the_queue_would_serve_it():
    one, holder = holding("h")
    two, beside = holding("o", gpu="GPU-1")
    raw = pod("raw")
    raw = msgspec.structs.replace(
        raw,
        spec=msgspec.convert(
            {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}]}, type(raw.spec)
        ),
    )
    urgent = pod("urgent", "7g.40gb", gates=[GATE], age=10)
    urgent = msgspec.structs.replace(urgent, spec=msgspec.structs.replace(urgent.spec, priority=5))
    here = world(
        [
            holder,
            beside,
            raw,
            pod("late", "1g.5gb", gates=[GATE], age=20),
            pod("gated", "1g.5gb", gates=[GATE, "kueue.x-k8s.io/admission"], age=900),
            pod("early", "1g.5gb", "1g.5gb", gates=[GATE], age=800),
            urgent,
            pod("plain", on="gpu-0"),
        ],
        [instaslice(one, two)],
    )
    found = Explainer(here, policies.named("adaptive")).waiting()
    assert [(each.pod.partition("/")[2], each.stage) for each in found] == [
        ("urgent", Stage.WAITING),
        ("early", Stage.WAITING),
        ("late", Stage.WAITING),
        ("gated", Stage.HELD_BY_KUEUE),
        ("raw", Stage.NOT_OURS),
    ]
    assert found[1].asks == {"1g.5gb": 2}
    assert "the most that one has is 0" in found[1].message
