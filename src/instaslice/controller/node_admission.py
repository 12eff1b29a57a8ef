"""Whether a node lets a pod in: its state, its taints, its labels.

Pure. Follows kube-scheduler's filters NodeUnschedulable, TaintToleration and NodeAffinity. One rule is ours: the
scheduler knows an unready node only by its taint, which comes seconds later and which a pod may tolerate; we cut no
slice there.
"""

import re
from collections.abc import Mapping

from instaslice.api import nvidia_labels
from instaslice.kube.core import Node, NodeSelectorTerm, Pod, Requirement, Taint, Toleration

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
KEEPS_OUT = ("NoSchedule", "NoExecute")
TERMS_SAID = 3

_INTEGER = re.compile(r"[+-]?[0-9]+")


def refusal(pod: Pod, node: Node) -> str | None:
    """None if the node admits the pod, otherwise why not: "is cordoned", "has no label zone=a", to follow its name.

    Says nothing of CPU, memory or slices.
    """
    spec = pod.spec
    if not node.ready:
        return "is not ready"
    tolerations = spec.tolerations or ()
    if node.spec.unschedulable and not any(tolerates(each, CORDON) for each in tolerations):
        return "is cordoned"
    taint = untolerated(pod, node)
    return unselected(pod, node) if taint is None else f"is tainted {taint_words(taint)}"


def untolerated(pod: Pod, node: Node) -> Taint | None:
    """The first taint that keeps the pod out."""
    tolerations = pod.spec.tolerations or ()
    for taint in node.spec.taints or ():
        if taint.effect in KEEPS_OUT and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def unselected(pod: Pod, node: Node) -> str | None:
    """What the node lacks of the pod's node selector and required node affinity."""
    spec, labels = pod.spec, node.metadata.labels
    for name, value in (spec.node_selector or {}).items():
        if labels.get(name) != value:
            return f"has no label {name}={value}{_of_static_layout(name)}"
    affinity = spec.affinity and spec.affinity.node_affinity
    if affinity and affinity.required is not None:
        return _misses(affinity.required.node_selector_terms or [], node)
    return None


def facts(node: Node) -> tuple[object, ...]:
    """All of a node that `refusal` looks at: while it stays the same, so do its answers."""
    return node.metadata.name, node.metadata.labels, node.ready, node.spec.unschedulable, node.spec.taints or []


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    # Gt and Lt are refused by the API server unless an alpha feature is on; taken for no toleration they only keep a
    # pod waiting, and say so.
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def taint_words(taint: Taint) -> str:
    """As kubectl writes it: key=value:effect."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Whether a term holds for a node. One without requirements never does."""
    return bool(term.match_expressions or term.match_fields) and _lacking(term, node) is None


def matches_labels(terms: list[NodeSelectorTerm], labels: Mapping[str, str]) -> bool:
    """Whether any term holds for these labels, as for volumes: their fields are not looked at."""
    return any(
        (term.match_expressions or term.match_fields)
        and all(_holds(each, labels.get(each.key)) for each in term.match_expressions or ())
        for term in terms
    )


def _misses(terms: list[NodeSelectorTerm], node: Node) -> str | None:
    """None if any term holds; otherwise what the node lacks of each. A term without requirements never holds."""
    missed: list[Requirement] = []
    for term in terms:
        if not (term.match_expressions or term.match_fields):
            continue
        lacking = _lacking(term, node)
        if lacking is None:
            return None
        missed.append(lacking)
    if not missed:
        return "cannot match the pod's required node affinity, whose terms are all empty"
    said = " nor ".join(map(_requirement_words, missed[:TERMS_SAID]))
    more = len(missed) - TERMS_SAID
    remedy = next(filter(None, (_of_static_layout(each.key) for each in missed)), "")
    return f"does not match {said}" + (f" nor {more} more terms" if more > 0 else "") + remedy


def _of_static_layout(label: str) -> str:
    """What to say of a label that is only there where GPUs were partitioned beforehand; "" of any other."""
    if not nvidia_labels.of_static_layout(label):
        return ""
    out = "leave it out of the pod's node selector"
    if label.startswith(nvidia_labels.CONFIG):
        return f" (written for NVIDIA's MIG manager: {out}, or have the node labelled by hand)"
    return f" (written where GPUs have a static MIG layout: {out}, or see `instaslice controller --static-mig-labels`)"


def _lacking(term: NodeSelectorTerm, node: Node) -> Requirement | None:
    """The first requirement of the term that does not hold."""
    labels = node.metadata.labels
    for each in term.match_expressions or ():
        if not _holds(each, labels.get(each.key)):
            return each
    for each in term.match_fields or ():
        # The only field that the API server lets through.
        if each.key != "metadata.name" or not _holds(each, node.metadata.name):
            return each
    return None


def _holds(requirement: Requirement, value: str | None) -> bool:
    """Whether a label's value, None where the node has no such label, is as required."""
    wanted = requirement.values or []
    match requirement.operator:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            there, bound = _integer(value), _integer(wanted[0] if len(wanted) == 1 else None)
            if there is None or bound is None:
                return False
            return there > bound if operator == "Gt" else there < bound
    return False


def _integer(text: str | None) -> int | None:
    """As Go reads a 64-bit integer: no blanks, no underscores, ASCII digits."""
    if text is None or len(text) > 63 or not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _requirement_words(requirement: Requirement) -> str:
    """As label selectors are written: `zone in (a, b)`, `disk exists`, `cores > 8`."""
    values = ", ".join(requirement.values or ())
    match requirement.operator:
        case "In":
            return f"{requirement.key} in ({values})"
        case "NotIn":
            return f"{requirement.key} not in ({values})"
        case "Exists":
            return f"{requirement.key} exists"
        case "DoesNotExist":
            return f"{requirement.key} is absent"
        case "Gt":
            return f"{requirement.key} > {values}"
        case "Lt":
            return f"{requirement.key} < {values}"
    return f"{requirement.key} {requirement.operator} ({values})"
