"""What dry runs of pods show: who refuses which, and what the doctor makes of it."""

import pytest
from installations import namespace, webhook
from memory_server import MemoryServer

from instaslice.api import names
from instaslice.doctor.dry_run import DryRuns, dry_run
from instaslice.kube.errors import Forbidden, ServerError, Unreachable

HERE = namespace("default")
POLICY = "pods is forbidden: ValidatingAdmissionPolicy 'instaslice-pods' with binding 'instaslice-pods' denied request"


def refused(said):
    return Forbidden(f"POST /api/v1/namespaces/default/pods: 403 Forbidden: {said}", status=403, reason="Forbidden")


def failed(said):
    return ServerError(f"POST pods: 500 InternalError: {said}", status=500, reason="InternalError")


class Gating(MemoryServer):
    """As webhook and policy have it: gates pods, and refuses what is forged unless it is lenient. `errors` come first,
    one for each request."""

    def __init__(self, *errors, lenient=False, gates=True):
        super().__init__()
        self.lenient, self.gates = lenient, gates
        self.errors = list(errors)
        self.tried = []

    async def request(self, method, path, *, what, params=None, body=None, **more):
        assert (method, params) == ("POST", {"dryRun": "All"})
        self.tried.append(path.split("/")[4])
        if error := self.errors.pop(0) if self.errors else None:
            raise error
        if b"forged" in body and not self.lenient:
            raise refused(POLICY)
        if not self.gates:
            return body
        return body.replace(b'"containers"', b'"schedulingGates":[{"name":"gpu.das.com/slice"}],"containers"')


def hooks(**fields):
    return list(webhook(**fields).webhooks)


ONLY_DEFAULT = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}
OWN = names.NAMESPACE


async def test_a_pod_that_is_gated_and_a_forgery_that_is_refused_are_well():
    server = Gating()
    assert await dry_run(server.client(), hooks(), [HERE], OWN) == DryRuns()
    assert server.tried == ["default", "default"]


@pytest.mark.parametrize(
    "error, field, said",
    [
        pytest.param(refused(POLICY), "not_gated", "ends with `pods is forbidden: Validating", id="not seen"),
        pytest.param(
            failed('failed calling webhook "slices.gpu.das.com": failed to call webhook: Post "https://x": EOF'),
            "not_reached",
            'is not reached by the API server (`failed to call webhook: Post "https://x": EOF`)',
            id="not reached",
        ),
        pytest.param(
            failed('failed calling webhook "slices.gpu.das.com": Post "https://x": tls: x509: unknown authority'),
            "not_reached",
            "; restart the webhook, which writes its authority into the caBundle",
            id="not trusted",
        ),
        pytest.param(
            failed('failed calling webhook "slices.gpu.das.com": service "instaslice-webhook" not found'),
            "not_reached",
            "; install the chart again, which creates the Service",
            id="no Service",
        ),
        pytest.param(
            refused('User "jo" cannot create resource "pods" in API group ""'),
            "unknown",
            "grant `create` on pods",
            id="not allowed",
        ),
        pytest.param(failed("etcd is full"), "unknown", "in a dry run (etcd is full)", id="refused by others"),
    ],
)
async def test_a_refusal_says_what_is_wrong_or_why_it_cannot_be_told(error, field, said):
    found = await dry_run(Gating(error).client(), hooks(), [HERE], OWN)
    assert said in getattr(found, field)
    assert [each for each in ("not_reached", "not_gated", "forged", "unknown") if getattr(found, each)] == [field]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(refused("exceeded quota: gpus, requested: requests.gpu.das.com/mem=5"), id="a quota"),
        pytest.param(refused('admission webhook "slices.gpu.das.com" denied the request: no'), id="the webhook itself"),
    ],
)
async def test_who_refuses_after_the_webhook_was_called_shows_that_it_was(error):
    found = await dry_run(Gating(error).client(), hooks(), [HERE], OWN)
    assert found == DryRuns()


@pytest.mark.parametrize(
    "error, forged, unknown",
    [
        pytest.param(refused("exceeded quota: pods, requested: pods=1"), True, False, id="a quota, which comes last"),
        pytest.param(refused('admission webhook "slices.gpu.das.com" denied the request: no'), False, False, id="ours"),
        pytest.param(refused('admission webhook "x" denied the request: no quota label'), False, True, id="another's"),
    ],
)
async def test_who_refuses_a_forgery_matters(error, forged, unknown):
    found = await dry_run(Gating(None, error).client(), hooks(), [HERE], OWN)
    assert (bool(found.forged), bool(found.unknown)) == (forged, unknown)


async def test_what_does_not_answer_is_not_asked_again():
    server = Gating(Unreachable("no answer"))
    with pytest.raises(Unreachable):
        await dry_run(server.client(), hooks(), [HERE], OWN)
    assert server.tried == ["default"]


async def test_a_pod_that_is_admitted_as_it_is_is_not_gated():
    found = await dry_run(Gating(gates=False).client(), hooks(), [HERE], OWN)
    assert found.not_gated.endswith("one that asks for nvidia.com/mig-1g.5gb stays as it is")


async def test_a_forgery_that_is_accepted():
    found = await dry_run(Gating(lenient=True).client(), hooks(), [HERE], OWN)
    assert found == DryRuns(
        forged="accepts a forged annotation gpu.das.com/mig-uuids, in a dry run in namespace default"
    )


@pytest.mark.parametrize(
    "there, tried",
    [
        pytest.param([namespace("b"), HERE, namespace("a")], ["default"] * 2 + ["a"], id="the caller's, and another"),
        pytest.param([namespace("kube-system"), namespace(OWN), HERE], ["default"] * 2, id="none that is not for pods"),
        pytest.param([HERE, namespace("a", **{names.OPT_OUT: names.OPTED_OUT})], ["default"] * 2, id="none opted out"),
        pytest.param(None, ["default"] * 2, id="the caller's, where none may be read"),
    ],
)
async def test_the_namespaces_that_are_tried(there, tried):
    server = Gating()
    found = await dry_run(server.client(), hooks(**ONLY_DEFAULT), there, OWN)
    assert server.tried == tried
    assert found == DryRuns()


async def test_a_namespace_that_it_is_not_called_for_and_that_is_refused_slices_is_named():
    server = Gating(None, refused(POLICY), refused(POLICY))
    found = await dry_run(server.client(), hooks(**ONLY_DEFAULT), [HERE, namespace("team-a")], OWN)
    assert found.not_gated.startswith("is not called for namespace team-a (namespaceSelector), which is not opted out")


async def test_a_selector_that_selects_nothing_needs_no_trial():
    server = Gating()
    found = await dry_run(server.client(), hooks(**ONLY_DEFAULT), [namespace("team-a")], OWN)
    assert (found.not_gated.startswith("selects no namespace"), server.tried) == (True, [])
