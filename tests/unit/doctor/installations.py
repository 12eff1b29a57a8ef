"""An installation as `instaslice up` leaves it, for tests to break; written out, as the doctor reads it."""

import base64
from datetime import timedelta

import msgspec
from small_worlds import NOW

from instaslice.api import crd
from instaslice.doctor.installation import LEASE, Installation
from instaslice.doctor.installation_kinds import AdmissionPolicy, Definition, PolicyBinding, Quota, WebhookConfiguration
from instaslice.kube.core import LeaseSpec, Namespace
from instaslice.kube.lease import Lease, micro_time
from instaslice.kube.meta import Key, ObjectMeta
from instaslice.webhook.certificates import Lifetimes, advance

WEBHOOK = "instaslice-webhook"
STATE = advance(None, NOW, ["127.0.0.1"], Lifetimes())


def bundle(pem=STATE.trusted):
    return base64.b64encode(pem.encode()).decode()


def expired_bundle():
    return bundle(advance(None, NOW - timedelta(days=4000), ["127.0.0.1"], Lifetimes()).trusted)


def webhook(*, ca=None, url="https://127.0.0.1:9443/mutate", **hook):
    config = {"url": url, "caBundle": bundle() if ca is None else ca}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "UPDATE"]}]
    hook = {"name": "slices.gpu.das.com", "clientConfig": config, "failurePolicy": "Fail", "rules": rules, **hook}
    return msgspec.convert({"metadata": {"name": WEBHOOK}, "webhooks": [hook]}, WebhookConfiguration)


def behind_a_service(**config):
    config = {"service": {"namespace": "instaslice-system", "name": WEBHOOK}, **config}
    return webhook(clientConfig=config)


GUARDED = ("gpu.das.com/requested", "gpu.das.com/mig-uuids", "gpu.das.com/node", "gpu.das.com/given")


def policy(name="instaslice-pods", failure="Fail", guarded=GUARDED):
    validations = [{"expression": f"!object.metadata.?annotations[?'{each}'].hasValue()"} for each in guarded]
    spec = {"failurePolicy": failure, "validations": validations}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, AdmissionPolicy)


def binding(name="instaslice-pods", *actions):
    spec = {"policyName": name, "validationActions": list(actions or ["Deny"])}
    return msgspec.convert({"metadata": {"name": f"b-{name}"}, "spec": spec}, PolicyBinding)


BOTH = ("instaslice-pods", "instaslice-pods-bindings")


def lease(age=1.0, holder="controller-0"):
    spec = LeaseSpec(
        holder_identity=holder, lease_duration_seconds=15, renew_time=micro_time(NOW - timedelta(seconds=age))
    )
    return Lease(metadata=ObjectMeta(namespace="instaslice-system", name=LEASE), spec=spec)


def definition(change=lambda spec, status: None):
    document = crd.definition()
    status = {"conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v1alpha1"]}
    change(document["spec"], status)
    return msgspec.convert({**document, "status": status}, Definition)


def quota(namespace="team-a", name="gpus", **hard):
    named = {key.replace("__", "/"): value for key, value in hard.items()}
    return msgspec.convert({"metadata": {"namespace": namespace, "name": name}, "spec": {"hard": named}}, Quota)


def namespace(name="team-a", **labels):
    return Namespace(metadata=ObjectMeta(name=name, labels={"kubernetes.io/metadata.name": name, **labels}))


def installation(**fields):
    well = {
        "now": NOW,
        "lease_key": Key("instaslice-system", LEASE),
        "webhooks": [webhook()],
        "policies": [*map(policy, BOTH)],
        "bindings": [*map(binding, BOTH)],
        "leases": [lease()],
        "definitions": [definition()],
        "quotas": [],
        "namespaces": [namespace()],
    }
    return Installation(**{**well, **fields})
