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
    app: str = "mine"
    """Label of the pod."""
    apps: str = "other"
    """Label of those beside it."""


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


def opens(port: int = 8080, ip: str = "", protocol: str = "TCP", **more: Any) -> Any:
    """A container with a port of the node."""
    made = {"containerPort": 80, "hostPort": port, "protocol": protocol, **({"hostIP": ip} if ip else {})}
    return {**box(f"port-{port}-{protocol.lower()}"), "ports": [made], **more}


def towards(kind: str, app: str, key: str = "row", **more: Any) -> dict[str, Any]:
    """Required affinity (`podAffinity`) or anti-affinity to pods by their label. Every node has its own `row`."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(app: str, skew: int, **more: Any) -> dict[str, Any]:
    """Hard, over the nodes: the pod selects its own, which is the only one that counts unless more is said."""
    selector = {"matchLabels": {"app": app}}
    rule = {"maxSkew": skew, "topologyKey": "row", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [{**rule, **more}]}


def disk(name: str, *, reads: bool = False) -> dict[str, Any]:
    return {"volumes": [{"name": "disk", "gcePersistentDisk": {"pdName": name, "readOnly": reads}}]}


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
    # Ports of the node
    Row("a port that nobody has", True, spec(opens()), beside=(spec(opens(8081)),)),
    Row("a port that another has", False, spec(opens()), beside=(spec(opens()),)),
    Row("a port of another protocol", True, spec(opens()), beside=(spec(opens(protocol="UDP")),)),
    Row("a port of another address", True, spec(opens(ip="10.0.0.1")), beside=(spec(opens(ip="10.0.0.2")),)),
    Row("a port of all addresses", False, spec(opens()), beside=(spec(opens(ip="10.0.0.2")),)),
    Row("a port that another has of all", False, spec(opens(ip="10.0.0.1")), beside=(spec(opens()),)),
    Row("a port of an init container", True, spec(init=(opens(),)), beside=(spec(opens()),)),
    Row("a port of a sidecar", False, spec(init=(opens(restartPolicy="Always"),)), beside=(spec(opens()),)),
    # Other pods
    Row("near one that is there", True, spec(**towards("podAffinity", "a1")), beside=(spec(),), apps="a1"),
    Row("near one that is not", False, spec(**towards("podAffinity", "a2")), beside=(spec(),)),
    Row("near its like, the first", True, spec(**towards("podAffinity", "a3")), app="a3"),
    Row(
        "near one of another namespace",
        False,
        spec(**towards("podAffinity", "a4", namespaces=["default"])),
        beside=(spec(),),
        apps="a4",
    ),
    Row(
        "near one of any namespace",
        True,
        spec(**towards("podAffinity", "a5", namespaceSelector={})),
        beside=(spec(),),
        apps="a5",
    ),
    Row(
        "near, by a label that the node lacks",
        False,
        spec(**towards("podAffinity", "a6", "rack")),
        beside=(spec(),),
        apps="a6",
    ),
    Row("away from one that is there", False, spec(**towards("podAntiAffinity", "a7")), beside=(spec(),), apps="a7"),
    Row("away from one that is not", True, spec(**towards("podAntiAffinity", "a8")), beside=(spec(),)),
    Row("away from its own like", True, spec(**towards("podAntiAffinity", "a9")), app="a9"),
    Row(
        "away, by a label that the node lacks",
        True,
        spec(**towards("podAntiAffinity", "a10", "rack")),
        beside=(spec(),),
        apps="a10",
    ),
    Row(
        "one that is there is averse to it",
        False,
        spec(),
        beside=(spec(**towards("podAntiAffinity", "a11")),),
        app="a11",
    ),
    Row("one that is there is averse to another", True, spec(), beside=(spec(**towards("podAntiAffinity", "a12")),)),
    # Spread
    Row("level in the only domain", True, spec(**spread("s1", 1)), beside=(spec(), spec()), apps="s1"),
    Row(
        "fewer domains than wanted", False, spec(**spread("s2", 1, minDomains=2)), beside=(spec(),), app="s2", apps="s2"
    ),
    Row(
        "as far ahead as it may be", True, spec(**spread("s3", 2, minDomains=2)), beside=(spec(),), app="s3", apps="s3"
    ),
    Row(
        "ahead of other nodes",
        False,
        spec(**spread("s4", 1, nodeAffinityPolicy="Ignore")),
        beside=(spec(),),
        app="s4",
        apps="s4",
    ),
    Row(
        "it does not count itself",
        True,
        spec(**spread("s5", 1, nodeAffinityPolicy="Ignore")),
        beside=(spec(),),
        apps="s5",
    ),
    Row("a domain that the node is not in", False, spec(**spread("s6", 1, topologyKey="rack"))),
    # Disks without a claim
    Row("a disk that another writes", False, spec(**disk("one")), beside=(spec(**disk("one")),)),
    Row("a disk that both read", True, spec(**disk("one", reads=True)), beside=(spec(**disk("one", reads=True)),)),
    Row("another disk", True, spec(**disk("one")), beside=(spec(**disk("two")),)),
    # Claims
    Row(
        "a claim that does not exist",
        False,
        spec(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "no"}}]),
    ),
    Row("an empty term", False, spec(**affinity([]))),
    Row("an empty term and one that holds", True, spec(**affinity([], [("zone", "Exists")])), labels={"zone": "a"}),
    Row(
        "selector and affinity",
        False,
        spec(nodeSelector={"zone": "b"}, **affinity([("zone", "In", "a")])),
        labels={"zone": "a"},
    ),
]
