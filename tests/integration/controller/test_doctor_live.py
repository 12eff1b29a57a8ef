"""The doctor on a real API server, with objects written by hand: what it sees at a moment, and what in passing."""

import asyncio
import contextlib
import random
import ssl
from datetime import UTC, datetime

import msgspec
import pytest
import yaml
from cluster_monitor import ClusterMonitor
from commands import instaslice
from fake_clock import JumpingClock
from hand_written import NODE, Hand, define
from hand_written import hand as hand
from waiting import until

from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.api.largest_node import LargestNode
from instaslice.doctor import (
    Installation,
    Invariant,
    Serving,
    check,
    dry_run,
    examine_installation,
    wait_until_settled,
)
from instaslice.doctor.installation import LEASE
from instaslice.doctor.installation_kinds import AGENT_DAEMON_SETS, BINDINGS, QUOTAS
from instaslice.doctor.serving import agent_responds
from instaslice.kube.client import Client, JsonOp
from instaslice.kube.clock import SystemClock
from instaslice.kube.config import load_pair
from instaslice.kube.errors import NotFound
from instaslice.kube.lease import Election
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.local.binaries import Source
from instaslice.local.cluster import ClusterSpec
from instaslice.local.objects import BINDINGS as ROLE_BINDINGS
from instaslice.local.objects import RBAC, ROLES, rule
from instaslice.webhook import manifests, policy
from instaslice.webhook.certificates import Lifetimes, advance
from instaslice.webhook.server import Webhook, serving


def about(found, *kinds):
    """Other tests share the cluster, and nobody advertises capacity here."""
    return [each.invariant for each in found if each.object.startswith(kinds) and NODE not in each.object]


async def test_a_pod_past_its_gate_without_an_allocation_is_found(client, hand):
    pod, _ = await hand.serve("train", 0)
    assert about(await check(client), f"pod {hand.namespace}") == []
    await hand.reservation()
    assert about(await check(client), f"pod {hand.namespace}") == [Invariant.POD_HAS_SLICES]
    await hand.remove(pod)


async def test_what_is_passing_is_waited_for(client, hand):
    pod, _ = await hand.serve("train", 0)
    await hand.reservation()
    looking = asyncio.create_task(wait_until_settled(client, 20))
    await asyncio.sleep(1)
    await hand.remove(pod)
    await hand.nothing()
    assert about(await looking, f"pod {hand.namespace}") == []


async def test_a_place_held_by_two_pods_for_a_moment_only_is_found_afterwards(client, hand):
    async with ClusterMonitor(client) as monitor:
        first, _ = await hand.serve("first", 0)
        second = await hand.pod("second")
        two = hand.allocation(second, 0)
        await hand.reservation(two)
        await hand.make(two)
        await hand.ungate(second, 0)
        await hand.remove(first)
        await hand.remove(second)
        await hand.reservation()
        await hand.make()
    assert monitor.checked >= 8
    found = {each.invariant for each in monitor.findings}
    assert found == {Invariant.SLICE_EXISTS, Invariant.NO_OVERLAP, Invariant.UUID_ONCE}


async def test_a_clean_history_is_clean(client, hand):
    async with ClusterMonitor(client) as monitor:
        for name in "abc":
            pod, _ = await hand.serve(name, 0)
            await hand.remove(pod)
        await hand.reservation()
        await hand.make()
    assert monitor.checked >= 12
    assert monitor.findings == []


async def test_an_agent_that_takes_note_of_nothing_is_found(client, hand):
    pod = await hand.pod("train")
    ordered = hand.allocation(pod, 0)
    await hand.reservation(ordered)

    async def silent():
        return [each.object for each in agent_responds(await Serving.read(client, JumpingClock()))]

    assert await silent() == [f"instaslice {NODE}"]
    await hand.make(ordered)
    assert await silent() == []


async def test_the_command_says_what_is_wrong_and_fails(cluster, client, hand):
    pod, _ = await hand.serve("train", 0)
    await hand.reservation()
    text = await instaslice(cluster.kubeconfig, "doctor")
    assert text.returncode == 1
    assert f"pod-has-slices  pod {hand.namespace}/train: is past its gate" in text.stdout
    told = await instaslice(cluster.kubeconfig, "doctor", "-o", "json")
    assert told.returncode == 1
    assert {"invariant", "object", "words", "passing"} == set(msgspec.json.decode(told.stdout)[0])
    await hand.remove(pod)


async def test_following_survives_the_api_server(new_cluster):
    cluster = new_cluster("overseen")
    await asyncio.to_thread(cluster.up, ClusterSpec(nodes=1, bare=True), Source())
    async with await Client.connect(cluster.kubeconfig, rate=1000, burst=1000) as client:
        await define(client)
        await client.apply(INSTASLICES, Instaslice(metadata=ObjectMeta(name=NODE)), manager="test")
        hand = Hand(client, "default")
        async with ClusterMonitor(client) as monitor:
            await hand.serve("before", 0)
            await asyncio.to_thread(cluster.kill, "kube-apiserver")
            await asyncio.to_thread(cluster.start, "kube-apiserver")
            # What changes before both watches are back is not judged.
            await hand.pod("after")
            await client.patch(
                INSTASLICES, Key("", NODE), [JsonOp(op="add", path="/metadata/labels", value={"a": "b"})]
            )
            await monitor.catch_up()
            # The slice is taken from a pod that ran before the server went.
            await hand.reservation()
            await hand.make()
        assert Invariant.SLICE_EXISTS in {each.invariant for each in monitor.findings}


@pytest.fixture
async def installed(client, hand):
    """Everything that an installation stands on, in force in the namespace of the test only. Closing it ends the
    webhook."""
    state = advance(None, datetime.now(UTC), ["127.0.0.1"], Lifetimes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, state.leaf.certificate, state.leaf.key)
    only = [hand.namespace]
    key = Key(hand.namespace, LEASE)
    election = Election(client, key, identity="test", clock=SystemClock(), rng=random.Random(0))
    leading = asyncio.create_task(election.run(asyncio.Event().wait))
    async with contextlib.AsyncExitStack() as webhook:
        port = await webhook.enter_async_context(
            serving(Webhook(LargestNode(), SystemClock()), context, host="127.0.0.1", port=0)
        )
        address = manifests.at_address("127.0.0.1", port, state.trusted)
        made = [(manifests.CONFIGURATIONS, manifests.configuration(address, namespaces=only))]
        made += [(policy.POLICIES, each) for each in policy.policies(["nobody"], namespaces=only)]
        made += [(policy.BINDINGS, each) for each in policy.bindings(namespaces=only)]
        for resource, document in made:
            await client.apply(resource, document, manager="test", force=True)
        await until(lambda: election.is_leader, what="the Lease")
        await until(lambda: _nothing_wrong(client, hand.namespace), 30, "the API server to have it all")
        yield webhook
    leading.cancel()
    await asyncio.wait([leading])
    for resource, document in made:
        with contextlib.suppress(NotFound):
            await client.delete(resource, Key("", document["metadata"]["name"]))


async def _nothing_wrong(client, namespace):
    return not await _faults(client, namespace)


async def _faults(client, namespace):
    """Of webhook and policies, as one sees them who works in the namespace."""
    client.namespace = namespace
    installation = await Installation.read(client, SystemClock(), dry_run)
    kinds = Invariant.WEBHOOK_CALLED, Invariant.POLICIES_BOUND, Invariant.NOT_CHECKED
    return [each for each in examine_installation(installation) if each.invariant in kinds]


async def doctor(kubeconfig, namespace):
    """Exit code and findings about the installation; objects of other tests are not of it."""
    told = await instaslice(kubeconfig, "doctor", "-n", namespace, "-o", "json")
    found = msgspec.json.decode(told.stdout) if told.stdout else told.stderr
    kinds = ("mutatingwebhook", "validatingadmission", "lease", "customresource", f"resourcequota {namespace}")
    kinds += ("resourcequotas", "pods,")
    about = [each for each in found if each["object"].startswith(kinds)]
    return told.returncode, [(each["invariant"], each["object"], each["words"]) for each in about]


async def test_what_an_installation_stands_on_is_looked_at(cluster, client, hand, installed):
    where = hand.namespace
    _, found = await doctor(cluster.kubeconfig, where)
    assert found == []

    hard = {"requests.nvidia.com/mig-1g.5gb": "4"}
    await client.create(QUOTAS, {"metadata": {"namespace": where, "name": "gpus"}, "spec": {"hard": hard}})
    await client.delete(BINDINGS, Key("", "instaslice-pods-bindings"))
    await installed.aclose()
    code, found = await doctor(cluster.kubeconfig, where)
    assert code == 1
    assert [(invariant, name) for invariant, name, _ in found] == [
        ("policies-bound", "validatingadmissionpolicy instaslice-pods-bindings"),
        ("quota-counts", f"resourcequota {where}/gpus"),
        ("webhook-called", "mutatingwebhookconfiguration instaslice-webhook"),
    ]
    assert found[1][2].endswith("limit requests.gpu.das.com/mig-1g.5gb: 4")
    assert "is not reached by the API server (`failed to call webhook" in found[2][2]
    assert "does the webhook run" in found[2][2]

    companion = {"requests.gpu.das.com/mig-1g.5gb": "4"}
    await client.create(QUOTAS, {"metadata": {"namespace": where, "name": "renamed"}, "spec": {"hard": companion}})
    _, found = await doctor(cluster.kubeconfig, where)
    assert "quota-counts" not in {invariant for invariant, _, _ in found}


CALLED, BOUND = "webhook-called  mutatingwebhook", "policies-bound  validatingadmissionpolicy instaslice-pods:"
OF_PODS = "/spec/matchConstraints/resourceRules/0/resources"


@pytest.mark.parametrize(
    "resource, name, path, value, what, said",
    [
        pytest.param(
            manifests.CONFIGURATIONS, "instaslice-webhook", "/webhooks/0/namespaceSelector",
            {"matchLabels": {"a": "b"}}, CALLED, "selects no namespace that exists", id="called for no namespace",
        ),
        pytest.param(
            manifests.CONFIGURATIONS, "instaslice-webhook", "/webhooks/0/namespaceSelector",
            {"matchExpressions": manifests.only_in(["default"])}, CALLED, "is not called for namespace test-",
            id="called elsewhere only",
        ),
        pytest.param(
            manifests.CONFIGURATIONS, "instaslice-webhook", "/webhooks/0/rules/0/resources", ["configmaps"], CALLED,
            "has no rule that sends new pods", id="called for other things",
        ),
        pytest.param(
            manifests.CONFIGURATIONS, "instaslice-webhook", "/webhooks/0/matchConditions",
            [{"name": "never", "expression": "false"}], CALLED, "has not seen the nvidia.com/mig-* of this pod",
            id="called on a condition that never holds",
        ),
        pytest.param(
            policy.POLICIES, "instaslice-pods", "/spec/validations", [{"expression": "true"}], BOUND,
            "does not look at gpu.das.com/requested", id="a policy that allows all",
        ),
        pytest.param(
            policy.POLICIES, "instaslice-pods", OF_PODS, ["configmaps"], BOUND, "accepts a forged annotation",
            id="a policy on other things",
        ),
    ],
)  # fmt: skip
async def test_webhook_and_policies_that_no_longer_hold_are_found(
    client, hand, installed, resource, name, path, value, what, said
):
    await client.patch(resource, Key("", name), [JsonOp(op="replace", path=path, value=value)])

    seen = []

    async def found():
        seen[:] = map(str, await _faults(client, hand.namespace))
        return [each for each in seen if said in each]

    (only,) = await until(found, 30, lambda: f"{said}: {seen}")
    assert only.startswith(what)
    assert only.endswith(" again")


async def test_who_may_create_no_pods_is_told_that_this_was_not_tried(cluster, client, hand, installed, tmp_path):
    await _may_read(client, hand.namespace)
    file = await _kubeconfig_of_an_account(cluster, client, hand.namespace, tmp_path)
    async with await Client.connect(file) as reader:
        (found,) = await _faults(reader, hand.namespace)
    assert str(found) == (
        f"not-checked  pods: may not be created in namespace {hand.namespace}, not even in a dry run; "
        "grant `create` on pods"
    )


async def test_the_daemon_set_of_the_agents_says_which_nodes_should_report(client, hand):
    label = {hand.namespace: "gpus"}
    tolerated = [{"operator": "Exists"}]
    for name, component in (("agents", "agent"), ("others", "controller")):
        meta = {"namespace": hand.namespace, "name": name, "labels": {"app.kubernetes.io/component": component}}
        pod = {"nodeSelector": label, "tolerations": tolerated, "containers": [{"name": "main", "image": "none"}]}
        template = {"metadata": {"labels": {"name": name}}, "spec": pod}
        spec = {"selector": {"matchLabels": {"name": name}}, "template": template}
        await client.create(AGENT_DAEMON_SETS, {"metadata": meta, "spec": spec})
    found = await Installation.read(client, SystemClock(), dry_run, hand.namespace)
    (agents,) = found.agents
    assert (agents.metadata.name, agents.spec.node_selector, agents.spec.everywhere) == ("agents", label, True)


async def _may_read(client, namespace):
    """Whatever the doctor reads of an installation."""
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": namespace}
    rules = [rule("*", "*", "get list")]
    await client.create(ROLES, {"metadata": {"name": namespace}, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "namespace": namespace, "name": "default"}]
    bound = {"metadata": {"name": namespace}, "subjects": subjects, "roleRef": role}
    await client.create(ROLE_BINDINGS, bound)


async def test_who_may_read_nothing_is_told_what_was_not_checked(cluster, client, hand, tmp_path):
    file = await _kubeconfig_of_an_account(cluster, client, hand.namespace, tmp_path)
    code, found = await doctor(file, hand.namespace)
    assert code == 3
    assert {invariant for invariant, _, _ in found} == {"not-checked"}
    assert {name for _, name, _ in found} >= {"pods, nodes and instaslices", "resourcequotas"}
    assert all("; grant `" in words for _, _, words in found)
    text = await instaslice(file, "doctor", "-n", hand.namespace)
    assert text.stdout.splitlines()[-1].startswith("nothing could be looked at, so nothing is known of this cluster")


async def _kubeconfig_of_an_account(cluster, client, namespace, folder):
    """Of the ServiceAccount `default`, which may do nothing unless a test grants it."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    await until(lambda: _exists(client, accounts), 30, "the account")
    body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}'
    token = msgspec.json.decode(await client.raw("POST", f"{accounts}/token", body=body))["status"]["token"]
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


async def _exists(client, path):
    try:
        return await client.raw("GET", path)
    except NotFound:
        return None
