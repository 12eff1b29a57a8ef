"""Pods and the node that each is made for, with what kube-scheduler ought to say of them.

Every node has 2 CPU, 4Gi of memory, 10Gi of storage, 3 pods, 2 devices and 8Mi of huge pages.
"""

from dataclasses import dataclass, field
from typing import Any

ALLOCATABLE = {
    "cpu": "2",
    "memory": "4Gi",
    "ephemeral-storage": "10Gi",
    "pods": "3",
    "example.com/device": "2",
    "hugepages-2Mi": "8Mi",
}
OVERHEAD = {"cpu": "250m", "memory": "1Gi"}
"""Of the runtime class that `overhead` asks for."""


@dataclass(frozen=True)
class Row:
    sentence: str
    bound: bool
    pod: dict[str, Any]
    node: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    beside: tuple[dict[str, Any], ...] = ()
    """Specs of pods that run on the node already."""


def box(name: str = "main", *, sidecar: bool = False, limits: dict[str, str] | None = None, **requests: str) -> Any:
    named = {key.replace("_", "-"): value for key, value in requests.items()}
    resources = {"requests": named, **({"limits": limits} if limits else {})}
    return {"name": name, "image": "none", "resources": resources, **({"restartPolicy": "Always"} if sidecar else {})}


def spec(*boxes: Any, init: tuple[Any, ...] = (), **more: Any) -> dict[str, Any]:
    return {"containers": list(boxes) or [box()], **({"initContainers": list(init)} if init else {}), **more}


def affinity(*terms: list[tuple[str, ...]]) -> dict[str, Any]:
    made = []
    for term in terms:
        lines = [
            {"key": key, "operator": operator, **({"values": values} if values else {})}
            for key, operator, *values in term
        ]
        fields = [line for line in lines if line["key"] == "metadata.name"]
        labels = [line for line in lines if line["key"] != "metadata.name"]
        made.append({"matchFields": fields, "matchExpressions": labels})
    required = {"nodeSelectorTerms": made}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def tainted(*taints: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    return {"taints": [{"key": key, "value": value, "effect": effect} for key, value, effect in taints], **more}


GPU = ("nvidia.com/gpu", "", "NoSchedule")
TEAM = ("team", "a", "NoSchedule")
DEVICE = "example.com/device"

ROWS = [
    Row("a pod that asks for nothing", True, spec()),
    # Amounts
    Row("exactly all CPU", True, spec(box(cpu="2"))),
    Row("one milli-core more", False, spec(box(cpu="2001m"))),
    Row("exactly the CPU that another left", True, spec(box(cpu="1500m")), beside=(spec(box(cpu="500m")),)),
    Row("where one milli-core less is left", False, spec(box(cpu="1500m")), beside=(spec(box(cpu="501m")),)),
    Row("less than a milli-core is one", False, spec(box(cpu="2")), beside=(spec(box(cpu="100u")),)),
    Row("exactly all memory, in decimals", True, spec(box(memory="4294967296"))),
    Row("a byte more", False, spec(box(memory="4294967297"))),
    Row("exactly all storage", True, spec(box(ephemeral_storage="10Gi"))),
    Row("more storage", False, spec(box(ephemeral_storage="10241Mi"))),
    Row("the third pod", True, spec(), beside=(spec(), spec())),
    Row("the fourth pod", False, spec(), beside=(spec(), spec(), spec())),
    Row("limits that became requests", False, spec(box(limits={"cpu": "3"}))),
    Row("a device of another kind", True, spec(box(limits={DEVICE: "2"}))),
    Row("a device too many", False, spec(box(limits={DEVICE: "2"})), beside=(spec(box(limits={DEVICE: "1"})),)),
    Row("a device that the node does not have", False, spec(box(limits={"example.com/other": "1"}))),
    Row("huge pages", True, spec(box(cpu="1", limits={"hugepages-2Mi": "8Mi"}))),
    Row("too many huge pages", False, spec(box(cpu="1", limits={"hugepages-2Mi": "10Mi"}))),
    # Which containers count
    Row("containers add up", False, spec(box("a", cpu="1"), box("b", cpu="1001m"))),
    Row("init containers do not", True, spec(box(cpu="2"), init=(box("i", cpu="1"), box("j", cpu="2")))),
    Row("a large init container", False, spec(box(cpu="1"), init=(box("i", cpu="2001m"),))),
    Row("a sidecar adds up", False, spec(box(cpu="1500m"), init=(box("s", sidecar=True, cpu="501m"),))),
    Row(
        "an init container after a sidecar",
        False,
        spec(box(cpu="1"), init=(box("s", sidecar=True, cpu="500m"), box("i", cpu="1501m"))),
    ),
    Row(
        "an init container before a sidecar",
        True,
        spec(box(cpu="1"), init=(box("i", cpu="2"), box("s", sidecar=True, cpu="500m"))),
    ),
    Row("overhead that just fits", True, spec(box(cpu="1750m", memory="3Gi"), runtimeClassName="overhead")),
    Row("overhead that does not", False, spec(box(cpu="1751m"), runtimeClassName="overhead")),
    Row("overhead after init containers", False, spec(init=(box("i", cpu="2"),), runtimeClassName="overhead")),
    Row("the pod as a whole", False, spec(box(cpu="1"), resources={"requests": {"cpu": "2001m"}})),
    Row("the pod as a whole fits", True, spec(box(cpu="1"), box("b"), resources={"requests": {"cpu": "2"}})),
    Row(
        "the pod as a whole and overhead",
        False,
        spec(box(), resources={"requests": {"cpu": "1800m"}}, runtimeClassName="overhead"),
    ),
    # State and taints
    Row("cordoned", False, spec(), node={"unschedulable": True}),
    Row(
        "a cordon tolerated",
        True,
        spec(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        node={"unschedulable": True},
    ),
    Row("tainted", False, spec(), node=tainted(GPU)),
    Row("a taint tolerated", True, spec(tolerations=[{"key": GPU[0], "operator": "Exists"}]), node=tainted(GPU)),
    Row("a taint of the same value", True, spec(tolerations=[{"key": "team", "value": "a"}]), node=tainted(TEAM)),
    Row("a taint of another value", False, spec(tolerations=[{"key": "team", "value": "b"}]), node=tainted(TEAM)),
    Row(
        "a taint of another effect",
        False,
        spec(tolerations=[{"key": "team", "operator": "Exists", "effect": "NoExecute"}]),
        node=tainted(TEAM),
    ),
    Row("a preference", True, spec(), node=tainted(("team", "a", "PreferNoSchedule"))),
    Row("not to be executed", False, spec(), node=tainted(("team", "a", "NoExecute"))),
    Row("one of two taints", False, spec(tolerations=[{"key": GPU[0], "operator": "Exists"}]), node=tainted(GPU, TEAM)),
    Row("everything tolerated", True, spec(tolerations=[{"operator": "Exists"}]), node=tainted(GPU, TEAM)),
    # Labels
    Row("a selector", True, spec(nodeSelector={"zone": "a"}), labels={"zone": "a"}),
    Row("a selector of another zone", False, spec(nodeSelector={"zone": "a"}), labels={"zone": "b"}),
    Row("a selector of an empty label", False, spec(nodeSelector={"zone": ""})),
    Row("in", True, spec(**affinity([("zone", "In", "b", "a")])), labels={"zone": "a"}),
    Row("not in those", False, spec(**affinity([("zone", "In", "b", "c")])), labels={"zone": "a"}),
    Row("not in, without the label", True, spec(**affinity([("zone", "NotIn", "a")]))),
    Row("not in, but is", False, spec(**affinity([("zone", "NotIn", "a")])), labels={"zone": "a"}),
    Row("exists, though empty", True, spec(**affinity([("zone", "Exists")])), labels={"zone": ""}),
    Row("does not exist, but does", False, spec(**affinity([("zone", "DoesNotExist")])), labels={"zone": ""}),
    Row("greater", True, spec(**affinity([("cores", "Gt", "06")])), labels={"cores": "007"}),
    Row("not greater", False, spec(**affinity([("cores", "Gt", "7")])), labels={"cores": "7"}),
    Row("less", True, spec(**affinity([("cores", "Lt", "10")])), labels={"cores": "9"}),
    Row("less than no number", False, spec(**affinity([("cores", "Lt", "x")])), labels={"cores": "9"}),
    Row("a word is not greater", False, spec(**affinity([("cores", "Gt", "1")])), labels={"cores": "many"}),
    Row("another node's name", False, spec(**affinity([("metadata.name", "In", "gpu-0")]))),
    Row("not another node's name", True, spec(**affinity([("metadata.name", "NotIn", "gpu-0")]))),
    Row("both of a term", False, spec(**affinity([("zone", "Exists"), ("disk", "Exists")])), labels={"zone": "a"}),
    Row("one of two terms", True, spec(**affinity([("zone", "Exists")], [("disk", "Exists")])), labels={"zone": "a"}),
    Row("an empty term", False, spec(**affinity([]))),
    Row("an empty term and one that holds", True, spec(**affinity([], [("zone", "Exists")])), labels={"zone": "a"}),
    Row(
        "selector and affinity",
        False,
        spec(nodeSelector={"zone": "b"}, **affinity([("zone", "In", "a")])),
        labels={"zone": "a"},
    ),
]
