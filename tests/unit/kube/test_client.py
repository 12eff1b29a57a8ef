"""How each verb of the client is spelled on the wire, and what it makes of the answer."""

import json
from contextlib import asynccontextmanager

import pytest

from instaslice.kube.client import PAGE_SIZE, Client, JsonOp, Selector, appended, escaped
from instaslice.kube.core import LEASES, NODES, PODS, Pod
from instaslice.kube.errors import Unreadable
from instaslice.kube.meta import Key, ObjectMeta

KEY = Key("team", "train")
ONE = "/api/v1/namespaces/team/pods/train"
TRAIN = {"metadata": {"namespace": "team", "name": "train"}}
WHOLE = {"apiVersion": "v1", "kind": "Pod", **TRAIN}


class Wire:
    """Notes what is sent, and answers each request with the next of these."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.sent = []
        self.closed = False

    async def request(self, method, path, *, what, params=None, body=None, content_type=None, repeatable=False):
        body = None if body is None else json.loads(body)
        self.sent.append(
            {"method": method, "path": path, "what": what, "params": dict(params or {}), "body": body,
             "content_type": content_type, "repeatable": repeatable}
        )  # fmt: skip
        return json.dumps(self._answers.pop(0) if self._answers else TRAIN).encode()

    @asynccontextmanager
    async def stream(self, path, *, what, params, silent_after):
        self.sent.append({"path": path, "what": what, "params": dict(params), "silent_after": silent_after})
        yield "chunks"

    async def close(self):
        self.closed = True


def request(method, path, what, *, params=None, body=None, content_type=None, repeatable=False):
    return {"method": method, "path": path, "what": what, "params": params or {}, "body": body,
            "content_type": content_type, "repeatable": repeatable}  # fmt: skip


def patch(kind, body, *, path=ONE, **params):
    return request("PATCH", path, "patch pods team/train", params=params, body=body,
                   content_type=f"application/{kind}-patch+json")  # fmt: skip


POD = Pod(metadata=ObjectMeta(namespace="team", name="train"))
OP = JsonOp(op="test", path="/a", value="b")
BODY = {"metadata": {"labels": {"a": None}}}


@pytest.mark.parametrize(
    "ask, sent",
    [
        pytest.param(
            lambda kube: kube.get(PODS, KEY), request("GET", ONE, "get pods team/train", repeatable=True), id="get"
        ),
        pytest.param(
            lambda kube: kube.create(PODS, POD),
            request("POST", "/api/v1/namespaces/team/pods", "create pods team/train", body=WHOLE),
            id="create",
        ),
        pytest.param(
            lambda kube: kube.replace(PODS, POD),
            request("PUT", ONE, "replace pods team/train", body=WHOLE),
            id="replace",
        ),
        pytest.param(
            lambda kube: kube.replace(PODS, POD, subresource="status"),
            request("PUT", f"{ONE}/status", "replace pods team/train", body=WHOLE),
            id="replace of a subresource",
        ),
        pytest.param(
            lambda kube: kube.apply(PODS, TRAIN, manager="us"),
            request("PATCH", ONE, "apply pods team/train", params={"fieldManager": "us", "force": "false"}, body=WHOLE,
                    content_type="application/apply-patch+yaml", repeatable=True),
            id="apply",
        ),
        pytest.param(
            lambda kube: kube.apply(PODS, POD, manager="us", force=True, subresource="status"),
            request("PATCH", f"{ONE}/status", "apply pods team/train", params={"fieldManager": "us", "force": "true"},
                    body=WHOLE, content_type="application/apply-patch+yaml", repeatable=True),
            id="apply that takes fields over",
        ),
        pytest.param(
            lambda kube: kube.patch(PODS, KEY, [OP]),
            patch("json", [{"op": "test", "path": "/a", "value": "b"}]),
            id="JSON patch",
        ),
        pytest.param(
            lambda kube: kube.patch(PODS, KEY, [JsonOp(op="remove", path="/a")], manager="us", subresource="status"),
            patch("json", [{"op": "remove", "path": "/a"}], path=f"{ONE}/status", fieldManager="us"),
            id="JSON patch by a manager, of a subresource",
        ),
        pytest.param(lambda kube: kube.merge(PODS, KEY, BODY), patch("merge", BODY), id="merge"),
        pytest.param(
            lambda kube: kube.strategic_merge(PODS, KEY, BODY, manager="us"),
            patch("strategic-merge", BODY, fieldManager="us"),
            id="strategic_merge",
        ),
        pytest.param(
            lambda kube: kube.delete(PODS, KEY), request("DELETE", ONE, "delete pods team/train", body={}), id="delete"
        ),
        pytest.param(
            lambda kube: kube.delete(PODS, KEY, uid="1", grace_seconds=0),
            request("DELETE", ONE, "delete pods team/train",
                    body={"preconditions": {"uid": "1"}, "gracePeriodSeconds": 0}),
            id="delete of this one and no other, at once",
        ),
        pytest.param(
            lambda kube: kube.raw("GET", "/version"),
            request("GET", "/version", "GET /version", repeatable=True),
            id="raw that reads",
        ),
        pytest.param(
            lambda kube: kube.raw("POST", "/x", params={"a": "b"}, body=b"{}"),
            request("POST", "/x", "POST /x", params={"a": "b"}, body={}),
            id="raw that writes",
        ),
    ],
)  # fmt: skip
async def test_a_request_as_it_is_sent(ask, sent):
    wire = Wire()
    await ask(Client(wire))
    assert wire.sent == [sent]


@pytest.mark.parametrize("verb", ["get", "create", "replace", "apply", "patch", "merge", "strategic_merge"])
async def test_the_object_in_the_answer_is_given_back(verb):
    kube = Client(Wire({"metadata": {"name": "answered"}}))
    what = {"get": [KEY], "create": [POD], "replace": [POD], "apply": [POD], "patch": [KEY, [OP]]}
    more = {"manager": "us"} if verb == "apply" else {}
    found = await getattr(kube, verb)(PODS, *what.get(verb, [KEY, BODY]), **more)
    assert found.metadata.name == "answered"


async def test_what_a_raw_request_is_answered_with_is_given_back():
    assert await Client(Wire({"major": "1"})).raw("GET", "/version") == b'{"major": "1"}'


def page(*names, more="", version="7"):
    return {"metadata": {"resourceVersion": version, "continue": more}, "items": [TRAIN | {"metadata": {"name": name}}
            for name in names] or None}  # fmt: skip


async def test_a_list_is_read_page_after_page():
    wire = Wire(page("a", more="here"), page(more="there"), page("b", "c"))
    found = await Client(wire).list(PODS, Selector("team", labels="app=x", fields="spec.nodeName=n"))
    assert [each.metadata.name for each in found] == ["a", "b", "c"]
    picked = {"labelSelector": "app=x", "fieldSelector": "spec.nodeName=n"}
    assert [each["params"].pop("continue", None) for each in wire.sent] == [None, "here", "there"]
    for each in wire.sent:
        assert (each["method"], each["path"], each["repeatable"]) == ("GET", "/api/v1/namespaces/team/pods", True)
        assert each["params"] == {**picked, "limit": str(PAGE_SIZE)}
        assert each["what"] == "list pods team"


async def test_a_list_of_everything_asks_for_nothing_in_particular():
    wire = Wire(page())
    assert await Client(wire).list(NODES) == []
    (asked,) = wire.sent
    assert (asked["path"], asked["what"], asked["params"]) == ("/api/v1/nodes", "list nodes", {"limit": str(PAGE_SIZE)})


async def test_a_list_of_which_one_object_cannot_be_read_is_no_list():
    broken = page("a")
    broken["items"].append({"metadata": {"name": "odd"}, "spec": 7})
    with pytest.raises(Unreadable, match="Pod odd cannot be read"):
        await Client(Wire(broken)).list(PODS)


@pytest.mark.parametrize(
    "selector, path, what, params",
    [
        pytest.param(Selector(), "/api/v1/pods", "watch pods", {}, id="everything"),
        pytest.param(
            Selector("team", labels="a"), "/api/v1/namespaces/team/pods", "watch pods team", {"labelSelector": "a"},
            id="some of a namespace",
        ),
    ],
)  # fmt: skip
async def test_what_a_watch_asks_for(selector, path, what, params):
    wire = Wire()
    async with Client(wire).watch(PODS, selector, {"resourceVersion": "7"}, silent_after=9) as chunks:
        assert chunks == "chunks"
    wanted = {**params, "resourceVersion": "7", "watch": "true"}
    assert wire.sent == [{"path": path, "what": what, "params": wanted, "silent_after": 9}]


async def test_the_version_of_a_kind_is_read_without_its_objects():
    wire = Wire(page("a", version="12"))
    assert await Client(wire).version(LEASES, Selector("team")) == "12"
    (asked,) = wire.sent
    assert (asked["method"], asked["repeatable"]) == ("GET", True)
    assert asked["path"] == "/apis/coordination.k8s.io/v1/namespaces/team/leases"
    assert asked["params"]["limit"] == "1"


async def test_a_client_closes_what_it_sits_on():
    wire = Wire()
    async with Client(wire):
        assert not wire.closed
    assert wire.closed


@pytest.mark.parametrize(
    "present, op",
    [
        pytest.param(["x"], JsonOp(op="add", path="/list/-", value="y"), id="after those that are there"),
        pytest.param([], JsonOp(op="add", path="/list", value=["y"]), id="an empty list may be no list on the server"),
        pytest.param(None, JsonOp(op="add", path="/list", value=["y"]), id="as the first"),
    ],
)
def test_one_more_entry_of_a_list(present, op):
    assert appended("/list", present, "y") == op


def test_a_key_in_a_json_pointer_is_escaped_once():
    assert escaped("example.com/a~b") == "example.com~1a~0b"
