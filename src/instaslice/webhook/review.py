"""What the API server sends to an admission webhook and what it gets back, as far as we read and write it."""

import base64
from collections.abc import Iterator, Sequence

import msgspec

from instaslice.kube import core
from instaslice.kube.client import JsonOp
from instaslice.kube.meta import ApiStruct, ObjectMeta


class EnvVar(ApiStruct, frozen=True):
    name: str
    value: str = ""
    value_from: dict[str, object] | None = None
    """Present where the value comes from elsewhere, and is not known here."""


class AdmissionContainer(core.Container, frozen=True):
    env: list[EnvVar] | None = None


class AdmissionPodSpec(ApiStruct, frozen=True):
    node_name: str = ""
    containers: list[AdmissionContainer] = msgspec.field(default_factory=list)
    init_containers: list[AdmissionContainer] = msgspec.field(default_factory=list)
    scheduling_gates: list[core.SchedulingGate] | None = None
    tolerations: list[core.Toleration] | None = None


class AdmissionMeta(ObjectMeta, frozen=True):
    generate_name: str = ""


class AdmissionPod(ApiStruct, frozen=True):
    """A pod that is being admitted: the name may still be missing."""

    metadata: AdmissionMeta = AdmissionMeta()
    spec: AdmissionPodSpec = AdmissionPodSpec()

    def containers(self) -> Iterator[tuple[str, AdmissionContainer]]:
        """Every container with its JSON pointer: init containers, in their order, then the others."""
        for field, containers in (("initContainers", self.spec.init_containers), ("containers", self.spec.containers)):
            for index, container in enumerate(containers):
                yield f"/spec/{field}/{index}", container


class AdmissionRequest(ApiStruct, frozen=True):
    uid: str
    operation: str = "CREATE"
    namespace: str = ""
    object: AdmissionPod = AdmissionPod()


class AdmissionReview(ApiStruct, frozen=True):
    """admission.k8s.io/v1, AdmissionReview."""

    request: AdmissionRequest


_DECODER = msgspec.json.Decoder(AdmissionReview)


def decode(body: bytes) -> AdmissionRequest:
    """Raises msgspec.DecodeError for what is not an AdmissionReview of a pod."""
    return _DECODER.decode(body).request


def allowed(uid: str, patch: Sequence[JsonOp]) -> bytes:
    """The response that admits a pod, changed by `patch`."""
    answer: dict[str, object] = {"uid": uid, "allowed": True}
    if patch:
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    return _encode(answer)


def denied(uid: str, message: str) -> bytes:
    """The response that rejects a pod; whoever created it reads `message`."""
    return _encode({"uid": uid, "allowed": False, "status": {"code": 400, "reason": "BadRequest", "message": message}})


def _encode(response: dict[str, object]) -> bytes:
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
