"""What an API server remembers, under the real client: unit tests of what writes go through all of `kube.client`.

It knows no schema and no rule of Kubernetes but those that a writer relies on: uids, resource versions and generations,
patches with their tests, the status apart from the rest, an object that is not written when nothing in it changes. What
a real server makes of a request is for tests/integration. It can be told to refuse a request, to lose its answer, and
to do something just before it.
"""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import NamedTuple

import msgspec

from instaslice.kube.client import Client
from instaslice.kube.errors import Status, Unreachable, from_status
from instaslice.kube.meta import key_of

HAVE_STATUS = ("pods", "nodes", "instaslices")
REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 422: "Invalid"}
MERGED_BY = {"conditions": "type"}
"""Lists that a strategic merge patch merges by this key; others it replaces."""


class Call(NamedTuple):
    """A request as a test reads it: `("PATCH", "pods", "status")`."""

    method: str
    kind: str
    part: str = ""


@dataclass
class Mishap:
    """What happens to the next request that fits."""

    call: Call
    error: Exception | int | None = None
    carried_out: bool = False
    before: Callable[[], object] | None = None


class MemoryServer:
    """Stands where the client's transport stands: `MemoryServer().client()`."""

    def __init__(self, now=lambda: datetime(2026, 11, 16, tzinfo=UTC)):
        self.calls = []
        """Every request that came, as a Call, refused ones too."""
        self._now = now
        self._objects = {}  # kind → (namespace, name) → document
        self._numbers = count(1)
        self._mishaps = []
        self._listeners = []

    def client(self):
        return Client(self)

    # For tests ------------------------------------------------------------------------------------------------------

    def refuse(self, method, kind, error, part="", *, times=1):
        """The next requests of this sort are answered with this error, or this status, and change nothing."""
        self._mishaps += [Mishap(Call(method, kind, part), error) for _ in range(times)]

    def lose_answer(self, method, kind, part=""):
        """The next request of this sort is carried out, and nobody hears of it."""
        self._mishaps.append(Mishap(Call(method, kind, part), Unreachable("no answer"), carried_out=True))

    def meanwhile(self, method, kind, do, part=""):
        """Just before the next request of this sort is carried out another does this; awaited where it is a coroutine
        function."""
        self._mishaps.append(Mishap(Call(method, kind, part), before=do))

    def forget_mishaps(self):
        """What was to happen does not."""
        self._mishaps.clear()

    @contextmanager
    def silent(self):
        """Nobody is told of changes meanwhile, nor later."""
        listeners, self._listeners = self._listeners, []
        yield
        self._listeners = listeners

    def put(self, resource, thing):
        """Make or change an object as another client would, and whatever part of it; as it stands then."""
        document = msgspec.json.decode(msgspec.json.encode(thing))
        document.setdefault("metadata", {})
        return msgspec.convert(self._write(resource.plural, key_of(thing), document), resource.type)

    def drop(self, resource, thing):
        self._remove(resource.plural, key_of(thing))

    def all(self, resource):
        """What is there, in the order of names, as a server lists it."""
        there = self._objects.get(resource.plural, {})
        return [msgspec.convert(there[key], resource.type) for key in sorted(there)]

    def document(self, resource, thing):
        """An object as it stands, with what no struct of ours reads."""
        return deepcopy(self._objects[resource.plural][key_of(thing)])

    def on_change(self, resource, listener):
        """`listener(old, new)` hears of every change of a kind at once."""

        def hear(kind, old, new):
            if kind == resource.plural:
                listener(*(each and msgspec.convert(each, resource.type) for each in (old, new)))

        self._listeners.append(hear)

    # What the client asks of its transport --------------------------------------------------------------------------

    async def request(self, method, path, *, what, params=None, body=None, content_type="", repeatable=False):
        kind, namespace, name, part = _parsed(path)
        call = Call(method, kind, part)
        self.calls.append(call)
        mishap = next((each for each in self._mishaps if each.call == call), None)
        if mishap is not None:
            self._mishaps.remove(mishap)
            doing = mishap.before and mishap.before()
            if asyncio.iscoroutine(doing):
                await doing
            if isinstance(mishap.error, int):
                raise _error(what, mishap.error, "the test refuses it")
            if mishap.error is not None and not mishap.carried_out:
                raise mishap.error
        sent = msgspec.json.decode(body) if body else None
        answer = self._answer(method, kind, (namespace, name), part, sent, content_type, what)
        if mishap is not None and mishap.error is not None:
            raise mishap.error
        return msgspec.json.encode(answer)

    @asynccontextmanager
    async def stream(self, path, *, what, params, silent_after):
        kind, namespace, _, _ = _parsed(path)
        lines = asyncio.Queue()

        def told(verb, document):
            if _selected(document, namespace, params.get("labelSelector", "")):
                lines.put_nowait(msgspec.json.encode({"type": verb, "object": document}))

        def hear(changed, old, new):
            if changed == kind:
                told("DELETED" if new is None else "MODIFIED" if old else "ADDED", new or old)

        for document in self._objects.get(kind, {}).values():
            told("ADDED", document)
        meta = {"resourceVersion": self._version(), "annotations": {"k8s.io/initial-events-end": "true"}}
        lines.put_nowait(msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": meta}}))
        self._listeners.append(hear)
        try:
            yield _Chunks(lines)
        finally:
            self._listeners.remove(hear)

    async def close(self):
        return

    # Inside ---------------------------------------------------------------------------------------------------------

    def _answer(self, method, kind, key, part, sent, content_type, what):
        there = self._objects.get(kind, {})
        match method:
            case "GET" if not key[1]:
                items = [there[each] for each in sorted(there) if _selected(there[each], key[0], "")]
                return {"metadata": {"resourceVersion": self._version()}, "items": items}
            case "POST":
                key = key[0], sent["metadata"]["name"]
                if key in there:
                    raise _error(what, 409, f"{key[1]} already exists", "AlreadyExists")
                return self._write(kind, key, sent)
            case "PATCH" if content_type == "application/apply-patch+yaml" and key not in there:
                return self._write(kind, key, sent)
        if key not in there:
            raise _error(what, 404, f'{kind} "{key[1]}" not found')
        old = there[key]
        if method == "GET":
            return old
        if method == "DELETE":
            sent = sent or {}
            _same(old, sent.get("preconditions", {}), what)
            if sent.get("gracePeriodSeconds", 0) < 0:
                raise _error(what, 422, "gracePeriodSeconds: must be non-negative")
            if old.get("spec", {}).get("nodeName") and sent.get("gracePeriodSeconds") != 0:
                return self._write(
                    kind, key, {**old, "metadata": {**old["metadata"], "deletionTimestamp": self._stamp()}}
                )
            return self._remove(kind, key)
        new = sent if method == "PUT" else _patched(old, sent, content_type, what)
        _same(old, new.get("metadata", {}), what)
        if part:
            new = {**old, part: new.get(part, {})}
        elif kind in HAVE_STATUS:
            new = {**new, "status": old.get("status", {})}
        return self._write(kind, key, new)

    def _write(self, kind, key, document):
        old = self._objects.setdefault(kind, {}).get(key)
        before = old["metadata"] if old else {}
        sent = document.get("metadata", {})
        generation = before.get("generation", 0) + (
            old is None or (document.get("spec") or {}) != (old.get("spec") or {})
        )
        number = next(self._numbers)
        own = {
            "uid": before.get("uid") or sent.get("uid") or f"{kind}-{number}",
            "generation": generation,
            "resourceVersion": before.get("resourceVersion", ""),
            "creationTimestamp": before.get("creationTimestamp") or sent.get("creationTimestamp") or self._stamp(),
        }
        new = {**deepcopy(document), "metadata": {**deepcopy(sent), **own}}
        if kind in ("pods", "nodes"):
            new = {"spec": {}, "status": {}, **_without_empty(new)}
        if new == old:
            return old
        new["metadata"]["resourceVersion"] = str(number)
        self._objects[kind][key] = new
        self._tell(kind, old, new)
        return new

    def _remove(self, kind, key):
        old = self._objects[kind].pop(key)
        # As a watch tells it: the deletion has a version of its own.
        old = {**old, "metadata": {**old["metadata"], "resourceVersion": self._version()}}
        self._tell(kind, old, None)
        return old

    def _tell(self, kind, old, new):
        for hear in list(self._listeners):
            hear(kind, old, new)

    def _version(self):
        return str(next(self._numbers))

    def _stamp(self):
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")


class _Chunks:
    def __init__(self, lines):
        self._lines = lines

    async def read(self):
        return await self._lines.get() + b"\n"

    async def gather(self, seconds):
        return


def _parsed(path):
    """`/api/v1/namespaces/team/pods/train/status` in its parts. A path that ends with the version, which asks what is
    served, has none."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if rest and rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    kind, name, part = (*rest, "", "", "")[:3]
    return kind, namespace, name, part


def _selected(document, namespace, labels):
    meta = document["metadata"]
    here = not namespace or meta.get("namespace") == namespace
    return here and (not labels or labels in meta.get("labels", {}))


def _without_empty(value):
    """As Go writes its own structs: what is empty is not there."""
    if isinstance(value, dict):
        left = {name: _without_empty(each) for name, each in value.items()}
        return {name: each for name, each in left.items() if each not in ([], {}, None)}
    return [_without_empty(each) for each in value] if isinstance(value, list) else value


def _same(old, named, what):
    """Who names a uid or a version means no other."""
    for field in ("uid", "resourceVersion"):
        if named.get(field, old["metadata"][field]) != old["metadata"][field]:
            raise _error(what, 409, f"Precondition failed: {field} is another")


def _patched(old, patch, content_type, what):
    if content_type == "application/json-patch+json":
        return _stepped(old, patch, what)
    return _merged(old, patch, MERGED_BY if "strategic" in content_type else {})


def _merged(old, patch, by):
    new = dict(old)
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        elif isinstance(value, dict):
            new[name] = _merged(new.get(name) or {}, value, by)
        elif name in by:
            entries = {each[by[name]]: each for each in new.get(name) or ()}
            for each in value:
                entries[each[by[name]]] = {**entries.get(each[by[name]], {}), **each}
            new[name] = list(entries.values())
        else:
            new[name] = value
    return new


def _stepped(old, ops, what):
    """A JSON patch: all steps, or Invalid."""
    new = deepcopy(old)
    for op in ops:
        *path, last = (each.replace("~1", "/").replace("~0", "~") for each in op["path"].split("/")[1:])
        try:
            parent = new
            for each in path:
                parent = parent[int(each)] if isinstance(parent, list) else parent[each]
            at = last if isinstance(parent, dict) or last == "-" else int(last)
            match op["op"]:
                case "test":
                    there = parent.get(at) if isinstance(parent, dict) else parent[at]
                    if there != op["value"]:
                        raise _error(what, 422, f"testing path {op['path']} value failed: it is {there!r}")
                case "remove":
                    del parent[at]
                case "add" if isinstance(parent, list):
                    parent.insert(len(parent) if at == "-" else at, op["value"])
                case "replace" if at not in parent:
                    raise KeyError(at)
                case "add" | "replace":
                    parent[at] = op["value"]
        except (KeyError, IndexError, TypeError) as error:
            raise _error(what, 422, f"{op['op']} {op['path']}: missing {error}") from None
    return new


def _error(what, code, message, reason=""):
    return from_status(what, Status(message=message, reason=reason or REASONS.get(code, "")), code)
