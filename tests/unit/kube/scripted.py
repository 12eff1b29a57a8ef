"""An API server as one Reflector sees it: it answers each request with the next of a script."""

import asyncio
import json
from contextlib import asynccontextmanager

import manifests

from instaslice.kube.observer import UNOBSERVED


def pod(name, version, uid=None, **meta):
    made = manifests.pod(name, namespace="team")
    made["metadata"] |= {"uid": uid or name, "resourceVersion": version, **meta}
    return made


def added(name, version, **more):
    return line("ADDED", pod(name, version, **more))


def modified(name, version, **more):
    return line("MODIFIED", pod(name, version, **more))


def deleted(name, version, **more):
    return line("DELETED", pod(name, version, **more))


def bookmark(version, **annotations):
    empty = {"spec": {"containers": None}, "status": {}}  # as a server sends it, not as the kind wants it
    return line("BOOKMARK", {"metadata": {"resourceVersion": version, "annotations": annotations}, **empty})


def complete(version):
    """The end of what was there when a watch-list began."""
    return bookmark(version, **{"k8s.io/initial-events-end": "true"})


def error(code, reason=""):
    return line("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "because"})


def line(kind, thing):
    return json.dumps({"type": kind, "object": thing}, separators=(",", ":")).encode() + b"\n"


class Scripted:
    """A Client for a Reflector. A step of the script is what the next request is answered with:

    an exception; for a list `(version, *pods)`, for the version alone a string; for a watch a list of lines, at whose
    end the server ends it, or where an exception stands last, raises that. After the script nothing is answered.
    """

    observer = UNOBSERVED

    def __init__(self, *script):
        self._script = list(script)
        self.asked = []
        """Each request in a word."""
        self.params = []
        """Of each watch."""
        self.told = asyncio.Event()
        """Set when all of the script was told and one request more has come."""

    async def _next(self, asked):
        self.asked.append(asked)
        if not self._script:
            self.told.set()
            await asyncio.Event().wait()
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def pages(self, resource, selector):
        version, *pods = await self._next("list")
        for n, each in enumerate(pods or [None]):
            page = {"metadata": {"resourceVersion": version}, "items": [each] if each else None}
            page["metadata"]["continue"] = "more" if n < len(pods) - 1 else ""
            yield resource.page_decoder.decode(json.dumps(page))

    async def version(self, resource, selector):
        return await self._next("version")

    @asynccontextmanager
    async def watch(self, resource, selector, params, *, silent_after):
        self.params.append({**params, "silent_after": silent_after})
        asked = "watch-list" if "sendInitialEvents" in params else f"watch from {params['resourceVersion']}"
        yield _Chunks(await self._next(asked))


class _Chunks:
    def __init__(self, lines):
        self._lines = list(lines)

    async def read(self):
        step = self._lines.pop(0) if self._lines else b""
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step

    async def gather(self, seconds):
        pass
