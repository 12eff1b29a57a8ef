"""A cluster in memory around a dispatcher: API objects, agents with hardware that refuses overlaps, a scheduler.

Every order is carried out late and in any order, as in a real cluster, and any process can be started anew. Nothing
here is a mock of the API server: it holds what the dispatcher is told and what it orders, no more.
"""

from collections import defaultdict
from datetime import UTC, datetime
from itertools import count
from random import Random

import msgspec

from instaslice.agent.resources import advertised
from instaslice.api import names
from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import Gpu, Health, Instaslice, PreparedSlice, SliceState, Spec, State, Status
from instaslice.controller import patches
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.orders import Limits
from instaslice.controller.requests import amounts, effective
from instaslice.controller.wants import gated
from instaslice.controller.words import words
from instaslice.geometry import States, models
from instaslice.kube.core import (
    Affinity,
    Condition,
    Container,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    Requirement,
    Resources,
)
from instaslice.kube.core import SchedulingGate as Gate
from instaslice.kube.meta import ObjectMeta, OwnerReference
from instaslice.placement import policies

A100 = models.named("A100-40GB")


class World:
    def __init__(self, seed=0, **limits):
        self.rng = Random(seed)
        self.now = 0.0
        self.limits = Limits(**limits)
        self.nodes, self.instaslices, self.pods = {}, {}, {}
        self.hardware = defaultdict(dict)  # gpu → start → profile
        self.broken = set()  # (gpu, start) that hardware refuses
        self.mute = set()  # nodes whose agent does not answer
        self.numbers = count()
        self.pinned = {}
        self.late = {}  # node → what a leader that was stopped is about to write there, and the generation it goes by
        self.begin()

    # Ears of the dispatcher -----------------------------------------------------------------------------------------

    def begin(self):
        """A new dispatcher, told what is there: what a restarted controller does."""
        self.unwritten, self.ungates, self.failing, self.told, self.woken = set(), set(), {}, set(), False
        self.dispatcher = Dispatcher(
            self, policies.named("adaptive"), lambda: self.now, Random(self.rng.random()), self.limits
        )
        for node in self.nodes.values():
            self.dispatcher.node_changed(None, node)
        for thing in self.instaslices.values():
            self.dispatcher.instaslice_changed(None, thing)
        for pod in self.pods.values():
            self.dispatcher.pod_changed(None, pod)
        self.dispatcher.resume()

    def stop(self):
        """The leader is stopped with its writes on the way, and another takes over."""
        for name in self.unwritten:
            thing, book = self.instaslices.get(name), self.dispatcher.ledger.books.get(name)
            if thing is not None and book is not None:
                self.late[name] = thing.metadata.generation, book.spec()
        self.begin()

    def arrive(self):
        """What a stopped leader wrote arrives. Where the generation is still the same the server takes it, and the
        leader of now, which sees a spec that it did not write, starts anew."""
        late, self.late = self.late, {}
        for name, (generation, spec) in late.items():
            thing = self.instaslices.get(name)
            if thing is not None and thing.metadata.generation == generation and thing.spec != spec:
                self.instaslices[name] = _with_spec(thing, spec)
        self.begin()

    def write(self, node, *, soon):
        self.unwritten.add(node)

    def ungate(self, uid):
        self.ungates.add(uid)

    def fail(self, uid, reason):
        self.failing[uid] = reason

    def tell(self, uid):
        self.told.add(uid)

    def wake(self):
        self.woken = True

    # What users and administrators do -------------------------------------------------------------------------------

    def add_node(self, name, gpus=1, model=A100, **allocatable):
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", **advertised([model] * gpus), **allocatable}
        ready = [Condition(type="Ready", status="True")]
        meta = ObjectMeta(name=name, uid=f"node-{name}-{next(self.numbers)}", labels={"kubernetes.io/hostname": name})
        self.change_node(Node(metadata=meta, status=NodeStatus(allocatable=amounts, conditions=ready)))
        listed = tuple(Gpu(uuid=f"{name}/{i}", index=i, model=model.name, health=Health.HEALTHY) for i in range(gpus))
        status = Status(observed_generation=1, boot_id="one", models=(ModelGeometry.of(model),), gpus=listed)
        self.change_instaslice(Instaslice(metadata=ObjectMeta(name=name, uid=f"i-{name}"), status=status))

    def change_node(self, node):
        old = self.nodes.get(node.metadata.name)
        self.nodes[node.metadata.name] = node
        self.dispatcher.node_changed(old, node)

    def not_ready(self, name):
        status = msgspec.structs.replace(self.nodes[name].status, conditions=[Condition(type="Ready", status="False")])
        self.change_node(msgspec.structs.replace(self.nodes[name], status=status))

    def cordon(self, name, cordoned=True):
        spec = msgspec.structs.replace(self.nodes[name].spec, unschedulable=cordoned)
        self.change_node(msgspec.structs.replace(self.nodes[name], spec=spec))

    def label(self, name, **labels):
        meta = self.nodes[name].metadata
        meta = msgspec.structs.replace(meta, labels={**meta.labels, **labels})
        self.change_node(msgspec.structs.replace(self.nodes[name], metadata=meta))

    def remove_node(self, name):
        self.dispatcher.node_changed(self.nodes.pop(name), None)

    def change_instaslice(self, thing):
        old = self.instaslices.get(thing.metadata.name)
        self.instaslices[thing.metadata.name] = thing
        self.dispatcher.instaslice_changed(old, thing)

    def remove_instaslice(self, name):
        self.dispatcher.instaslice_changed(self.instaslices.pop(name), None)

    def add_pod(self, *profiles, cpu="100m", priority=0, gates=(), namespace="team", labels=None, owner="", **spec):
        """A pod with one container a profile, as the webhook leaves it; `owner` is the kind and name of a controller,
        "ReplicaSet/web"."""
        number = next(self.numbers)
        containers = spec.pop("containers", None) or [
            Container(
                name=f"c{i}",
                resources=Resources(
                    limits={f"{names.RESOURCE}{profile}": "1"}, requests={"cpu": cpu} if i == 0 else {}
                ),
            )
            for i, profile in enumerate(profiles)
        ]
        meta = ObjectMeta(
            namespace=namespace,
            name=f"pod-{number}",
            uid=f"uid-{number}",
            creation_timestamp=datetime.fromtimestamp(number, UTC),
            annotations={names.REQUESTED: "{}"},
            labels=labels or {},
            owner_references=[owned_by(owner)] if owner else [],
        )
        held = [Gate(name=names.GATE), *(Gate(name=gate) for gate in gates)]
        self._set(
            Pod(
                metadata=meta,
                spec=PodSpec(containers=containers, scheduling_gates=held, priority=priority, **spec),
                status=PodStatus(phase="Pending"),
            )
        )
        return meta.uid

    def end_pod(self, uid, phase="Succeeded"):
        self._set(msgspec.structs.replace(self.pods[uid], status=PodStatus(phase=phase)))

    def told_pod(self, uid, reason):
        """Its condition says this."""
        said = Condition(type=names.SLICE_READY, status="False", reason=reason)
        status = msgspec.structs.replace(self.pods[uid].status, conditions=[said])
        self._set(msgspec.structs.replace(self.pods[uid], status=status))

    def mark_pod(self, uid):
        """Deleted, and not gone: its kubelet has to end it first."""
        pod = self.pods[uid]
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=datetime.fromtimestamp(self.now, UTC))
        self._set(msgspec.structs.replace(pod, metadata=meta))

    def delete_pod(self, uid):
        self.dispatcher.pod_changed(self.pods.pop(uid), None)

    def change_pod(self, uid, **spec):
        pod = self.pods[uid]
        self._set(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **spec)))

    def resize(self, uid, **requests):
        """In place, the first container."""
        first, *others = self.pods[uid].spec.containers
        resources = msgspec.structs.replace(first.resources, requests={**first.resources.requests, **requests})
        self.change_pod(uid, containers=[msgspec.structs.replace(first, resources=resources), *others])

    # What the other processes do ------------------------------------------------------------------------------------

    def deeds(self):
        """All that could happen next, by itself, in the order of names."""
        found = [("write", node) for node in self.unwritten]
        found += [("ungate", uid) for uid in self.ungates]
        found += [("fail", uid) for uid in self.failing]
        found += [("decide", "")] if self.woken else []
        found += [("agent", name) for name in self.instaslices if name not in self.mute and self._agent_work(name)]
        found += [("bind", uid) for uid, pod in self.pods.items() if self._bindable(pod)]
        return sorted(found)

    def do(self, deed):
        kind, what = deed
        getattr(self, f"_do_{kind}")(what)
        self.check()

    def settle(self, most=10_000, but=""):
        """Let everything happen that happens by itself, in any order; `but` is a kind of deed that does not."""
        for _ in range(most):
            deeds = [deed for deed in self.deeds() if deed[0] != but]
            if not deeds:
                return
            self.do(self.rng.choice(deeds))
        raise AssertionError(f"never comes to rest: {self.deeds()[:5]}")

    def wait(self, seconds):
        self.now += seconds
        self.woken = True
        self.settle()

    def _do_write(self, name):
        self.unwritten.discard(name)
        thing, book = self.instaslices.get(name), self.dispatcher.ledger.books.get(name)
        if thing is not None and book is not None and thing.spec != book.spec():
            self.change_instaslice(_with_spec(thing, book.spec()))

    def _do_ungate(self, uid):
        self.ungates.discard(uid)
        pod, promise = self.pods.get(uid), self.dispatcher.ledger.promises.get(uid)
        if pod is None or promise is None or not gated(pod) or not promise.created:
            return
        assert patches.ungate(pod, promise.node, promise.uuids)
        self.let_go(uid, promise.node, *promise.uuids)

    def let_go(self, uid, node, *uuids):
        """The gate goes, as a patch of the controller says it."""
        pod = self.pods[uid]
        annotations = {**pod.metadata.annotations, names.MIG_UUIDS: ",".join(uuids), names.NODE: node}
        meta = msgspec.structs.replace(pod.metadata, annotations=annotations)
        self.pinned[uid] = node
        term = NodeSelectorTerm(match_fields=[Requirement(key="metadata.name", operator="In", values=[node])])
        pin = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=[term])))
        spec = msgspec.structs.replace(pod.spec, scheduling_gates=None, affinity=pin)
        self._set(Pod(metadata=meta, spec=spec, status=pod.status))

    def _do_fail(self, uid):
        reason = self.failing.pop(uid)
        if uid in self.pods and not self.pods[uid].spec.node_name:
            self._set(msgspec.structs.replace(self.pods[uid], status=PodStatus(phase="Failed", message=reason)))

    def _do_decide(self, _):
        self.woken = False
        self.dispatcher.decide()

    def _do_bind(self, uid):
        self.change_pod(uid, node_name=self.pinned[uid])
        self._set(msgspec.structs.replace(self.pods[uid], status=PodStatus(phase="Running")))

    def _do_agent(self, name):
        kind, a = self._agent_work(name)
        thing = self.instaslices[name]
        done = {made.id: made for made in thing.status.slices}
        if kind == "prune":
            del done[a]
        elif kind == "destroy":
            self.hardware[a.gpu] = {start: held for start, held in self.hardware[a.gpu].items() if held[1] != a.id}
            done[a.id] = self._made(a, SliceState.DELETED)
        elif (a.gpu, a.start) in self.broken:
            done[a.id] = self._made(a, SliceState.FAILED)
        else:
            self.hardware[a.gpu][a.start] = a.profile, a.id
            done[a.id] = self._made(a, SliceState.CREATED)
        status = msgspec.structs.replace(thing.status, slices=tuple(done.values()))
        self.change_instaslice(msgspec.structs.replace(thing, status=status))

    def _agent_work(self, name):
        """The next thing that the spec asks of the agent; None where there is nothing."""
        thing = self.instaslices[name]
        done = {made.id: made for made in thing.status.slices}
        for a in thing.spec.allocations:
            if a.state is State.DELETING and (a.id not in done or done[a.id].state is not SliceState.DELETED):
                return "destroy", a
            if a.state is State.CREATING and a.id not in done:
                return "make", a
        wanted = {a.id for a in thing.spec.allocations}
        gone = [made.id for made in done.values() if made.state is SliceState.DELETED and made.id not in wanted]
        return ("prune", gone[0]) if gone else None

    def _made(self, a, state):
        uuid = f"MIG-{a.gpu}-{a.start}-{a.profile}" if state is SliceState.CREATED else None
        why = "the hardware refuses" if state is SliceState.FAILED else ""
        return PreparedSlice(
            id=a.id, gpu=a.gpu, profile=a.profile, start=a.start, size=a.size, state=state, mig_uuid=uuid, reason=why
        )

    def _bindable(self, pod):
        return not gated(pod) and not pod.spec.node_name and not pod.ended and not pod.spec.scheduling_gates

    def _set(self, pod):
        uid = pod.metadata.uid
        old = self.pods.get(uid)
        self.pods[uid] = pod
        self.dispatcher.pod_changed(old, pod)

    # What always holds ----------------------------------------------------------------------------------------------

    def check(self):
        assert not self.dispatcher.quarantine.failures, "something could not be handled: see the log"
        for name, thing in self.instaslices.items():
            models_of = {model.name: model.model() for model in thing.status.models}
            for gpu in thing.status.gpus:
                states = States.of(models_of[gpu.model])
                for what, held in (
                    ("spec", [(a.profile, a.start) for a in thing.spec.allocations if a.gpu == gpu.uuid]),
                    ("hardware", [(held[0], start) for start, held in self.hardware[gpu.uuid].items()]),
                ):
                    placements = [states.placement(profile, start) for profile, start in held]
                    assert None not in placements, f"{what} of {gpu.uuid}: {held} is not legal"
                    assert len(set(placements)) == len(placements), f"{what} of {gpu.uuid}: twice in {held}"
                    assert states.state(sorted(placements)) >= 0, f"{what} of {gpu.uuid}: {held} overlap"
            there = [pod for pod in self.pods.values() if pod.spec.node_name == name and not pod.ended]
            if name in self.nodes:
                cpu = amounts(self.nodes[name].status.allocatable)["cpu"]
                assert sum(effective(pod)["cpu"] for pod in there) <= cpu, f"node {name} has not that much CPU"
            for pod in there:
                if pod.metadata.deletion_timestamp:
                    continue
                for uuid in pod.metadata.annotations[names.MIG_UUIDS].split(","):
                    made = {f"MIG-{g}-{s}-{p[0]}" for g, at in self.hardware.items() for s, p in at.items()}
                    assert uuid in made, f"{pod.metadata.name} runs without its slice {uuid}"

    def on(self, uid):
        """Where a pod runs or is to run, as the ledger has it."""
        promise = self.dispatcher.ledger.promises.get(uid)
        return promise and promise.node

    def running(self):
        return [uid for uid, pod in self.pods.items() if pod.status.phase == "Running"]

    def spec(self, name) -> Spec:
        return self.instaslices[name].spec


def owned_by(owner):
    kind, _, name = owner.partition("/")
    return OwnerReference(api_version="v1", kind=kind, name=name, uid=owner, controller=True)


def _with_spec(thing, spec):
    meta = msgspec.structs.replace(thing.metadata, generation=thing.metadata.generation + 1)
    return msgspec.structs.replace(thing, metadata=meta, spec=spec)


def why(world, uid):
    """What a pod is told."""
    return words(world.dispatcher, uid)
