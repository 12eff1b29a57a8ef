"""What an installation stands on: one that is well has no finding, and each fault has the one that names it."""

import asyncio
from dataclasses import replace

import msgspec
import pytest
from fake_clock import FakeClock
from installations import (
    BOTH,
    WEBHOOK,
    behind_a_service,
    binding,
    bundle,
    definition,
    expired_bundle,
    installation,
    lease,
    namespace,
    policy,
    quota,
    webhook,
)
from memory_server import MemoryServer
from small_worlds import node, pod
from waiting import passes

from instaslice.doctor import Invariant, examine_installation
from instaslice.doctor.dry_run import DryRuns
from instaslice.doctor.installation import Installation
from instaslice.doctor.installation_kinds import BINDINGS, POLICIES, WEBHOOKS
from instaslice.kube.core import LEASES, Condition
from instaslice.kube.errors import Unreachable


def test_one_that_is_well_has_no_finding():
    assert examine_installation(installation(), [pod("a", on="gpu-0")], [node()]) == []


def test_one_that_is_well_may_be_in_a_service():
    assert examine_installation(installation(webhooks=[behind_a_service(caBundle=bundle())])) == []


def without_the_field_holder(spec, _):
    status = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    del status["properties"]["slices"]["items"]["properties"]["holder"]


def without_status(spec, _):
    del spec["versions"][0]["subresources"]["status"]


def schema_of(spec, *path):
    """The schema of a field, or `[]` of its entries."""
    schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
    for each in path:
        schema = schema["items"] if each == "[]" else schema["properties"][each]
    return schema


ENTRY = ("spec", "allocations", "[]")
STRICTER = [
    pytest.param(ENTRY[:2], {"maxItems": 1}, "spec.allocations (maxItems 1, not 512)", id="fewer entries"),
    pytest.param(ENTRY[:2], {"minItems": 2}, "spec.allocations (minItems 2, not any)", id="more entries"),
    pytest.param((*ENTRY, "id"), {"minLength": 9.0}, "spec.allocations[].id (minLength 9, not 1)", id="longer ids"),
    pytest.param((*ENTRY, "state"), {"enum": ["creating"]}, "[].state (not created, de", id="fewer states"),
    pytest.param((*ENTRY, "start"), {"enum": [0]}, "[].start (not others)", id="states where any is legal"),
    pytest.param((*ENTRY, "start"), {"type": "string"}, "[].start (type string, not integer)", id="another type"),
    pytest.param((*ENTRY, "profile"), {"pattern": "^1g"}, "[].profile (pattern ^1g, not ^[1-9]", id="fewer profiles"),
    pytest.param(("spec",), {"required": ["allocations", "a"]}, "spec (requires a)", id="a field of theirs"),
    pytest.param(("status", "bootId"), {"nullable": False}, "status.bootId (not null)", id="no null"),
    pytest.param((), {"x-kubernetes-validations": [{"rule": "false"}]}, "the object (x-kub", id="rules of their own"),
]


@pytest.mark.parametrize("path, change, said", STRICTER)
def test_a_definition_that_refuses_what_we_write_is_found(path, change, said):
    stricter = definition(lambda spec, _: schema_of(spec, *path).update(change))
    (found,) = examine_installation(installation(definitions=[stricter]))
    assert found.invariant is Invariant.DEFINITION_MATCHES
    assert found.message.startswith("restricts ")
    assert said in found.message
    assert "so the API server refuses writes; apply the definition" in found.message


@pytest.mark.parametrize(
    "path, change",
    [
        pytest.param(ENTRY[:2], {"maxItems": 1024}, id="more entries"),
        pytest.param((*ENTRY, "id"), {"minLength": 0}, id="shorter ids"),
        pytest.param(("spec",), {"required": []}, id="nothing is required"),
        pytest.param((), {"description": "other words"}, id="another description"),
    ],
)
def test_a_definition_that_allows_more_is_well(path, change):
    looser = definition(lambda spec, _: schema_of(spec, *path).update(change))
    assert examine_installation(installation(definitions=[looser])) == []


def renamed(spec, _):
    spec["versions"][0]["name"] = "v1"


def not_served(spec, _):
    spec["versions"][0]["served"] = False


def stored_elsewhere(spec, status):
    spec["versions"][0]["storage"] = False
    spec["versions"].append({"name": "v1", "served": True, "storage": True, "schema": {}})
    status["storedVersions"] = ["v1alpha1", "v1"]


def not_established(_, status):
    status["conditions"] = []


def pods_only(**changes):
    return {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], **changes}


HOOK, POLICY = f"mutatingwebhookconfiguration {WEBHOOK}", "validatingadmissionpolicy instaslice-pods"
HELD, CRD = "lease instaslice-system/instaslice-controller", "customresourcedefinition instaslices.gpu.das.com"
FAULTS = [
    pytest.param({"webhooks": []}, "webhook-called", HOOK, "does not exist", id="no webhook configuration"),
    pytest.param(
        {"webhooks": [webhook(name="other.example.com")]},
        "webhook-called",
        HOOK,
        "does not exist",
        id="another's webhook",
    ),
    pytest.param(
        {"webhooks": [webhook(failurePolicy="Ignore")]},
        "webhook-called",
        HOOK,
        "has the failurePolicy Ignore",
        id="pods pass while it is down",
    ),
    pytest.param(
        {"webhooks": [behind_a_service()]}, "webhook-called", HOOK, "has no caBundle", id="nothing that is trusted"
    ),
    pytest.param(
        {"webhooks": [webhook(ca="%%%")]}, "webhook-called", HOOK, "that is no certificate", id="a bundle that is none"
    ),
    pytest.param(
        {"webhooks": [webhook(ca=bundle("nothing"))]},
        "webhook-called",
        HOOK,
        "that is no certificate",
        id="a bundle without a certificate",
    ),
    pytest.param(
        {"webhooks": [webhook(ca=expired_bundle())]}, "webhook-called", HOOK, "expired on 20", id="an expired bundle"
    ),
    pytest.param(
        {"dry_runs": DryRuns(not_reached="it does not answer")},
        "webhook-called",
        HOOK,
        "it does not answer",
        id="a webhook that does not answer",
    ),
    pytest.param(
        {"webhooks": [webhook(rules=[pods_only(resources=["configmaps"])])]},
        "webhook-called",
        HOOK,
        "has no rule that sends new pods",
        id="rules for other things",
    ),
    pytest.param(
        {"webhooks": [webhook(rules=[pods_only(operations=["UPDATE"])])]},
        "webhook-called",
        HOOK,
        "has no rule that sends new pods",
        id="rules for updates only",
    ),
    pytest.param(
        {"webhooks": [webhook(objectSelector={"matchLabels": {"a": "b"}})]},
        "webhook-called",
        HOOK,
        "has an objectSelector",
        id="some pods only",
    ),
    pytest.param(
        {"dry_runs": DryRuns(not_gated="gates no pod")},
        "webhook-called",
        HOOK,
        "gates no pod; apply the webhook's configuration again",
        id="a pod that is not gated",
    ),
    pytest.param(
        {"dry_runs": DryRuns(not_reached="it is not reached"), "webhooks": [webhook(ca=expired_bundle())]},
        "webhook-called",
        HOOK,
        "expired on 20",
        id="a webhook that is not reached, for a reason that is known",
    ),
    pytest.param({"policies": [policy(BOTH[1])]}, "policies-bound", POLICY, "does not exist", id="no policy"),
    pytest.param(
        {"policies": [policy(guarded=["gpu.das.com/node"]), policy(BOTH[1])]},
        "policies-bound",
        POLICY,
        "does not look at gpu.das.com/requested, gpu.das.com/mig-uuids, gpu.das.com/given (validations)",
        id="a policy that was emptied",
    ),
    pytest.param(
        {"dry_runs": DryRuns(forged="accepts a forged annotation")},
        "policies-bound",
        POLICY,
        "accepts a forged annotation; apply the policies again",
        id="a forged annotation that is accepted",
    ),
    pytest.param(
        {"policies": [policy(failure="Ignore"), policy(BOTH[1])]},
        "policies-bound",
        POLICY,
        "has the failurePolicy Ignore",
        id="a policy that lets through what it cannot judge",
    ),
    pytest.param({"bindings": [binding(BOTH[1])]}, "policies-bound", POLICY, "is not bound", id="an unbound policy"),
    pytest.param(
        {"bindings": [binding(BOTH[0], "Audit"), binding(BOTH[1])]},
        "policies-bound",
        POLICY,
        "denies nothing",
        id="a policy that only audits",
    ),
    pytest.param({"leases": []}, "controller-leads", HELD, "does not exist", id="no Lease"),
    pytest.param({"leases": [lease(holder="")]}, "controller-leads", HELD, "held by nobody", id="nobody leads"),
    pytest.param(
        {"leases": [lease(age=300)]},
        "controller-leads",
        HELD,
        "not renewed any more by controller-0",
        id="a stale Lease",
    ),
    pytest.param({"definitions": []}, "definition-matches", CRD, "does not exist", id="no definition"),
    pytest.param(
        {"definitions": [definition(renamed)]},
        "definition-matches",
        CRD,
        "does not serve v1alpha1",
        id="another version only",
    ),
    pytest.param(
        {"definitions": [definition(not_served)]},
        "definition-matches",
        CRD,
        "does not serve v1alpha1",
        id="our version is not served",
    ),
    pytest.param(
        {"definitions": [definition(not_established)]},
        "definition-matches",
        CRD,
        "is not established",
        id="not established",
    ),
    pytest.param(
        {"definitions": [definition(without_the_field_holder)]},
        "definition-matches",
        CRD,
        "lacks status.slices[].holder",
        id="an older definition, which drops what we write",
    ),
    pytest.param(
        {"definitions": [definition(without_status)]},
        "definition-matches",
        CRD,
        "has no subresource status",
        id="a status that cannot be written",
    ),
    pytest.param(
        {"quotas": [quota(**{"requests.nvidia.com__mig-1g.5gb": "4"})]},
        "quota-counts",
        "resourcequota team-a/gpus",
        "limits requests.nvidia.com/mig-1g.5gb, which no pod has any more when quotas count; "
        "limit requests.gpu.das.com/mig-1g.5gb: 4",
        id="a quota on the old names",
    ),
    *(
        pytest.param(
            {"quotas": [quota(**{f"requests.nvidia.com__{name}": "2"})]},
            "quota-counts",
            "resourcequota team-a/gpus",
            f"limits requests.nvidia.com/{name}, which names no profile, so it never counts: remove it",
            id=f"a quota on a name that no pod could have, {name}",
        )
        for name in ("mig-mig-1g.5gb", "mig-1g.5gb.shared")
    ),
]


@pytest.mark.parametrize("fault, invariant, thing, message", FAULTS)
def test_a_fault_is_found_and_named(fault, invariant, thing, message):
    (found,) = examine_installation(installation(**fault))
    assert (found.invariant, found.object) == (invariant, thing)
    assert message in found.message
    assert ";" in found.message or ": " in found.message or message == "it does not answer", "a remedy follows"


NOTHING = {"webhooks": [], "policies": [], "bindings": [], "leases": [], "definitions": []}
OLD_NAMES = quota(**{"requests.nvidia.com__mig-1g.5gb": "4"})


@pytest.mark.parametrize(
    "there",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"webhooks": [webhook(name="other.example.com")]}, id="another's webhook"),
        pytest.param({"definitions": [definition()]}, id="a definition that an uninstall left"),
        pytest.param({"definitions": [definition()], "leases": [lease(age=300)]}, id="and a Lease"),
        pytest.param({"quotas": [OLD_NAMES]}, id="a quota on the names of NVIDIA's plugin"),
        pytest.param({"dry_runs": DryRuns(forged="accepts a forged annotation")}, id="nothing that refuses pods"),
        pytest.param({"webhooks": None, "policies": None, "leases": None}, id="no definition, and little may be read"),
    ],
)
def test_a_cluster_without_it_has_one_finding_with_the_command_that_installs_it(there):
    stuck = [pod("a", on="gpu-0")]
    (found,) = examine_installation(installation(**{**NOTHING, **there}), stuck, [node()])
    assert (found.invariant, found.object) == (Invariant.INSTALLED, "cluster")
    assert found.message.startswith("InstaSlice is not installed: ")
    assert "; install it: `helm install instaslice charts/instaslice --namespace instaslice-system" in found.message


@pytest.mark.parametrize(
    "there",
    [
        pytest.param({"webhooks": [webhook()]}, id="its webhook"),
        pytest.param({"policies": [policy()]}, id="one of its policies"),
        pytest.param({"leases": [lease()]}, id="a controller that leads"),
        pytest.param({"definitions": [definition()], "webhooks": None}, id="a definition, and who knows the webhook"),
    ],
)
def test_one_of_which_something_is_left_is_damaged_and_not_absent(there):
    found = {each.invariant for each in examine_installation(installation(**{**NOTHING, **there}))}
    assert found
    assert Invariant.INSTALLED not in found


def with_a_hook_of_others():
    ours = webhook()
    return msgspec.structs.replace(
        ours, webhooks=[*ours.webhooks, msgspec.structs.replace(ours.webhooks[0], name="x.y")]
    )


def labelled(configuration, **labels):
    return msgspec.structs.replace(
        configuration, metadata=msgspec.structs.replace(configuration.metadata, labels=labels)
    )


BY_HELM = {"app.kubernetes.io/managed-by": "Helm"}


@pytest.mark.parametrize(
    "configuration, message",
    [
        pytest.param(with_a_hook_of_others(), "has the webhook x.y, which is not InstaSlice's", id="another webhook"),
        pytest.param(
            webhook(rules=[pods_only(), pods_only(resources=["secrets"])]), "sends the webhook other", id="another rule"
        ),
        pytest.param(
            webhook(rules=[pods_only(resources=["*"])]), "sends the webhook other", id="a rule for everything"
        ),
        pytest.param(webhook(rules=[pods_only(apiGroups=["", "apps"])]), "sends the webhook other", id="other groups"),
        pytest.param(
            labelled(webhook(url="https://10.0.0.1/x"), **BY_HELM),
            "sends pods to https://10.0.0.1/x, not to the Service",
            id="a URL in place of the chart's Service",
        ),
    ],
)
def test_what_a_stolen_token_could_register_is_found(configuration, message):
    (found,) = examine_installation(installation(webhooks=[configuration]))
    assert (found.invariant, found.object) == (Invariant.WEBHOOK_CALLED, HOOK)
    assert found.message.startswith(message)


def test_the_registration_of_the_chart_and_those_of_others_are_well():
    ours = labelled(behind_a_service(caBundle=bundle()), **BY_HELM)
    other = with_a_hook_of_others()
    metadata = msgspec.structs.replace(other.metadata, name="other")
    other = msgspec.structs.replace(other, metadata=metadata, webhooks=other.webhooks[1:])
    assert examine_installation(installation(webhooks=[ours, other])) == []


def test_what_is_stored_in_another_version_is_named_with_what_is_left_of_it():
    found = examine_installation(installation(definitions=[definition(stored_elsewhere)]))
    assert [each.message.partition(";")[0] for each in found] == [
        "still has objects stored as v1",
        "stores objects as v1, not as v1alpha1",
    ]


@pytest.mark.parametrize("age, expired", [(15, False), (15.1, True), (-15.1, True)])
def test_a_lease_runs_out_after_its_duration_and_no_later(age, expired):
    assert installation(leases=[lease(age=age)]).lease_expired is expired


def test_a_lease_that_was_renewed_while_it_was_looked_at_is_fresh_whatever_the_clocks_say():
    assert examine_installation(installation(leases=[lease(age=300)], renewed_meanwhile=True)) == []


OLD, NEW = {"requests.nvidia.com__mig-1g.5gb": "4"}, {"requests.gpu.das.com__mig-1g.5gb": "4"}
FINE = [
    pytest.param({"quotas": [quota(**OLD), quota(name="renamed", **NEW)]}, id="a second quota counts the new names"),
    pytest.param({"quotas": [quota(**OLD, **NEW)]}, id="the same quota counts both"),
    pytest.param(
        {"quotas": [quota(**{"requests.nvidia.com__mig-1g.05gb": "4"}), quota(name="renamed", **NEW)]},
        id="the profile is written in another way",
    ),
    pytest.param({"quotas": [quota(**{"requests.nvidia.com__gpu": "4", "pods": "9"})]}, id="a quota on other things"),
    pytest.param(
        {"quotas": [quota(**OLD)], "namespaces": [namespace(**{"gpu.das.com/slicing": "disabled"})], "webhooks": [
            webhook(namespaceSelector={"matchExpressions": [
                {"key": "gpu.das.com/slicing", "operator": "NotIn", "values": ["disabled"]}]})]},
        id="a namespace that is opted out",
    ),
    pytest.param(
        {"quotas": [quota(**OLD)], "webhooks": [webhook(namespaceSelector={"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-b"]}]})]},
        id="a namespace that the webhook is not called for",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    "item, instead",
    [
        pytest.param("limits.nvidia.com__mig-1g.5gb", "requests.gpu.das.com/mig-1g.5gb", id="limits"),
        pytest.param("nvidia.com__mig-1g.5gb", "requests.gpu.das.com/mig-1g.5gb", id="the name alone"),
        pytest.param("limits.gpu.das.com__mig-1g.5gb", "requests.gpu.das.com/mig-1g.5gb", id="limits, of our name"),
        pytest.param("limits.gpu.das.com__mem", "requests.gpu.das.com/mem", id="limits, of memory"),
        pytest.param("gpu.das.com__mem", "requests.gpu.das.com/mem", id="memory alone"),
    ],
)
def test_a_quota_on_what_kubernetes_never_counts_is_found_unless_another_counts(item, instead):
    (found,) = examine_installation(installation(quotas=[quota(**{item: "4"})]))
    name = item.replace("__", "/")
    assert found.invariant is Invariant.QUOTA_COUNTS
    assert found.message == f"limits {name}, which Kubernetes counts only as requests.*; limit {instead}: 4"
    assert examine_installation(installation(quotas=[quota(**{item: "4", instead.replace("/", "__"): "4"})])) == []


def test_a_quota_that_never_counts_and_names_no_profile_is_to_be_removed():
    (found,) = examine_installation(installation(quotas=[quota(**{"limits.nvidia.com__mig-big": "4"})]))
    assert found.message == "limits limits.nvidia.com/mig-big, which names no profile, so it never counts: remove it"


@pytest.mark.parametrize("state", FINE)
def test_quotas_that_are_fine(state):
    assert examine_installation(installation(**state)) == []


def test_a_quota_elsewhere_does_not_make_up_for_one():
    elsewhere = quota("team-b", **NEW)
    found = examine_installation(installation(quotas=[quota(**OLD), elsewhere]))
    assert [each.object for each in found] == ["resourcequota team-a/gpus"]


def unseen(
    message="0/3 nodes are available: 3 Insufficient nvidia.com/mig-1g.5gb.", *, reason="Unschedulable", **changes
):
    made = pod("old", phase="Pending")
    limits = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}]}
    scheduled = Condition(type="PodScheduled", status="False", reason=reason, message=message)
    spec = msgspec.convert({**limits, **changes}, type(made.spec))
    status = msgspec.structs.replace(made.status, conditions=[scheduled])
    return msgspec.structs.replace(made, spec=spec, status=status)


NOT_CALLED_HERE = {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}


@pytest.mark.parametrize(
    "state, said",
    [
        pytest.param({}, "it was created before InstaSlice's webhook saw the pods", id="older than InstaSlice"),
        pytest.param({"webhooks": [webhook(**NOT_CALLED_HERE)]}, "is not called for its namespace", id="opted out"),
    ],
)
def test_a_pod_that_waits_for_names_that_no_node_has_is_found(state, said):
    (found,) = examine_installation(installation(**state), [unseen()], [node()])
    assert (found.invariant, found.object) == (Invariant.POD_SEEN, "pod team-a/old")
    assert found.message.startswith("waits for nvidia.com/mig-1g.5gb, which no node has: ")
    assert said in found.message


def asking(name):
    return unseen("0/3 nodes are available", containers=[{"name": "main", "resources": {"limits": {name: "1"}}}])


@pytest.mark.parametrize(
    "written, meant",
    [
        pytest.param("nvidia.com/1g.5gb", "nvidia.com/mig-1g.5gb", id="without mig-"),
        pytest.param("nvidia.com/mig1g.5gb", "nvidia.com/mig-1g.5gb", id="without the hyphen"),
        pytest.param("nvidia.com/MIG_1g.5gb.me", "nvidia.com/mig-1g.5gb.me", id="otherwise"),
    ],
)
def test_a_pod_that_asks_for_what_only_looks_like_a_slice_is_found_with_the_name_that_it_means(written, meant):
    (found,) = examine_installation(installation(), [asking(written)], [node()])
    assert found.invariant is Invariant.POD_SEEN
    assert found.message == f"waits for {written}, which no node has: create it again with {meant}"


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/4k", "nvidia.com/gpu.shared", "example.com/1g.5gb"])
def test_a_pod_that_waits_for_something_else_is_not_for_us(name):
    assert examine_installation(installation(), [asking(name)], [node()]) == []


def test_what_the_scheduler_says_of_it_is_another_matter():
    tainted = unseen("0/3 nodes are available: 3 node(s) had untolerated taint {gpu.das.com/managed: }.")
    (found,) = examine_installation(installation(), [tainted], [node()])
    assert found.invariant is Invariant.POD_SEEN


@pytest.mark.parametrize(
    "waits, nodes",
    [
        pytest.param(unseen("gated", reason="SchedulingGated"), [node()], id="for another gate"),
        pytest.param(unseen(), [node(**{"nvidia.com/mig-1g.5gb": "7"})], id="where NVIDIA's plugin serves the name"),
        pytest.param(unseen(nodeName="gpu-0"), [node()], id="bound"),
    ],
)
def test_other_pods_that_ask_for_old_names_are_not_found(waits, nodes):
    assert examine_installation(installation(), [waits], nodes) == []


# Read -----------------------------------------------------------------------------------------------------------------

KINDS = {
    "webhooks": "mutatingwebhookconfigurations",
    "policies": "validatingadmissionpolicies",
    "bindings": "validatingadmissionpolicybindings",
    "leases": "leases",
    "definitions": "customresourcedefinitions",
    "quotas": "resourcequotas",
}


async def all_well(*_):
    return DryRuns()


async def read(server, clock=None, try_out=all_well):
    return await Installation.read(server.client(), clock or FakeClock(), try_out)


@pytest.mark.parametrize("field, kind", KINDS.items())
async def test_what_may_not_be_read_is_noted_with_the_right_that_is_missing_and_the_rest_is_judged(field, kind):
    server = MemoryServer()
    server.refuse("GET", kind, 403)
    found = await read(server)
    assert getattr(found, field) is None
    (note,) = found.not_checked
    assert note.invariant is Invariant.NOT_CHECKED
    assert note.object.startswith((kind[:-1], kind, "lease", "customresourcedefinition"))
    assert f"on {kind}" in note.message
    assert not found.unread
    others = {each.invariant for each in examine_installation(found)} - {Invariant.NOT_CHECKED}
    assert others, "an empty server has other faults"


async def test_where_nothing_may_be_read_nothing_is_known_of_it():
    server = MemoryServer()
    for kind in KINDS.values():
        server.refuse("GET", kind, 403)
    found = await read(server)
    assert found.unread
    assert {each.invariant for each in examine_installation(found)} == {Invariant.NOT_CHECKED}


async def test_what_cannot_be_read_for_another_reason_is_noted_too():
    server = MemoryServer()
    server.refuse("GET", "resourcequotas", 500)
    assert "cannot be read" in (await read(server)).not_checked[0].message


@pytest.mark.parametrize("kind", KINDS.values())
async def test_a_server_that_does_not_answer_is_asked_once(kind):
    server = MemoryServer()
    server.refuse("GET", kind, Unreachable("no answer"))
    with pytest.raises(Unreachable):
        await read(server)
    assert server.calls[-1].kind == kind


async def test_namespaces_that_may_not_be_read_only_cost_precision():
    server = MemoryServer()
    server.refuse("GET", "namespaces", 403)
    found = await read(server)
    assert found.not_checked == []
    assert examine_installation(installation(quotas=[quota(**OLD)], namespaces=None)) != []


async def test_what_dry_runs_cannot_tell_is_noted():
    server = MemoryServer()
    server.put(WEBHOOKS, webhook())
    for name in BOTH:
        server.put(POLICIES, policy(name))
        server.put(BINDINGS, binding(name))

    async def nor_here(*_):
        return DryRuns(unknown="may not be created")

    found = await read(server, try_out=nor_here)
    assert [(each.object, each.message) for each in found.not_checked] == [("pods", "may not be created")]
    assert "webhook-called" not in {each.invariant for each in examine_installation(found)}
    assert (await read(server)).not_checked == []


async def test_a_lease_that_looks_stale_is_looked_at_again():
    """The clock of the machine that looks may be minutes off."""
    server, clock = MemoryServer(), FakeClock()
    server.put(LEASES, lease(age=-3600))
    renewals = iter([lease(age=-3605), None])

    async def read_while(renewal):
        task = asyncio.create_task(read(server, clock))
        await passes(clock, 1)
        if renewal is not None:
            server.put(LEASES, renewal)
        await passes(clock, 10)
        return await task

    for renewal, fresh in zip(renewals, (True, False), strict=True):
        found = await read_while(renewal)
        assert found.renewed_meanwhile is fresh
        invariants = {each.invariant for each in examine_installation(replace(found, webhooks=[webhook()]))}
        assert (Invariant.CONTROLLER_LEADS not in invariants) is fresh
