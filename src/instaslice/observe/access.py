"""Who may read the metrics: whose bearer token the API server knows, and whom it lets `get` the URL /metrics.

The same two questions that kubelet and scheduler ask (TokenReview, SubjectAccessReview), so that one rule with
`nonResourceURLs: ["/metrics"]` opens all of them to Prometheus. Answers are remembered for a while. Few are asked for
at once, and one per second for strangers of one address: they can keep neither the API server busy nor Prometheus away.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple

from instaslice.kube.client import Client
from instaslice.kube.clock import Clock
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import ApiStruct, ObjectMeta
from instaslice.kube.resource import Resource

REMEMBERED_SECONDS: Final = 60.0
"""How long an answer counts: Prometheus asks more often, and a right that was taken away may be used that long."""
MOST_REMEMBERED: Final = 100
MOST_ASKED: Final = 4
"""Reviews of strangers at once; more callers are told to come back."""
STRANGER_SECONDS: Final = 1.0
"""Between two reviews of strangers from one address."""


class _User(ApiStruct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(ApiStruct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class TokenReview(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(ApiStruct, frozen=True):
    allowed: bool = False


class SubjectAccessReview(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _AccessStatus = _AccessStatus()


TOKEN_REVIEWS: Final = Resource(
    TokenReview, "TokenReview", "tokenreviews", group="authentication.k8s.io", namespaced=False
)
ACCESS_REVIEWS: Final = Resource(
    SubjectAccessReview, "SubjectAccessReview", "subjectaccessreviews", group="authorization.k8s.io", namespaced=False
)


class AccessDenied(NamedTuple):
    """Why somebody may not read the metrics."""

    status: HTTPStatus
    why: str


@dataclass(frozen=True, slots=True)
class _Remembered:
    refusal: AccessDenied | None
    until: float


class Access:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._accepted: dict[bytes, _Remembered] = {}
        """Also those whose minute is over: they are no strangers."""
        self._refused: dict[bytes, _Remembered] = {}
        self._turns: dict[str, float] = {}
        """Address → when its next stranger is looked up."""
        self._asking = 0

    async def refusal(self, headers: Mapping[str, str], address: str = "") -> AccessDenied | None:
        """Why the sender of these headers may not read the metrics; None where it may."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        # A token is ASCII; other bytes could not even be sent on for a review.
        if scheme.lower() != "bearer" or not token.strip() or not token.isascii():
            return AccessDenied(
                HTTPStatus.UNAUTHORIZED, "send the token of a ServiceAccount: Authorization: Bearer TOKEN"
            )
        digest, now = hashlib.sha256(token.encode()).digest(), self._clock.monotonic()
        known = self._accepted.get(digest) or self._refused.get(digest)
        if known is not None and now < known.until:
            return known.refusal
        if digest in self._accepted:
            return await self._look_up(digest, token)
        if self._asking >= MOST_ASKED or now < self._turns.get(address, now):
            return AccessDenied(
                HTTPStatus.TOO_MANY_REQUESTS, "too many callers whose rights are being looked up; try again"
            )
        self._asking += 1
        self._turns = {each: turn for each, turn in self._turns.items() if now < turn} | {address: math.inf}
        try:
            refusal = await self._look_up(digest, token)
        finally:
            self._asking -= 1
            self._turns[address] = self._clock.monotonic() + STRANGER_SECONDS
        if refusal is None:
            del self._turns[address]
        return refusal

    async def _look_up(self, digest: bytes, token: str) -> AccessDenied | None:
        now = self._clock.monotonic()
        try:
            refusal = await self._review(token.strip())
        except KubeError as error:
            return AccessDenied(HTTPStatus.SERVICE_UNAVAILABLE, f"the API server does not say who you are: {error}")
        self._remember(digest, refusal, now + REMEMBERED_SECONDS)
        return refusal

    async def _review(self, token: str) -> AccessDenied | None:
        who = (await self._client.create(TOKEN_REVIEWS, {"spec": {"token": token}})).status
        if not who.authenticated:
            return AccessDenied(HTTPStatus.UNAUTHORIZED, "the API server does not know this token")
        user = who.user
        asked = {"path": "/metrics", "verb": "get"}
        spec = {"user": user.username, "uid": user.uid, "groups": user.groups or [], "extra": user.extra or {}}
        body = {"spec": {**spec, "nonResourceAttributes": asked}}
        if (await self._client.create(ACCESS_REVIEWS, body)).status.allowed:
            return None
        return AccessDenied(
            HTTPStatus.FORBIDDEN,
            f"{user.username} may not read the metrics; bind it to a ClusterRole with the rule "
            '{nonResourceURLs: ["/metrics"], verbs: ["get"]}',
        )

    def _remember(self, digest: bytes, refusal: AccessDenied | None, until: float) -> None:
        into, out_of = (self._accepted, self._refused) if refusal is None else (self._refused, self._accepted)
        out_of.pop(digest, None)
        if len(into) >= MOST_REMEMBERED and digest not in into:
            del into[min(into, key=lambda each: into[each].until)]
        into[digest] = _Remembered(refusal, until)
