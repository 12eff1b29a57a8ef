"""What the API server makes of new pods: whether it reaches the webhook, whether pods are gated, and whether forged
annotations are refused.

By dry runs, which create nothing: rules, selectors, conditions and expressions can be written in many ways, and what
they come to shows here. Only the API server can tell whether it reaches the webhook: from elsewhere its address may
lead nowhere, or to something else.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from instaslice.api import names
from instaslice.doctor.called_namespaces import called_for
from instaslice.doctor.installation_kinds import HOOK, POLICY, RegisteredWebhook
from instaslice.doctor.requested import gated
from instaslice.kube.client import Client
from instaslice.kube.core import PODS, Namespace, Pod
from instaslice.kube.errors import KubeError, Unreachable

NONE: Final[Mapping[str, str]] = {}
SYSTEM: Final = "kube-system"
QUOTA: Final = re.compile("(exceeded|failed|status unknown for) quota:")
"""How a quota refuses a pod, which all webhooks and policies have admitted by then."""
SLICE: Final = f"{names.NVIDIA_RESOURCE}1g.5gb"
NOT_REACHED: Final = f'failed calling webhook "{HOOK}"'
CONTAINER: Final[Mapping[str, Any]] = {
    "name": "main",
    "image": "none",
    # As the strictest Pod Security Standard wants it.
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}


class DryRuns(msgspec.Struct, frozen=True):
    """What came of them; empty where all is well."""

    not_reached: str = ""
    """Why the API server gets no answer from the webhook, with the remedy."""
    not_gated: str = ""
    """Why pods with slices are not gated."""
    forged: str = ""
    """Where forged annotations are accepted."""
    unknown: str = ""
    """Why it cannot be told."""


async def dry_run(
    client: Client, hooks: Sequence[RegisteredWebhook], namespaces: Sequence[Namespace] | None, own: str
) -> DryRuns:
    """Dry runs in one namespace that the hooks are called for and in one that they are not. `namespaces` None are those
    that may not be read; `own` is where InstaSlice runs, which has pods of its own only. Raises Unreachable."""
    if not hooks:
        return DryRuns()
    present = [each.metadata for each in namespaces or () if each.metadata.deletion_timestamp is None]
    called = [each.name for each in present if called_for(hooks, each.labels)]
    if namespaces is not None and not called:
        return DryRuns(not_gated="selects no namespace that exists (namespaceSelector), so no pod gets slices")
    namespace = _chosen(called, client.namespace)
    found = await _slice_pod(client, namespace)
    if not (found.not_reached or found.unknown):
        about_forged = await _forged_pod(client, namespace)
        found = replace(found, forged=about_forged.forged, unknown=about_forged.unknown)
    not_called = [
        each.name
        for each in present
        if each.name not in (SYSTEM, own, *called) and each.labels.get(names.OPT_OUT) != names.OPTED_OUT
    ]
    if not_called and not (found.not_reached or found.not_gated or found.unknown):
        not_gated = await _slice_pod_elsewhere(client, _chosen(not_called, client.namespace))
        found = replace(found, not_gated=not_gated)
    return found


async def _slice_pod(client: Client, namespace: str) -> DryRuns:
    answer = await _create(client, namespace, limits={SLICE: "1"})
    if isinstance(answer, Pod):
        if gated(answer):
            return DryRuns()
        return DryRuns(
            not_gated=f"gates no pod: in a dry run in namespace {namespace}, one that asks for {SLICE} stays as it is"
        )
    said = _said(answer)
    if NOT_REACHED in said:
        return DryRuns(not_reached=_why_not_reached(said))
    if _by_policy(answer):
        return DryRuns(not_gated=f"gates no pod: a dry run in namespace {namespace} ends with `{said}`")
    return DryRuns() if _by_webhook(answer) or QUOTA.search(said) else _unknown(namespace, said)


def _why_not_reached(said: str) -> str:
    reason = said.partition(f"{NOT_REACHED}: ")[2] or said
    if "x509" in reason or "tls:" in reason:
        remedy = (
            "restart the webhook, which writes its authority into the caBundle, or see whether cert-manager's "
            "cainjector runs, which does so with certManager.enabled"
        )
    elif "service" in reason and "not found" in reason:
        remedy = "install the chart again, which creates the Service"
    else:
        remedy = "does the webhook run, and may the API server reach it (NetworkPolicy, firewall)?"
    return f"is not reached by the API server (`{reason}`), so no pod with slices can be created; {remedy}"


async def _forged_pod(client: Client, namespace: str) -> DryRuns:
    answer = await _create(client, namespace, annotations={names.MIG_UUIDS: "forged"})
    if isinstance(answer, Pod) or QUOTA.search(_said(answer)):
        return DryRuns(forged=f"accepts a forged annotation {names.MIG_UUIDS}, in a dry run in namespace {namespace}")
    # The webhook sees it too where a LimitRange gives every pod a slice.
    return DryRuns() if _by_policy(answer) or _by_webhook(answer) else _unknown(namespace, _said(answer))


async def _slice_pod_elsewhere(client: Client, namespace: str) -> str:
    """Where the webhook is limited to other namespaces, the pod is none of ours; elsewhere our policy refuses it."""
    answer = await _create(client, namespace, limits={SLICE: "1"})
    if isinstance(answer, Pod) or not _by_policy(answer):
        return ""
    return (
        f"is not called for namespace {namespace} (namespaceSelector), which is not opted out "
        f"({names.OPT_OUT}={names.OPTED_OUT}), so pods with slices are refused there"
    )


async def _create(
    client: Client, namespace: str, *, annotations: Mapping[str, str] = NONE, limits: Mapping[str, str] = NONE
) -> Pod | KubeError:
    """The pod as it would be, or why it is refused. Raises Unreachable."""
    metadata = {"namespace": namespace, "name": "instaslice-doctor", "annotations": annotations}
    container = {**CONTAINER, "resources": {"limits": limits}}
    _, body = PODS.document({"metadata": metadata, "spec": {"containers": [container]}})
    try:
        answer = await client.raw("POST", PODS.path(namespace), params={"dryRun": "All"}, body=body)
    except Unreachable:
        raise
    except KubeError as error:
        return error
    return msgspec.json.decode(answer, type=Pod)


def _unknown(namespace: str, said: str) -> DryRuns:
    if 'cannot create resource "pods"' in said:
        return DryRuns(
            unknown=f"may not be created in namespace {namespace}, not even in a dry run; grant `create` on pods"
        )
    return DryRuns(unknown=f"cannot be created in namespace {namespace} in a dry run ({said})")


def _chosen(namespaces: Sequence[str], preferred: str) -> str:
    """The one that the caller works in, where it is among them."""
    return preferred if preferred in namespaces or not namespaces else min(namespaces)


def _by_policy(error: KubeError) -> bool:
    return f"ValidatingAdmissionPolicy '{POLICY}'" in error.message


def _by_webhook(error: KubeError) -> bool:
    return f'admission webhook "{HOOK}" denied' in error.message


def _said(error: KubeError) -> str:
    """The API server's own words, without the request."""
    return error.message.partition(f"{error.status} {error.reason}: ")[2] or error.message
