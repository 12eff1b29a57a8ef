"""Kueue beside the control plane: `instaslice up --kueue`.

It runs as a process, not as a pod, so its webhooks are addresses on loopback; everything else is Kueue's own manifests,
which come with its module. It manages Jobs, plain pods, Deployments and StatefulSets, and charges their slices as
`instaslice kueue manifests --config` has it.
"""

import base64
import http.client
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from instaslice.api.roles import Role, rule
from instaslice.kube.core import NAMESPACES, PartialObjectMetadata
from instaslice.kube.resource import Resource
from instaslice.kueue import configuration
from instaslice.local import system
from instaslice.local.control_plane import ControlPlane, is_healthy
from instaslice.local.errors import NotAvailable
from instaslice.local.objects import DEFINITIONS, ClusterObjects
from instaslice.local.process import Processes

NAME = "kueue"
NAMESPACE = "kueue-system"
FRAMEWORKS = ("batch/job", "pod", "deployment", "statefulset")


WEBHOOK_CONFIGURATIONS = {
    kind: Resource(
        PartialObjectMetadata, kind, f"{kind.lower()}s", group="admissionregistration.k8s.io", namespaced=False
    )
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}


async def install(objects: ClusterObjects, plane: ControlPlane, processes: Processes) -> None:
    """Definitions, then the process, then the webhooks: no pod is sent to a webhook before it is served."""
    await objects.apply(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await objects.grant(NAME, _role(_documents(plane, "rbac/role.yaml")), namespace=NAMESPACE)
    definitions = _documents(plane, "crd/bases")
    patched = str(_documents(plane, "crd/kustomization.yaml")[0]["patches"])
    for document in definitions:
        # Kueue converts the kinds whose patch its own kustomization names; the others are the same in all versions.
        converted = f"webhook_in_{document['spec']['names']['plural']}.yaml" in patched
        await objects.apply(DEFINITIONS, _with_conversion(document, plane) if converted else document)
    await objects.definitions_established(document["metadata"]["name"] for document in definitions)
    start(plane, processes)
    for document in _documents(plane, "webhook/manifests.yaml"):
        hooks = [_on_loopback(hook, plane) for hook in document["webhooks"]]
        named = {"metadata": {"name": f"kueue-{document['metadata']['name']}"}, "webhooks": hooks}
        await objects.apply(WEBHOOK_CONFIGURATIONS[document["kind"]], named)


def _role(documents: list[dict[str, Any]]) -> Role:
    """Kueue's own ClusterRole, and what it reads in its own namespace."""
    rules = [given for each in documents if each["kind"] == "ClusterRole" for given in each["rules"]]
    return Role(cluster=rules, own=[rule("", "secrets", "get list watch update")])


def start(plane: ControlPlane, processes: Processes) -> None:
    """Start the process and wait until it serves."""
    etc = plane.layout.root / "kueue"
    certificates = etc / "kueue" / "metrics" / "certs"
    certificates.mkdir(parents=True, exist_ok=True)
    pair = plane.key_files(NAME)
    for file, source in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        shutil.copyfile(source, certificates / file)
    config = etc / "config.yaml"
    text = yaml.safe_dump(_config(plane, certificates), sort_keys=False)
    if not config.exists() or config.read_text() != text:
        # It reads it once. One that an older version of ours started would charge slices by other rules.
        processes.kill(NAME)
        config.write_text(text)
    flags = [f"--config={config}", "--feature-gates=VisibilityOnDemand=false"]
    argv = [*_with_own_etc(etc), str(plane.programs[NAME]), *flags]
    processes.start(NAME, argv, env={"KUBECONFIG": str(plane.kubeconfig(NAME))})
    port = plane.ports["kueue-health"]
    processes.wait(NAME, lambda: is_healthy(http.client.HTTPConnection("127.0.0.1", port, timeout=5), "/readyz"))


def _with_own_etc(etc: Path) -> list[str]:
    """Kueue reads one certificate from a fixed path below /etc. So it gets its own /etc, in a mount namespace that ends
    with it; on loopback it needs nothing else of the machine's."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = f"mount --bind '{etc}' /etc && exec \"$@\""
    return [system.tool("unshare"), "--mount", *as_root, "--", "/bin/sh", "-c", script, "sh"]


def _config(plane: ControlPlane, certificates: Path) -> dict[str, Any]:
    return {
        "apiVersion": configuration.API_VERSION,
        "kind": configuration.KIND,
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{plane.ports['kueue-health']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": plane.ports[NAME], "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 1000, "burst": 2000},
        "integrations": {"frameworks": list(FRAMEWORKS)},
        "resources": configuration.charging(),
    }


def _documents(plane: ControlPlane, below: str) -> list[dict[str, Any]]:
    """Kueue's own manifests, which the build copied beside the program."""
    place = Path(plane.programs[NAME]).parent / "config" / "components" / below
    if not place.exists():
        raise NotAvailable(f"{place} does not exist: provide Kueue's manifests with its program, or let it be built")
    files = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def _on_loopback(hook: dict[str, Any], plane: ControlPlane) -> dict[str, Any]:
    path = hook["clientConfig"]["service"]["path"]
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
    return {**hook, "clientConfig": _client(plane, path), "namespaceSelector": {"matchExpressions": [excluded]}}


def _with_conversion(definition: dict[str, Any], plane: ControlPlane) -> dict[str, Any]:
    webhook = {"clientConfig": _client(plane, "/convert"), "conversionReviewVersions": ["v1"]}
    return {**definition, "spec": {**definition["spec"], "conversion": {"strategy": "Webhook", "webhook": webhook}}}


def _client(plane: ControlPlane, path: str) -> dict[str, str]:
    bundle = base64.b64encode(plane.authority.read_bytes()).decode()
    return {"url": f"https://127.0.0.1:{plane.ports[NAME]}{path}", "caBundle": bundle}
