"""What the API server sends to an admission webhook and what it gets back, as far as we read and write it."""

import base64
from collections.abc import Iterator, Sequence

import msgspec

from instaslice.kube import core
from instaslice.kube.client import JsonOp
from instaslice.kube.meta import ObjectMeta, Part


class Variable(Part, frozen=True):
    name: str


class Container(core.Container, frozen=True):
    env: list[Variable] | None = None


class PodSpec(Part, frozen=True):
    node_name: str = ""
    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] = msgspec.field(default_factory=list)
    scheduling_gates: list[core.SchedulingGate] | None = None
    tolerations: list[core.Toleration] | None = None


class Meta(ObjectMeta, frozen=True):
    generate_name: str = ""


class Pod(Part, frozen=True):
    """A pod on its way in: the name may still be missing."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()

    def containers(self) -> Iterator[tuple[str, Container]]:
        """Every container with its JSON pointer: init containers, in their order, then the others."""
        for field, containers in (("initContainers", self.spec.init_containers), ("containers", self.spec.containers)):
            for index, container in enumerate(containers):
                yield f"/spec/{field}/{index}", container


class Request(Part, frozen=True):
    uid: str
    operation: str = "CREATE"
    namespace: str = ""
    object: Pod = Pod()


class Review(Part, frozen=True):
    """admission.k8s.io/v1, AdmissionReview."""

    request: Request


_DECODER = msgspec.json.Decoder(Review)


def decode(body: bytes) -> Request:
    """Raises msgspec.DecodeError for what is not an AdmissionReview of a pod."""
    return _DECODER.decode(body).request


def admitted(uid: str, patch: Sequence[JsonOp]) -> bytes:
    """The answer that lets a pod in, changed by `patch`."""
    answer: dict[str, object] = {"uid": uid, "allowed": True}
    if patch:
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    return _encode(answer)


def refused(uid: str, message: str) -> bytes:
    """The answer that turns a pod away; whoever made it reads `message`."""
    return _encode({"uid": uid, "allowed": False, "status": {"code": 400, "reason": "BadRequest", "message": message}})


def _encode(response: dict[str, object]) -> bytes:
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
