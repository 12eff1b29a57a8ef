"""What `instaslice explain` and `instaslice doctor` print, and the exit codes of the latter."""

from datetime import timedelta

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from memory_server import MemoryServer
from small_worlds import NOW, pod, world

from instaslice.api.names import GATE
from instaslice.cli import doctor, explain
from instaslice.cli.explain import look
from instaslice.cli.terminal import explanations
from instaslice.cli.terminal.documents import print_document
from instaslice.cli.terminal.explained_workloads import pods_of, read_workload
from instaslice.controller.explanation import Explanation, Stage, WaitingPod
from instaslice.controller.slice_holders import Holder
from instaslice.doctor import Finding, Invariant
from instaslice.errors import BadInput, InstasliceError
from instaslice.kube.core import EVENTS, PODS
from instaslice.kube.meta import OwnerReference
from instaslice.kube.workloads import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    WorkloadResource,
)

WAITS = Explanation(
    pod="team-a/w",
    stage=Stage.WAITING,
    since=NOW - timedelta(minutes=4),
    message="nothing is free; a slice must end",
    asks={"1g.5gb": 2},
    could=["gpu-0"],
    held_by=[
        Holder(pod="team-a/h", owner="Job train", node="gpu-0", holds={"7g.40gb": 1}, since=NOW - timedelta(hours=3)),
        Holder(pod="team-a/old", owner="", node="gpu-0", holds={"1g.5gb": 2}, since=None, ending="is gone"),
        Holder(pod="", owner="", node="gpu-0", holds={"1g.5gb": 1}, since=None),
    ],
    rollout="wait for it",
)


def printed(capsys, **changes):
    explanations.text(msgspec.structs.replace(WAITS, **changes), NOW)
    return capsys.readouterr().out.splitlines()


def test_a_waiting_pod_with_who_holds_what_it_waits_for(capsys):
    assert printed(capsys) == [
        "pod team-a/w: waiting for room, for 4 min",
        "  asks for  2 x 1g.5gb",
        "  nothing is free; a slice must end",
        "  queue     first",
        "  could     gpu-0 would hold it if nothing else ran there",
        "  held by   pod team-a/h (Job train): 1 x 7g.40gb on gpu-0, for 3 h",
        "  held by   pod team-a/old: 2 x 1g.5gb on gpu-0; it is gone, and its slices are about to be free",
        "  held by   slices that InstaSlice did not create: 1 x 1g.5gb on gpu-0",
        "  rollout   wait for it",
    ]


@pytest.mark.parametrize(
    "changes, line",
    [
        pytest.param({"ahead": 1}, "  queue     1 pod is ahead of it", id="one ahead"),
        pytest.param({"ahead": 7}, "  queue     7 pods are ahead of it", id="several ahead"),
        pytest.param(
            {"could": [], "could_later": ["gpu-1"]},
            "  could     gpu-1 would hold it, uncordoned and ready",
            id="only nodes that are cordoned or not ready",
        ),
        pytest.param(
            {"could": [], "could_in_use": ["gpu-1"]},
            "  could     gpu-1 would hold it, with its GPUs in use again",
            id="only nodes whose GPUs are out of use",
        ),
        pytest.param({"could": []}, "  could     no node that admits it would hold it, even if empty", id="no node"),
        pytest.param(
            {"held_by": [WAITS.held_by[0]] * 8}, "  held by   3 more: -o json names them", id="more than are printed"
        ),
    ],
)
def test_a_line_of_a_waiting_pod(capsys, changes, line):
    assert line in printed(capsys, **changes)


@pytest.mark.parametrize(
    "name, remedy",
    [
        pytest.param(
            "node/a",
            "ds/a, rs/a or workload/a; of a node: instaslice status --node a",
            id="a node has a command of its own",
        ),
        pytest.param("svc/a", "ds/a, rs/a or workload/a", id="what has no pods"),
    ],
)
def test_another_kind_is_refused_with_what_is_explained(name, remedy):
    result = CliRunner().invoke(explain.command, [name])
    assert str(result.exception).startswith(f"{name}: only pods and what owns them are explained: pod/a, ")
    assert str(result.exception).endswith(remedy)


BELL = "denied \x07\x1b[2J\x9b1m\u202eby\r\na\twebhook"
HARMLESS = "denied ��[2J�1m�by  a webhook"


def test_what_a_terminal_would_act_on_does_not_reach_it(capsys):
    lines = printed(capsys, message=BELL, nodes={BELL: ["gpu-0"]})
    assert lines[2] == f"  {HARMLESS}"
    assert f"  not on    gpu-0: {HARMLESS}" in lines
    explanations.table([WaitingPod(pod="a/w", stage=Stage.WAITING, since=None, asks={}, message=BELL)], NOW)
    assert capsys.readouterr().out.splitlines()[1].endswith(HARMLESS)


@pytest.mark.parametrize("name", ["", "deploy/", "pod/", "job/-", "deploy/web\x07", "sts/DB"])
def test_what_is_no_name_is_refused_before_anything_is_asked(name):
    result = CliRunner().invoke(explain.command, [name])
    assert result.exit_code == 2
    assert f"{name.rpartition('/')[2]!r} is no name of an object; it has 1 to 253 lower-case letters" in result.output


def test_all_that_waits_in_a_table_with_the_reason_without_its_remedy(capsys):
    rows = [
        WaitingPod(
            pod="team-a/w", stage=Stage.WAITING, since=NOW - timedelta(days=3), asks={"1g.5gb": 1}, message="full; wait"
        ),
        WaitingPod(pod="b/x", stage=Stage.HELD, since=None, asks={}, message="2 GPUs (a: x; b: y); add one"),
    ]
    explanations.table(rows, NOW)
    assert capsys.readouterr().out.splitlines() == [
        "POD       STAGE                 FOR  ASKS FOR    WHY",
        "team-a/w  waiting for room      3 d  1 x 1g.5gb  full",
        "b/x       held by another gate                   2 GPUs (a: x; b: y)",
    ]


def test_yaml_says_the_same_as_json(capsys):
    print_document(WAITS, "yaml")
    as_yaml = yaml.safe_load(capsys.readouterr().out)
    print_document(WAITS, "json")
    assert msgspec.json.decode(capsys.readouterr().out) == as_yaml


async def test_a_user_who_may_read_one_namespace_only_is_told_what_its_pods_say_and_what_to_grant():
    server = MemoryServer()
    server.put(PODS, pod("w", "1g.5gb", gates=[GATE]))
    server.refuse("GET", "pods", 403, times=2)
    grant = "grant `list` on pods, nodes and instaslices.gpu.das.com in the whole cluster"
    with pytest.raises(InstasliceError, match=r"kubectl create clusterrolebinding .*; or leave out -A"):
        await look(server.client(), None, "adaptive")
    cluster, explainer, *_ = await look(server.client(), "team-a", "adaptive")
    said = explainer.explain(cluster.pods[0])
    assert said.quoted and said.left_out[0].endswith(grant)
    server.refuse("GET", "pods", 403, times=2)
    with pytest.raises(InstasliceError, match=r"create rolebinding .* --namespace=team-a --clusterrole=view"):
        await look(server.client(), "team-a", "adaptive")


def test_what_was_not_looked_at_is_not_printed_of_a_pod_that_waits(capsys):
    assert printed(capsys, quoted=True, left_out=["all but this"]) == [
        "pod team-a/w: waiting for room, for 4 min",
        "  asks for  2 x 1g.5gb",
        "  nothing is free; a slice must end",
        "  left out  all but this",
    ]


# What is read of workloads --------------------------------------------------------------------------------------------


CREATED = NOW - timedelta(hours=1)
BEFORE, AFTER = CREATED - timedelta(hours=1), CREATED + timedelta(minutes=1)


def workload(resource, name="web", conditions=(), status=None, **spec):
    document = {
        "metadata": {"namespace": "team-a", "name": name, "creationTimestamp": CREATED},
        "spec": spec,
        "status": {"conditions": list(conditions), **(status or {})},
    }
    server = MemoryServer()
    server.put(resource, msgspec.convert(document, WorkloadResource))
    return server


def condition(kind, reason="", message=""):
    return {"type": kind, "status": "True", "reason": reason, "message": message}


def with_event(server, kind, name, note, reason="FailedCreate", written=AFTER):
    event = {
        "metadata": {"namespace": "team-a", "name": f"{name}.1", "creationTimestamp": written},
        "regarding": {"kind": kind, "name": name},
        "type": "Warning",
        "reason": reason,
        "note": note,
    }
    server.put(EVENTS, msgspec.convert(event, EVENTS.type))
    return server


MISSING = [
    pytest.param(
        workload(DEPLOYMENTS, conditions=[condition("ReplicaFailure", "FailedCreate", "exceeded quota: none")]),
        DEPLOYMENTS,
        "has no pods: ReplicaFailure (FailedCreate): exceeded quota: none",
        id="a quota, by the condition",
    ),
    pytest.param(
        workload(DAEMON_SETS), DAEMON_SETS, "has no pods: no node is one that it selects", id="a DaemonSet for no node"
    ),
    pytest.param(
        workload(REPLICA_SETS, replicas=0), REPLICA_SETS, "has no pods: it asks for 0 replicas", id="an old ReplicaSet"
    ),
    pytest.param(
        workload(DEPLOYMENTS, replicas=0), DEPLOYMENTS, "has no pods: it asks for 0 replicas", id="none asked"
    ),
    pytest.param(workload(JOBS, suspend=True), JOBS, "has no pods: it is suspended", id="suspended"),
    pytest.param(
        with_event(workload(JOBS), "Job", "web", "exceeded quota: none"),
        JOBS,
        "has no pods: exceeded quota: none",
        id="a quota, by the Event",
    ),
    pytest.param(
        with_event(workload(DEPLOYMENTS), "ReplicaSet", "web-5d4f", "denied by a webhook"),
        DEPLOYMENTS,
        "has no pods: denied by a webhook",
        id="an Event of its ReplicaSet",
    ),
    pytest.param(
        with_event(workload(DEPLOYMENTS), "ReplicaSet", "web-api-5d4f", "denied by a webhook"),
        DEPLOYMENTS,
        "has no pods: nothing says why",
        id="an Event of the ReplicaSet of a Deployment with a longer name",
    ),
    pytest.param(
        with_event(workload(DEPLOYMENTS), "ReplicaSet", "web-5d4f", "denied by a webhook", written=BEFORE),
        DEPLOYMENTS,
        "has no pods: nothing says why",
        id="an Event of a ReplicaSet of an earlier Deployment of that name",
    ),
    pytest.param(
        with_event(workload(JOBS), "Job", "web", "exceeded quota: none", written=BEFORE),
        JOBS,
        "has no pods: nothing says why",
        id="an Event of an earlier Job of that name",
    ),
    pytest.param(
        with_event(workload(JOBS), "Job", "other", "exceeded quota: none"),
        JOBS,
        "has no pods: nothing says why; see `kubectl describe job web -n team-a`",
        id="another's Event",
    ),
]


@pytest.mark.parametrize("server, resource, said", MISSING)
async def test_why_a_workload_has_no_pods(server, resource, said):
    _, message = await read_workload(server.client(), resource, "team-a", "web", present=0)
    assert message.startswith(said)


def with_quota(resource, kind, **spec):
    return with_event(workload(resource, **spec), kind, "web", "exceeded quota: two")


SOME_MISSING = [
    pytest.param(
        with_quota(JOBS, "Job", parallelism=3, completions=3),
        JOBS,
        "1 of 3 pods are missing: exceeded quota: two",
        id="a Job that a quota refuses the third pod",
    ),
    pytest.param(
        with_quota(STATEFUL_SETS, "StatefulSet", replicas=4),
        STATEFUL_SETS,
        "2 of 4 pods are missing: exceeded quota: two",
        id="a StatefulSet",
    ),
    pytest.param(
        workload(STATEFUL_SETS, replicas=3),
        STATEFUL_SETS,
        "1 of 3 pods are missing: a StatefulSet creates the next when those before it are ready",
        id="a StatefulSet that creates one after the other",
    ),
    pytest.param(
        workload(STATEFUL_SETS, replicas=3, podManagementPolicy="Parallel"),
        STATEFUL_SETS,
        "1 of 3 pods are missing: nothing says why; see `kubectl describe statefulset web -n team-a`",
        id="a StatefulSet that creates all at once",
    ),
    pytest.param(
        workload(JOBS, status={"failed": 2}, parallelism=3, completions=3),
        JOBS,
        "1 of 3 pods are missing: 2 have failed, and a Job waits before it creates the next, longer each time",
        id="a Job that tries again",
    ),
    pytest.param(
        workload(DEPLOYMENTS, conditions=[condition("ReplicaFailure", "FailedCreate", "exceeded quota")], replicas=2),
        DEPLOYMENTS,
        "pods are missing: ReplicaFailure (FailedCreate): exceeded quota",
        id="a rollout that needs one more",
    ),
    pytest.param(
        with_quota(DAEMON_SETS, "DaemonSet", status={"desiredNumberScheduled": 4}),
        DAEMON_SETS,
        "2 of 4 pods are missing: exceeded quota: two",
        id="a DaemonSet, of as many as it has nodes",
    ),
    pytest.param(
        with_quota(JOBS, "Job", status={"succeeded": 1}, parallelism=3, completions=3), JOBS, "", id="the rest of a Job"
    ),
    pytest.param(
        with_quota(JOBS, "Job", status={"succeeded": 1}, parallelism=3), JOBS, "", id="a Job whose pods share a queue"
    ),
    pytest.param(with_quota(JOBS, "Job", parallelism=3, suspend=True), JOBS, "", id="a Job that is being suspended"),
    pytest.param(with_quota(DEPLOYMENTS, "ReplicaSet", replicas=2), DEPLOYMENTS, "", id="an Event of before"),
]


@pytest.mark.parametrize("server, resource, said", SOME_MISSING)
async def test_why_some_of_the_pods_of_a_workload_are_missing(server, resource, said):
    """Two are there."""
    assert (await read_workload(server.client(), resource, "team-a", "web", present=2))[1] == said


@pytest.mark.parametrize("end", ["Complete", "Failed"])
async def test_a_job_that_has_ended_says_so_and_not_that_it_has_no_pods(end):
    server = workload(JOBS, conditions=[condition(end, "Because")], status={"succeeded": 4, "failed": 2})
    said = f"{end} (Because); 4 pods have succeeded, 2 have failed"
    assert (await read_workload(server.client(), JOBS, "team-a", "web", present=0))[1] == said


def of_replica_set(found, name):
    """Created by a ReplicaSet of that name, which a Deployment created."""
    owner = OwnerReference("apps/v1", "ReplicaSet", name, "uid", controller=True)
    labels = {"pod-template-hash": name.rpartition("-")[2]}
    meta = msgspec.structs.replace(found.metadata, owner_references=[owner], labels=labels)
    return msgspec.structs.replace(found, metadata=meta)


@pytest.mark.parametrize(
    "kind, namespace, name, found",
    [
        ("ReplicaSet", "team-a", "web-5d4f", ["new"]),
        ("Deployment", "team-a", "web", ["old", "new"]),
        ("Deployment", "team-b", "web", []),
        ("DaemonSet", "team-a", "web", []),
    ],
)
def test_the_pods_of_a_workload_are_found_by_their_owner_the_oldest_first(kind, namespace, name, found):
    old, new = of_replica_set(pod("old", age=9), "web-77aa"), of_replica_set(pod("new", age=5), "web-5d4f")
    here = world([new, old, pod("none"), of_replica_set(pod("other"), "api-5d4f")])
    assert [each.metadata.name for each in pods_of(here, kind, namespace, name)] == found


def test_pods_that_have_ended_are_named_in_one_line_for_each_way_to_end(capsys):
    explanations.ended([pod(f"w-{number}", phase="Succeeded") for number in range(6)] + [pod("bad", phase="Failed")])
    assert capsys.readouterr().out.splitlines() == [
        "1 Failed, slices released: bad",
        "6 Succeeded, slices released: w-0, w-1, w-2, w-3 and 2 more",
    ]


async def test_a_workload_with_all_its_pods_says_nothing_of_itself():
    server = workload(DEPLOYMENTS, conditions=[condition("Available")])
    assert (await read_workload(server.client(), DEPLOYMENTS, "team-a", "web", present=1))[1] == ""


async def test_a_workload_that_may_not_be_read_costs_its_own_lines_only():
    server = workload(DEPLOYMENTS)
    server.refuse("GET", "deployments", 403, times=2)
    assert await read_workload(server.client(), DEPLOYMENTS, "team-a", "web", present=1) == (None, "")
    _, message = await read_workload(server.client(), DEPLOYMENTS, "team-a", "web", present=0)
    assert message.startswith("has no pods, and may not be read to say why")


async def test_events_that_may_not_be_read_are_named():
    server = workload(JOBS)
    server.refuse("GET", "events", 403)
    _, message = await read_workload(server.client(), JOBS, "team-a", "web", present=0)
    assert message.startswith("has no pods: its Events may not be read to say why")


async def test_a_workload_that_is_not_there_is_one_line_with_a_remedy():
    with pytest.raises(BadInput, match="no Job gone in namespace team-a; name another with -n"):
        await read_workload(MemoryServer().client(), JOBS, "team-a", "gone", present=0)


# Exit codes -----------------------------------------------------------------------------------------------------------

WRONG = Finding(Invariant.RIGHT_NODE, "pod a/b", "runs elsewhere; delete it")
UNREAD = Finding(Invariant.NOT_CHECKED, "resourcequotas", "may not be read; grant `list` on resourcequotas")


@pytest.mark.parametrize(
    "found, nothing_read, code, last",
    [
        pytest.param([], False, 0, "nothing wrong", id="all is well"),
        pytest.param([WRONG], False, 1, str(WRONG), id="something is wrong"),
        pytest.param([UNREAD], False, 3, "nothing wrong in what could be looked at", id="not all could be looked at"),
        pytest.param([UNREAD], True, 3, doctor.NOTHING_READ, id="nothing could be looked at"),
        pytest.param([UNREAD, WRONG], False, 1, str(WRONG), id="both"),
    ],
)
def test_the_exit_code_of_the_doctor(monkeypatch, tmp_path, found, nothing_read, code, last):
    async def examined(*_):
        return doctor.Examined(found, nothing_read)

    monkeypatch.setattr(doctor, "_examine", examined)
    file = tmp_path / "kubeconfig"
    entry = {"name": "x"}
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": [{**entry, "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{**entry, "user": {}}],
                "contexts": [{**entry, "context": {"cluster": "x", "user": "x"}}],
                "current-context": "x",
            }
        )
    )
    result = CliRunner().invoke(doctor.command, ["--kubeconfig", str(file)])
    assert result.exit_code == code
    assert result.output.splitlines()[-1] == last
