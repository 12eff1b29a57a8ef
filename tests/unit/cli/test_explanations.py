"""What `instaslice explain` and `instaslice doctor` print, and the exit codes of the latter."""

from datetime import timedelta

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from memory_server import MemoryServer
from small_worlds import NOW

from instaslice.cli import doctor, explain
from instaslice.cli.terminal import explanations
from instaslice.cli.terminal.documents import print_document
from instaslice.cli.terminal.explained_workloads import read_workload
from instaslice.controller.explain import Explanation, Stage, WaitingPod
from instaslice.controller.slice_holders import Holder
from instaslice.doctor import Finding, Invariant
from instaslice.errors import BadInput
from instaslice.kube.core import EVENTS
from instaslice.kube.workloads import DEPLOYMENTS, JOBS, WorkloadResource

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
        pytest.param({"could": []}, "  could     no node that admits it would hold it, even if empty", id="no node"),
        pytest.param(
            {"held_by": [WAITS.held_by[0]] * 8}, "  held by   3 more: -o json names them", id="more than are printed"
        ),
    ],
)
def test_a_line_of_a_waiting_pod(capsys, changes, line):
    assert line in printed(capsys, **changes)


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


# What is read of workloads --------------------------------------------------------------------------------------------


CREATED = NOW - timedelta(hours=1)
BEFORE, AFTER = CREATED - timedelta(hours=1), CREATED + timedelta(minutes=1)


def workload(resource, name="web", conditions=(), **spec):
    document = {
        "metadata": {"namespace": "team-a", "name": name, "creationTimestamp": CREATED},
        "spec": spec,
        "status": {"conditions": list(conditions)},
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
        workload(DEPLOYMENTS, replicas=0), DEPLOYMENTS, "has no pods: it asks for 0 replicas", id="none asked"
    ),
    pytest.param(workload(JOBS, suspend=True), JOBS, "has no pods: it is suspended", id="suspended"),
    pytest.param(
        workload(JOBS, conditions=[condition("Complete", "Done")]), JOBS, "has no pods: Complete (Done)", id="complete"
    ),
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
    _, message = await read_workload(server.client(), resource, "team-a", "web", has_pods=False)
    assert message.startswith(said)


async def test_a_workload_with_all_its_pods_says_nothing_of_itself():
    server = workload(DEPLOYMENTS, conditions=[condition("Available")])
    assert (await read_workload(server.client(), DEPLOYMENTS, "team-a", "web", has_pods=True))[1] == ""


async def test_a_workload_that_may_not_be_read_costs_its_own_lines_only():
    server = workload(DEPLOYMENTS)
    server.refuse("GET", "deployments", 403, times=2)
    assert await read_workload(server.client(), DEPLOYMENTS, "team-a", "web", has_pods=True) == (None, "")
    _, message = await read_workload(server.client(), DEPLOYMENTS, "team-a", "web", has_pods=False)
    assert message.startswith("has no pods, and may not be read to say why")


async def test_events_that_may_not_be_read_are_named():
    server = workload(JOBS)
    server.refuse("GET", "events", 403)
    _, message = await read_workload(server.client(), JOBS, "team-a", "web", has_pods=False)
    assert message.startswith("has no pods: its Events may not be read to say why")


async def test_a_workload_that_is_not_there_is_one_line_with_a_remedy():
    with pytest.raises(BadInput, match="no Job gone in namespace team-a; name another with -n"):
        await read_workload(MemoryServer().client(), JOBS, "team-a", "gone", has_pods=False)


# Exit codes -----------------------------------------------------------------------------------------------------------

WRONG = Finding(Invariant.RIGHT_NODE, "pod a/b", "runs elsewhere; delete it")
UNREAD = Finding(Invariant.NOT_CHECKED, "resourcequotas", "may not be read; grant `list` on resourcequotas")


@pytest.mark.parametrize(
    "found, code, last",
    [
        pytest.param([], 0, "nothing wrong", id="all is well"),
        pytest.param([WRONG], 1, str(WRONG), id="something is wrong"),
        pytest.param([UNREAD], 3, "nothing wrong in what could be looked at", id="not everything could be looked at"),
        pytest.param([UNREAD, WRONG], 1, str(WRONG), id="both"),
    ],
)
def test_the_exit_code_of_the_doctor(monkeypatch, tmp_path, found, code, last):
    async def examined(*_):
        return found

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
