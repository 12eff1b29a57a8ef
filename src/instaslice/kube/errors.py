"""What can go wrong between us and an API server.

    KubeError                   status, reason, message: what the server answered
    ├── Refused                 any other 4xx: the server, a policy or a webhook refused the request
    │   ├── BadRequest          400  the request itself is wrong; what a webhook denies with unless it says otherwise
    │   ├── Unauthorized        401  who we are is not known
    │   ├── Forbidden           403  who we are may not do this
    │   └── Invalid             422  the object breaks its schema or a rule
    ├── NotFound                404
    ├── Conflict                409  somebody else wrote first, or owns the field
    │   └── AlreadyExists       409  create only
    ├── Gone                    410  the resource version is too old: list again
    ├── TooManyRequests         429  retry_after says when
    ├── ServerError             5xx
    ├── Unreachable             no answer at all: refused, reset, timed out
    │   └── Quiet               a watch without news: nothing changed, or its other end is gone
    ├── Unreadable              an answer, or one object in it, that does not have the form of its kind
    ├── LeaseLost               another replica may lead now
    ├── KubeconfigError         the file that says where the server is
    └── BadQuantity             a text that is not a quantity

Each message starts with the verb and the object: `get pods team-a/train: 404 NotFound: pods "train" not found`.
"""

import msgspec

from instaslice.errors import InstasliceError


class KubeError(InstasliceError):
    """Base of all; status and reason are 0 and "" where no server answered."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        fields: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        """Seconds that the server asked us to wait; None where it did not ask."""
        self.fields = fields
        """What the server objects to, `.metadata.labels.x`: of an apply, the fields that other managers own."""


class Refused(KubeError):
    """Any 4xx without a meaning of its own (404, 409, 410, 429): the same request would be judged the same again, until
    somebody changes the object, a policy or a webhook. Webhooks deny with 400 or whatever they like, policies also with
    413."""


class BadRequest(Refused):
    """400."""


class Unauthorized(Refused):
    """401."""


class Forbidden(Refused):
    """403."""


class NotFound(KubeError):
    """404."""


class Conflict(KubeError):
    """409: on replace and patch a stale resource version (read again, from the server), on apply a field that
    another manager owns (do not repeat blindly)."""


class AlreadyExists(Conflict):
    """409 to a create."""


class Gone(KubeError):
    """410, as an answer or inside a watch. Also a resource version from the future, of an API server that is behind
    its peers or was restored from a backup: in both cases only a fresh list helps."""


class Invalid(Refused):
    """422."""


class TooManyRequests(KubeError):
    """429 that outlasted our retries."""


class ServerError(KubeError):
    """5xx."""


class Unreachable(KubeError):
    """The request may or may not have been carried out."""


class Quiet(Unreachable):
    """Nothing came on a watch for long. The next connection shows which of the two it is: the server sends no bookmarks
    of a kind that has not changed since it started."""


class Unreadable(KubeError):
    """An object that does not have the form of its kind: of a newer version, or edited past its schema. What was asked
    for has been done."""


class LeaseLost(KubeError):
    """Whatever needed the lease must stop now."""


class KubeconfigError(KubeError):
    """Names the file and the remedy."""


class BadQuantity(KubeError, ValueError):
    """Never from a server, which refuses such an object; from a flag, a file or a test."""


_BY_STATUS: dict[int, type[KubeError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


class _Cause(msgspec.Struct, gc=False):
    reason: str = ""
    field: str = ""


class _Details(msgspec.Struct, gc=False, rename="camel"):
    retry_after_seconds: float = 0
    causes: list[_Cause] | None = None


class Status(msgspec.Struct, gc=False):
    """metav1.Status, as far as we read it."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


def from_answer(what: str, status: int, body: bytes, retry_after: str | None = None) -> KubeError:
    """The error for an answer that is not a success. `what` is the verb and the object."""
    try:
        answer = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        # Something between us and the API server answered: a load balancer, an authenticating proxy.
        answer = Status(message=" ".join(body[:200].decode(errors="replace").split()), code=status)
    return from_status(what, answer, status, retry_after)


def from_status(what: str, answer: Status, status: int, retry_after: str | None = None) -> KubeError:
    """The error for a Status object, whether it came as an answer or inside a watch."""
    listed = (answer.details and answer.details.causes) or []
    causes = {cause.reason for cause in listed}
    other = ServerError if status >= 500 else Refused if status >= 400 else KubeError
    kind = _BY_STATUS.get(status, other)
    if answer.reason == "AlreadyExists":
        kind = AlreadyExists
    elif "ResourceVersionTooLarge" in causes:
        kind = Gone
    wait = float(retry_after) if retry_after and retry_after.isdigit() else None
    if wait is None and answer.details and answer.details.retry_after_seconds:
        wait = answer.details.retry_after_seconds
    message = f"{what}: {status} {answer.reason}: {answer.message}"
    fields = tuple(cause.field for cause in listed if cause.field)
    return kind(message, status=status, reason=answer.reason, retry_after=wait, fields=fields)
