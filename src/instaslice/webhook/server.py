"""The HTTPS server that the API server calls. Probes and metrics have a server of their own (`observe.endpoints`).

Stateless, so replicas need not know of each other, and a dry run is answered like any other request.
"""

import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from instaslice.api.errors import Rejected
from instaslice.api.largest_node import LargestNode
from instaslice.kube.clock import Clock
from instaslice.observe.connections import PATIENCE, abort, listening
from instaslice.observe.fair_semaphore import FairSemaphore
from instaslice.observe.logs import about
from instaslice.webhook import review
from instaslice.webhook.mutation import mutate, reapplied

log = logging.getLogger(__name__)

PATH: Final = "/mutate-pods"
RESULTS: Final = ("changed", "unchanged", "refused", "not a review")
MAX_BYTES: Final = 8 << 20
"""Above what the API server accepts from a user (3 MiB), plus the review around it."""
SMALL_BYTES: Final = 32 << 10
"""A pod is rarely larger. Reviews up to here are read at once."""
MOST_LARGE: Final = 2
"""Reviews above that are read so many at a time, others wait: in memory, each takes a multiple of its size. One that
does not arrive while others wait ends as a connection does."""


class Webhook:
    """Answers admission reviews. Set `draining` some seconds before stopping: connections that are still used are
    closed one by one."""

    def __init__(self, largest: LargestNode, clock: Clock) -> None:
        self.largest = largest
        self.clock = clock
        self.draining = False
        self.answered: Counter[str] = Counter()
        """How many pods were changed, left unchanged, refused; and how many requests were not reviews."""
        self._large = FairSemaphore(MOST_LARGE, MOST_LARGE, patience=PATIENCE, clock=clock)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BYTES)
        app.add_routes([web.post(PATH, self._review)])
        return app

    async def _review(self, request: web.Request) -> web.Response:
        try:
            if (request.content_length or MAX_BYTES) <= SMALL_BYTES:
                return self._answered(await request.read())
            async with self._large.permit(request.remote or "", partial(abort, request)):
                return self._answered(await request.read())
        except ConnectionError:
            # The sender is gone, or was cut off because its review did not arrive: nobody reads this.
            return web.Response(status=408)

    def _answered(self, body: bytes) -> web.Response:
        try:
            wanted = review.decode(body)
        except msgspec.DecodeError as error:
            self.answered["not a review"] += 1
            raise web.HTTPBadRequest(text=f"not an AdmissionReview of a pod: {error}") from None
        response = web.Response(body=self.answer(wanted), content_type="application/json")
        if self.draining:
            # The API server's next connection goes to a replica that stays; this one would end during a request.
            response.force_close()
        return response

    def answer(self, request: review.AdmissionRequest) -> bytes:
        """The AdmissionReview that answers one request."""
        meta = request.object.metadata
        pod = f"{request.namespace}/{meta.name or meta.generate_name}"
        keys = about(pod=pod, uid=meta.uid, request=request.uid)
        try:
            if request.operation == "UPDATE":
                patch = reapplied(request.object)
            else:
                patch = mutate(request.object, self.largest, request.uid)
        except Rejected as rejected:
            self.answered["refused"] += 1
            log.info("%s: refused: %s", request.operation, rejected, extra=keys)
            return review.denied(request.uid, f"pod {pod}: {rejected}")
        result = "changed" if patch else "unchanged"
        self.answered[result] += 1
        log.info("%s: %s", request.operation, result, extra=keys)
        return review.allowed(request.uid, patch)


@asynccontextmanager
async def serving(webhook: Webhook, context: ssl.SSLContext, *, host: str | None, port: int) -> AsyncIterator[int]:
    """Serve while inside; yields the port, which the system chooses for 0. Requests in flight are finished on leaving.

    `host` None listens on every address of the machine, of both families.
    """
    async with listening(webhook.app(), host, port, context, clock=webhook.clock) as bound:
        yield bound
