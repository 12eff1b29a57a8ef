"""Rules about what an installation stands on: webhook, policies, Lease.

Pure. What could not be read is skipped here, and noted where it was read.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from cryptography import x509

from instaslice.api import names
from instaslice.doctor.definition_rules import definition_matches
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.installation import Installation
from instaslice.doctor.installation_kinds import (
    HOOK,
    POLICY,
    POLICY_OF_BINDINGS,
    RegisteredWebhook,
    WebhookRule,
)
from instaslice.doctor.renamed_rules import pod_seen, quota_counts
from instaslice.kube.core import Node, Pod

INSTALL: Final = (
    f"install it: `helm install instaslice charts/instaslice --namespace {names.NAMESPACE} --create-namespace "
    "--take-ownership --set namespace.create=true --set image.repository=REPOSITORY --set-string image.tag=TAG --wait` "
    "(docs/install.md); or is this the wrong cluster (--context)?"
)
FIX_WEBHOOK: Final = "apply the webhook's configuration again"
WHO_FILLS_IN: Final = "the webhook fills it in, or cert-manager's cainjector with certManager.enabled"
FIX_FOREIGN: Final = "find out who changed it; delete it, and apply it again"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
FIX_POLICIES: Final = "apply the policies again"
Rule = Callable[[Installation], Iterator[Finding]]


def examine_installation(
    installation: Installation, pods: Sequence[Pod] = (), nodes: Sequence[Node] = ()
) -> list[Finding]:
    """Everything that is wrong with it, and what could not be looked at; sorted."""
    if installation.absent:
        return sorted([_not_installed(installation), *installation.not_checked])
    rules: tuple[Rule, ...] = (
        webhook_called,
        only_ours_registered,
        policies_bound,
        controller_leads,
        definition_matches,
        quota_counts,
    )
    found = [finding for rule in rules for finding in rule(installation)]
    return sorted({*found, *pod_seen(installation, pods, nodes), *installation.not_checked})


def _not_installed(installation: Installation) -> Finding:
    """Instead of a finding for each part that is missing: their remedies are for an installation that is damaged."""
    left = " (its definition is left of an earlier installation)" if installation.definitions else ""
    message = f"InstaSlice is not installed: no webhook, no policies and no controller are there{left}; {INSTALL}"
    return Finding(Invariant.INSTALLED, "cluster", message)


def webhook_called(installation: Installation) -> Iterator[Finding]:
    if installation.webhooks is None:
        return
    if not installation.hooks:
        yield Finding(
            Invariant.WEBHOOK_CALLED,
            f"mutatingwebhookconfiguration {names.WEBHOOK}",
            f"does not exist: new pods that ask for {names.NVIDIA_RESOURCE}* are refused, or wait for what no node "
            f"has; {FIX_WEBHOOK}",
        )
    for name, hook in installation.hooks:
        faults = list(_faults(hook, installation))
        if not faults and (not_reached := installation.dry_runs.not_reached):
            faults = [not_reached]
        elif not faults and (not_gated := installation.dry_runs.not_gated):
            faults = [f"{not_gated}; {FIX_WEBHOOK}"]
        for message in faults:
            yield Finding(Invariant.WEBHOOK_CALLED, f"mutatingwebhookconfiguration {name}", message)


def only_ours_registered(installation: Installation) -> Iterator[Finding]:
    """Whoever has the webhook's token can patch its configuration, so that the API server sends them other objects."""
    for each in installation.webhooks or ():
        hooks = each.webhooks or []
        if HOOK not in [hook.name for hook in hooks]:
            continue
        for hook in hooks:
            for message in _foreign(hook, helm=each.metadata.labels.get(MANAGED_BY) == "Helm"):
                thing = f"mutatingwebhookconfiguration {each.metadata.name}"
                yield Finding(Invariant.WEBHOOK_CALLED, thing, f"{message}; {FIX_FOREIGN}")


def _foreign(hook: RegisteredWebhook, *, helm: bool) -> Iterator[str]:
    if hook.name != HOOK:
        yield f"has the webhook {hook.name}, which is not InstaSlice's"
        return
    rules = hook.rules or ()
    if any(map(_creation_of_pods, rules)) and not all(map(_pods_only, rules)):
        yield "sends the webhook other requests than to create and update pods (rules), which InstaSlice does not need"
    if helm and hook.client_config.url:
        yield f"sends pods to {hook.client_config.url}, not to the Service that the chart registers"


def _pods_only(rule: WebhookRule) -> bool:
    lists = (
        (rule.api_groups, {""}),
        (rule.resources, {"pods"}),
        (rule.operations, {"CREATE", "UPDATE"}),
    )
    return all(ours.issuperset(listed or ()) for listed, ours in lists)


def _faults(hook: RegisteredWebhook, installation: Installation) -> Iterator[str]:
    if hook.failure_policy != "Fail":
        yield (
            f"has the failurePolicy {hook.failure_policy}: while the webhook is down, pods are admitted with "
            f"{names.NVIDIA_RESOURCE}*, which no node has; set it to Fail"
        )
    if not any(_creation_of_pods(each) for each in hook.rules or ()):
        yield f"has no rule that sends new pods to the webhook (rules): none gets slices; {FIX_WEBHOOK}"
    if hook.object_selector and (hook.object_selector.match_labels or hook.object_selector.match_expressions):
        yield f"has an objectSelector, and pods that it does not select get no slices; {FIX_WEBHOOK}"
    if not hook.client_config.ca_bundle:
        if hook.client_config.service is not None:
            yield f"has no caBundle, so the API server does not trust the webhook; {WHO_FILLS_IN}: does it run?"
        return
    try:
        bundle = x509.load_pem_x509_certificates(base64.b64decode(hook.client_config.ca_bundle, validate=True))
    except (binascii.Error, ValueError):
        yield f"has a caBundle that is no certificate; empty it: {WHO_FILLS_IN}"
        return
    ends = max(each.not_valid_after_utc for each in bundle)
    if ends <= installation.now:
        yield f"has a caBundle that expired on {ends:%Y-%m-%d}; does the webhook run? It renews it"


def _creation_of_pods(rule: WebhookRule) -> bool:
    lists = (
        (rule.api_groups, {"", "*"}),
        (rule.api_versions, {"v1", "*"}),
        (rule.resources, {"pods", "*", "*/*"}),
        (rule.operations, {"CREATE", "*"}),
    )
    return rule.scope != "Cluster" and all(fitting.intersection(listed or ()) for listed, fitting in lists)


def policies_bound(installation: Installation) -> Iterator[Finding]:
    for name in (POLICY, POLICY_OF_BINDINGS):
        faults = [*_policy_faults(installation, name), *_binding_faults(installation, name)]
        if not faults and name == POLICY and (forged := installation.dry_runs.forged):
            faults = [f"{forged}; {FIX_POLICIES}"]
        for message in faults:
            yield Finding(Invariant.POLICIES_BOUND, f"validatingadmissionpolicy {name}", message)


def _policy_faults(installation: Installation, name: str) -> Iterator[str]:
    if installation.policies is None:
        return
    found = next((each.spec for each in installation.policies if each.metadata.name == name), None)
    if found is None:
        yield f"does not exist: users can forge the annotations of their pods; {FIX_POLICIES}"
        return
    if found.failure_policy != "Fail":
        yield f"has the failurePolicy {found.failure_policy}: what it cannot judge is let through; set it to Fail"
    expressions = [each.expression for each in found.validations or ()]
    unguarded = [each for each in names.RESERVED_ANNOTATIONS if not any(each in text for text in expressions)]
    if unguarded:
        yield f"does not look at {', '.join(unguarded)} (validations): users can forge them; {FIX_POLICIES}"


def _binding_faults(installation: Installation, name: str) -> Iterator[str]:
    if installation.bindings is None:
        return
    bound = [each.spec for each in installation.bindings if each.spec.policy_name == name]
    if not any("Deny" in (each.validation_actions or ()) for each in bound):
        what = "denies nothing (validationActions)" if bound else "is not bound"
        yield f"{what}: users can forge the annotations of their pods; apply its binding with Deny again"


def controller_leads(installation: Installation) -> Iterator[Finding]:
    if installation.leases is None:
        return
    remedy = "waiting pods get no slices; does the controller run? Its log says why not"
    if not installation.leases:
        message = f"does not exist, so no controller has led in that namespace: {remedy} (-n names another namespace)"
    elif not installation.leases[0].spec.holder_identity:
        message = f"is held by nobody: {remedy}"
    elif installation.lease_expired:
        spec = installation.leases[0].spec
        message = f"is not renewed any more by {spec.holder_identity}, last at {spec.renew_time}: {remedy}"
    else:
        return
    # The next leader takes over within seconds.
    yield Finding(Invariant.CONTROLLER_LEADS, f"lease {installation.lease_key}", message, transient=True)
