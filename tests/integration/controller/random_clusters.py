"""Random clusters and pods that use every filter of the scheduler at once, as documents for the API server.

Everything follows from one generator of random numbers: the same seed makes the same cluster and the same pods.
"""

from dataclasses import dataclass, field
from typing import Any

APPS = ("db", "web", "train")
TIERS = ("low", "high")
PORTS = (8080, 8081)
ZONE, RACK, HOST = "topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname"
KEYS = (HOST, HOST, ZONE, RACK)
SIZES = ("1Gi", "2Gi", "5Gi")
Document = dict[str, Any]


@dataclass
class Case:
    """A pod, and the claims and volumes to be there before it."""

    pod: Document
    claims: list[Document] = field(default_factory=list)
    volumes: list[Document] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    """Claims that Kubernetes is to bind first."""
    deleted: list[str] = field(default_factory=list)
    """Claims that are deleted, and stay for a finalizer."""
    lost: list[str] = field(default_factory=list)
    """Claims whose volume goes away."""


class Generator:
    def __init__(self, rng, prefix: str, nodes: int = 8) -> None:
        self.rng, self.prefix = rng, prefix
        self.nodes = [f"{prefix}-{index}" for index in range(nodes)]
        self.namespaces = [prefix, f"{prefix}-x", f"{prefix}-y"]
        self.driver = f"{prefix}.example.com"
        self.full = f"full.{prefix}.example.com"
        self.used_claims: list[tuple[str, str]] = []
        self.number = 0

    # What is there from the start -----------------------------------------------------------------------------------

    def node_documents(self) -> list[Document]:
        made = []
        for index, name in enumerate(self.nodes):
            labels = {"type": "kwok", "stage": self.prefix, HOST: name, "disk": self.rng.choice(["fast", "slow"])}
            if self.rng.random() < 0.9:
                labels[ZONE] = self.rng.choice("abc")
            if self.rng.random() < 0.7:
                labels[RACK] = self.rng.choice("12")
            taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}] if index == 0 else []
            made.append({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}})
        return made

    def namespace_documents(self) -> list[Document]:
        return [
            {"metadata": {"name": name, "labels": {"stage": self.prefix, "team": team}}}
            for name, team in zip(self.namespaces[1:], "xy", strict=True)
        ]

    def class_documents(self) -> list[Document]:
        wait = {"volumeBindingMode": "WaitForFirstConsumer"}
        only_a = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
        made = {
            "now": {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "Immediate"},
            "wait": {"provisioner": "kubernetes.io/no-provisioner", **wait},
            "make": {"provisioner": self.driver, **wait},
            "some": {"provisioner": self.driver, **wait, "allowedTopologies": only_a},
            "full": {"provisioner": self.full, **wait},
        }
        return [{"metadata": {"name": self.of(name)}, **fields} for name, fields in made.items()]

    def driver_documents(self) -> list[Document]:
        return [
            {"metadata": {"name": self.driver}, "spec": {"attachRequired": True}},
            {"metadata": {"name": self.full}, "spec": {"storageCapacity": True, "attachRequired": False}},
        ]

    def capacity_documents(self) -> list[Document]:
        return [
            {
                "metadata": {"name": f"{zone}-{self.prefix}", "namespace": self.prefix},
                "storageClassName": self.of("full"),
                "capacity": capacity,
                "nodeTopology": {"matchLabels": {ZONE: zone}},
            }
            for zone, capacity in (("a", "10Gi"), ("b", "1Gi"))
        ]

    def csi_node_documents(self, uids: dict[str, str]) -> list[Document]:
        made = []
        for name in self.nodes:
            if self.rng.random() < 0.7:
                limit = {"allocatable": {"count": self.rng.choice([1, 2, 3])}} if self.rng.random() < 0.8 else {}
                owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uids[name]}
                drivers = [{"name": self.driver, "nodeID": name, "topologyKeys": [ZONE], **limit}]
                made.append({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"drivers": drivers}})
        return made

    def of(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    # One pod --------------------------------------------------------------------------------------------------------

    def case(self) -> Case:
        self.number += 1
        rng, namespace = self.rng, self.rng.choice([self.namespaces[0], *self.namespaces])
        labels = {"app": rng.choice(APPS), **({"tier": rng.choice(TIERS)} if rng.random() < 0.5 else {})}
        spec: Document = {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none"}],
            "schedulingGates": [{"name": "example.com/wait"}],
            "nodeSelector": {"stage": self.prefix},
            "tolerations": [{"key": "team", "operator": "Exists"}] if rng.random() < 0.6 else [],
        }
        made = Case({"metadata": {"namespace": namespace, "name": f"p{self.number}", "labels": labels}, "spec": spec})
        if rng.random() < 0.6:
            spec["nodeSelector"][HOST] = rng.choice(self.nodes)
        elif rng.random() < 0.3:
            spec["nodeSelector"]["disk"] = rng.choice(["fast", "slow"])
        uses = [
            (0.35, self._affinity),
            (0.45, self._anti_affinity),
            (0.35, self._spread),
            (0.25, self._ports),
            (0.45, self._volume),
        ]
        for chance, use in uses:
            if rng.random() < chance:
                use(made)
        return made

    def _selector(self, labels: Document) -> Document | None:
        rng, roll = self.rng, self.rng.random()
        if roll < 0.35:
            return {"matchLabels": {"app": labels["app"]}}
        if roll < 0.6:
            return {"matchLabels": {"app": rng.choice(APPS)}}
        if roll < 0.9:
            operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
            values = {"values": rng.sample(APPS, 2)} if operator in ("In", "NotIn") else {}
            key = "tier" if operator in ("Exists", "DoesNotExist") else "app"
            return {"matchExpressions": [{"key": key, "operator": operator, **values}]}
        return rng.choice([{}, None])

    def _term(self, labels: Document) -> Document:
        rng = self.rng
        term: Document = {"topologyKey": rng.choice(KEYS)}
        if (found := self._selector(labels)) is not None:
            term["labelSelector"] = found
        roll = rng.random()
        if roll < 0.2:
            term["namespaces"] = rng.sample(self.namespaces, 2)
        elif roll < 0.3:
            term["namespaceSelector"] = {}
        elif roll < 0.45:
            term["namespaceSelector"] = {"matchLabels": {"team": rng.choice("xy"), "stage": self.prefix}}
        if found and "tier" not in str(found) and rng.random() < 0.2:
            term["matchLabelKeys" if rng.random() < 0.6 else "mismatchLabelKeys"] = ["tier"]
        return term

    def _terms(self, case: Case, kind: str) -> None:
        labels = case.pod["metadata"]["labels"]
        terms = [self._term(labels) for _ in range(self.rng.choice([1, 1, 2]))]
        affinity = case.pod["spec"].setdefault("affinity", {})
        affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}

    def _affinity(self, case: Case) -> None:
        self._terms(case, "podAffinity")

    def _anti_affinity(self, case: Case) -> None:
        self._terms(case, "podAntiAffinity")

    def _spread(self, case: Case) -> None:
        rng, made = self.rng, []
        for key in rng.sample([HOST, ZONE, RACK], rng.choice([1, 1, 2])):
            each: Document = {
                "maxSkew": rng.choice([1, 1, 2]),
                "topologyKey": key,
                "whenUnsatisfiable": rng.choice(["DoNotSchedule"] * 4 + ["ScheduleAnyway"]),
            }
            if (found := self._selector(case.pod["metadata"]["labels"])) is not None:
                each["labelSelector"] = found
                if found and "tier" not in str(found) and rng.random() < 0.3:
                    each["matchLabelKeys"] = ["tier"]
            if each["whenUnsatisfiable"] == "DoNotSchedule" and rng.random() < 0.2:
                each["minDomains"] = rng.choice([2, 4])
            for policy, chance in (("nodeAffinityPolicy", 0.5), ("nodeTaintsPolicy", 0.4)):
                if rng.random() < chance:
                    each[policy] = rng.choice(["Honor", "Ignore"])
            made.append(each)
        case.pod["spec"]["topologySpreadConstraints"] = made

    def _ports(self, case: Case) -> None:
        rng = self.rng
        port: Document = {"containerPort": 80, "hostPort": rng.choice(PORTS), "protocol": rng.choice(["TCP", "UDP"])}
        if rng.random() < 0.6:
            port["hostIP"] = rng.choice(["0.0.0.0", "10.0.0.1", "10.0.0.2"])
        if rng.random() < 0.3:
            side = {"name": "side", "image": "none", "ports": [port]}
            if rng.random() < 0.6:
                side["restartPolicy"] = "Always"
            case.pod["spec"]["initContainers"] = [side]
        else:
            case.pod["spec"]["containers"][0]["ports"] = [port]

    def _volume(self, case: Case) -> None:
        kinds = [self._named, self._named, self._bound, self._bound, self._static, self._static, self._made]
        kinds += [self._ephemeral, self._again, self._disk]
        for number in range(self.rng.choice([1, 1, 2])):
            self.rng.choice(kinds)(case, f"v{number}")

    def _claim(self, case: Case, volume: str, of: str, **more: Any) -> Document:
        name = f"c{self.number}-{volume}"
        size = more.pop("size", self.rng.choice(SIZES))
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **more}
        if of:
            spec["storageClassName"] = of
        claim = {"metadata": {"namespace": case.pod["metadata"]["namespace"], "name": name}, "spec": spec}
        case.claims.append(claim)
        self._use(case, volume, name)
        return claim

    def _use(self, case: Case, volume: str, claim: str) -> None:
        volumes = case.pod["spec"].setdefault("volumes", [])
        volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})

    def _named(self, case: Case, volume: str) -> None:
        """Absent, unbound and to stay so, being deleted, or lost."""
        roll = self.rng.random()
        if roll < 0.25:
            self._use(case, volume, f"absent-{self.number}")
            return
        if roll < 0.75:
            self._claim(case, volume, self.of(self.rng.choice(["now", "missing"])))
            return
        claim = self._claim(case, volume, self.of("wait"))
        claim["metadata"]["finalizers"] = ["example.com/stay"]
        case.deleted.append(claim["metadata"]["name"])

    def _bound(self, case: Case, volume: str) -> None:
        """To a volume somewhere; shared by several pods later on, or for one only."""
        rng, name = self.rng, f"{self.prefix}-{self.number}-{volume}"
        mode = rng.choice(["ReadWriteOnce", "ReadWriteOncePod"])
        claim = self._claim(case, volume, self.of("now"), volumeName=name, accessModes=[mode], size="1Gi")
        ref = {"namespace": claim["metadata"]["namespace"], "name": claim["metadata"]["name"]}
        spec = {**self._volume_spec(name, "now", "1Gi"), "claimRef": ref, "accessModes": [mode]}
        labels = {}
        if rng.random() < 0.3:
            labels = {ZONE: rng.choice(["a", "b", "a__b", "a____b"])}
        if rng.random() < 0.3:
            spec.pop("hostPath")
            spec["csi"] = {"driver": self.driver, "volumeHandle": name}
        case.volumes.append({"metadata": {"name": name, "labels": labels}, "spec": spec})
        case.bound.append(claim["metadata"]["name"])
        if rng.random() < 0.1:
            case.lost.append(claim["metadata"]["name"])
        elif rng.random() < 0.7:
            self.used_claims.append((ref["namespace"], ref["name"]))

    def _again(self, case: Case, volume: str) -> None:
        """A claim that another pod used, or uses."""
        here = [name for namespace, name in self.used_claims if namespace == case.pod["metadata"]["namespace"]]
        if here:
            self._use(case, volume, self.rng.choice(here[-4:]))

    def _static(self, case: Case, volume: str) -> None:
        """To be bound on first use, to a volume that lies ready somewhere if one does."""
        rng = self.rng
        more = {"selector": {"matchLabels": {"kind": "good"}}} if rng.random() < 0.3 else {}
        self._claim(case, volume, self.of("wait"), accessModes=[rng.choice(["ReadWriteOnce", "ReadOnlyMany"])], **more)
        for number in range(rng.choice([0, 1, 1, 2])):
            name, labels = f"{self.prefix}-{self.number}-{volume}-{number}", {"kind": rng.choice(["good", "bad"])}
            spec = self._volume_spec(name, "wait", rng.choice(SIZES))
            if rng.random() < 0.2:
                spec["volumeMode"] = "Block"
                spec.pop("hostPath")
                spec["local"] = {"path": "/dev/none"}
                spec.setdefault("nodeAffinity", self._at(HOST, rng.choice(self.nodes)))
            case.volumes.append({"metadata": {"name": name, "labels": labels}, "spec": spec})

    def _made(self, case: Case, volume: str) -> None:
        self._claim(case, volume, self.of(self.rng.choice(["make", "some", "full"])))

    def _ephemeral(self, case: Case, volume: str) -> None:
        of = self.of(self.rng.choice(["wait", "make", "some", "now"]))
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": of,
        }
        volumes = case.pod["spec"].setdefault("volumes", [])
        volumes.append({"name": volume, "ephemeral": {"volumeClaimTemplate": {"spec": spec}}})

    def _disk(self, case: Case, volume: str) -> None:
        """Without a claim."""
        rng = self.rng
        readonly = {"readOnly": rng.random() < 0.5}
        found = rng.choice(
            [
                {"gcePersistentDisk": {"pdName": rng.choice(["one", "two"]), **readonly}},
                {"iscsi": {"targetPortal": "10.0.0.9", "iqn": "iqn.2000-01.com.example:a", "lun": 0, **readonly}},
                {"rbd": {"monitors": rng.sample(["m1", "m2", "m3"], 2), "image": "i", **readonly}},
                {"awsElasticBlockStore": {"volumeID": rng.choice(["vol-1", "vol-2"])}},
            ]
        )
        case.pod["spec"].setdefault("volumes", []).append({"name": volume, **found})

    def _volume_spec(self, name: str, of: str, size: str) -> Document:
        rng = self.rng
        spec: Document = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.of(of),
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": f"/tmp/{name}"},
        }
        roll = rng.random()
        if roll < 0.5:
            spec["nodeAffinity"] = self._at(HOST, *rng.sample(self.nodes, rng.choice([1, 3])))
        elif roll < 0.7:
            spec["nodeAffinity"] = self._at(ZONE, rng.choice("abc"))
        return spec

    def _at(self, key: str, *values: str) -> Document:
        line = {"key": key, "operator": "In", "values": list(values)}
        return {"required": {"nodeSelectorTerms": [{"matchExpressions": [line]}]}}
