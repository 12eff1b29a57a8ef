"""`instaslice explain` on a real API server: workloads and their ReplicaSets, quotas, contexts."""

import msgspec
import pytest
import yaml
from commands import instaslice
from hand_written import NODE, gated_spec
from hand_written import hand as hand
from waiting import until

from instaslice.api import names
from instaslice.api.roles import RBAC
from instaslice.kube.client import Selector
from instaslice.kube.core import EVENTS, PODS
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.kube.workloads import DEPLOYMENTS, JOBS, STATEFUL_SETS, WorkloadResource
from instaslice.local.objects import GRANTS

ACCOUNTS = Resource(WorkloadResource, "ServiceAccount", "serviceaccounts")
QUOTAS = Resource(WorkloadResource, "ResourceQuota", "resourcequotas")
WHOLE = "7g.40gb"


def workload(namespace, name, profile="1g.5gb", **spec):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": gated_spec(profile)}
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def job(namespace, name):
    made = workload(namespace, name)
    made["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    del made["spec"]["selector"]
    return made


async def pods_of(client, namespace, app, count):
    """So many pods of a workload, oldest first."""

    async def there():
        found = await client.list(PODS, Selector(namespace, labels=f"app={app}"))
        return sorted(found, key=lambda pod: str(pod.metadata.creation_timestamp)) if len(found) == count else None

    return await until(there, 30, f"{count} pods of {app}")


async def test_a_pod_is_explained_by_the_command(cluster, hand):
    await hand.pod("waits")
    pod, _ = await hand.serve("runs", 0)

    async def explain(*words):
        return await instaslice(cluster.kubeconfig, "explain", *words, "-n", hand.namespace)

    text = (await explain("pod/waits")).stdout
    assert text.startswith(f"pod {hand.namespace}/waits: waiting for room")
    assert "asks for  1 x 1g.5gb" in text
    told = msgspec.json.decode((await explain("runs", "-o", "json")).stdout)
    assert told["slices"][0]["mig_uuid"] == "MIG-0"
    assert yaml.safe_load((await explain("runs", "-o", "yaml")).stdout) == told
    missing = await explain("pod/wait")
    assert missing.returncode == 1
    assert missing.stderr == f"error: no pod wait in namespace {hand.namespace}; did you mean waits?\n"
    unknown = await explain("node/a")
    assert unknown.stderr == (
        "error: node/a: only pods and what owns them are explained: "
        "pod/a, deploy/a, job/a, sts/a, ds/a, rs/a or workload/a; of a node: instaslice status --node a\n"
    )
    await hand.remove(pod)


async def test_a_rollout_that_waits_for_its_own_old_pod_is_told_what_to_change(cluster, client, hand):
    await hand.advertise(**{f"{names.RESOURCE}{WHOLE}": "1", names.MEMORY: "40"})
    made = workload(hand.namespace, "web", WHOLE, replicas=1)
    await client.create(DEPLOYMENTS, made)
    (old,) = await pods_of(client, hand.namespace, "web", 1)
    held = hand.allocation(old, 0, WHOLE, 8)
    await hand.reservation(held)
    await hand.make(held)
    await hand.ungate(old, 0)

    template = {"metadata": {"annotations": {"version": "2"}}}
    await client.merge(DEPLOYMENTS, Key(hand.namespace, "web"), {"spec": {"template": template}})
    found = await pods_of(client, hand.namespace, "web", 2)
    new = next(pod.metadata.name for pod in found if pod.metadata.name != old.metadata.name)
    text = (await instaslice(cluster.kubeconfig, "explain", "deploy/web", "-n", hand.namespace)).stdout
    assert f"pod {hand.namespace}/{new}: waiting for room" in text
    assert f"held by   pod {hand.namespace}/{old.metadata.name} (Deployment web): 1 x {WHOLE} on {NODE}, for " in text
    assert "rollout   its own Deployment web is in a rollout" in text
    assert "with maxSurge 25% these are deleted only when it is ready" in text
    assert f"kubectl patch deployment web -n {hand.namespace} -p" in text

    surge = {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}
    await client.merge(DEPLOYMENTS, Key(hand.namespace, "web"), {"spec": surge})
    await pods_of(client, hand.namespace, "web", 1)
    text = (await instaslice(cluster.kubeconfig, "explain", f"pod/{new}", "-n", hand.namespace)).stdout
    assert f"pod {hand.namespace}/{old.metadata.name}: 1 x {WHOLE} on {NODE}; it is gone, and its slices" in text
    await client.delete(DEPLOYMENTS, Key(hand.namespace, "web"))


async def limit_pods(client, namespace, name, most):
    """Have a quota in force."""
    spec = {"hard": {"pods": most}}
    await client.create(QUOTAS, {"metadata": {"namespace": namespace, "name": name}, "spec": spec})

    async def in_force():
        found = msgspec.json.decode(await client.raw("GET", QUOTAS.path(namespace, name)))
        return found.get("status", {}).get("hard")

    await until(in_force, 30, "the quota")


@pytest.fixture
async def no_pods(client, namespace):
    """A namespace in which a quota lets nobody create pods."""
    await limit_pods(client, namespace, "none", "0")
    return namespace


async def test_a_job_says_which_quota_keeps_out_the_rest_of_its_pods(cluster, client, namespace):
    await limit_pods(client, namespace, "two", "2")
    made = job(namespace, "train")
    made["spec"] |= {"parallelism": 3, "completions": 3}
    await client.create(JOBS, made)
    await pods_of(client, namespace, "train", 2)

    async def refused():
        found = await client.list(EVENTS, Selector(namespace))
        return any(each.reason == "FailedCreate" and each.regarding.kind == "Job" for each in found)

    await until(refused, 30, "a pod is refused")
    said = (await instaslice(cluster.kubeconfig, "explain", "job/train", "-n", namespace)).stdout
    assert said.startswith(f"job {namespace}/train: 1 of 3 pods are missing: "), said
    assert "exceeded quota: two" in said
    assert said.count(f"pod {namespace}/train-") == 2


async def test_a_workload_without_pods_says_which_quota_keeps_them_out(cluster, client, no_pods):
    await client.create(DEPLOYMENTS, workload(no_pods, "web", replicas=1))
    await client.create(STATEFUL_SETS, workload(no_pods, "db", replicas=1, serviceName="db"))
    await client.create(JOBS, job(no_pods, "train"))
    await client.create(DEPLOYMENTS, workload(no_pods, "idle", replicas=0))
    await client.create(DEPLOYMENTS, workload(no_pods, "we", paused=True))
    await client.create(DEPLOYMENTS, workload(no_pods, "we-b", replicas=1))

    async def refused():
        found = await client.list(EVENTS, Selector(no_pods))
        about = {each.regarding.name.rpartition("-")[0] or each.regarding.name for each in found if each.note}
        return about >= {"web", "we-b", "db", "train"}

    await until(refused, 30, "pods are refused")

    async def explain(name):
        return (await instaslice(cluster.kubeconfig, "explain", name, "-n", no_pods)).stdout

    for name, title in (("deploy/web", "deployment"), ("sts/db", "statefulset"), ("job/train", "job")):
        said = await explain(name)
        assert said.startswith(f"{title} {no_pods}/{name.partition('/')[2]}: has no pods: "), said
        assert "exceeded quota: none" in said
    assert "it asks for 0 replicas" in await explain("deploy/idle")
    assert "has no pods: nothing says why" in await explain("deploy/we")
    missing = await instaslice(cluster.kubeconfig, "explain", "deploy/nothing", "-n", no_pods)
    assert missing.stderr == f"error: no Deployment nothing in namespace {no_pods}; name another with -n\n"


async def reader(client, namespace):
    """The token of an account that may read the pods of one namespace."""
    account = {"metadata": {"namespace": namespace, "name": "reader"}}
    await client.create(ACCOUNTS, account)
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    await client.create(GRANTS["Role"], {**account, "rules": rules})
    who = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    role = {"apiGroup": RBAC, "kind": "Role", "name": "reader"}
    await client.create(GRANTS["RoleBinding"], {**account, "subjects": [who], "roleRef": role})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"{ACCOUNTS.path(namespace, 'reader')}/token"
    return msgspec.json.decode(await client.raw("POST", path, body=msgspec.json.encode(request)))["status"]["token"]


async def test_who_may_read_one_namespace_only_is_told_what_its_pods_say(cluster, client, hand, tmp_path):
    await hand.pod("waits")
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": await reader(client, hand.namespace)}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    grant = "grant `list` on pods, nodes and instaslices.gpu.das.com in the whole cluster"

    async def explain(*words):
        return await instaslice(file, "explain", *words)

    lines = (await explain("pod/waits", "-n", hand.namespace)).stdout.splitlines()
    assert lines[0].startswith(f"pod {hand.namespace}/waits: waiting for room"), lines
    assert lines[-1].startswith("  left out  ") and lines[-1].endswith(grant)
    assert (await explain("-n", hand.namespace)).stdout.splitlines()[1].startswith(f"{hand.namespace}/waits ")
    everywhere = await explain("-A")
    assert everywhere.returncode == 1 and everywhere.stderr.endswith("; or leave out -A\n")


async def test_all_that_waits_is_listed_in_the_namespace_of_the_context(cluster, client, hand, tmp_path):
    await hand.pod("first")
    await hand.pod("second")
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    (own,) = [each for each in config["contexts"] if each["name"] == config["current-context"]]
    here = {"name": "here", "context": {**own["context"], "namespace": hand.namespace}}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({**config, "contexts": [own, here], "current-context": own["name"]}))

    elsewhere = (await instaslice(file, "explain")).stdout
    assert elsewhere.startswith("no pod waits for slices in namespace default; ")
    assert elsewhere.rstrip().endswith("in other namespaces: -A")
    lines = (await instaslice(file, "explain", "--context", "here")).stdout.splitlines()
    assert lines[0].split() == ["POD", "STAGE", "FOR", "ASKS", "FOR", "WHY"]
    assert [line.split()[0] for line in lines[1:3]] == [f"{hand.namespace}/first", f"{hand.namespace}/second"]
    assert "1 x 1g.5gb" in lines[1]
    everywhere = msgspec.json.decode((await instaslice(file, "explain", "-A", "-o", "json")).stdout)
    assert {f"{hand.namespace}/first", f"{hand.namespace}/second"} <= {each["pod"] for each in everywhere}
    named = (await instaslice(file, "explain", "first", "--context", "here")).stdout
    assert named.startswith(f"pod {hand.namespace}/first: ")
