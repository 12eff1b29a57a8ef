"""A cluster in memory around the controller: API objects, agents with hardware that refuses overlaps, a scheduler.

The controller is the real one, and so is its client; only the server behind it is a memory. Every order of the
dispatcher is carried out late and in any order, as in a real cluster, and any process can be started anew.
"""

from collections import defaultdict
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from random import Random

import msgspec
from fake_clock import FakeClock
from memory_server import MemoryServer

from instaslice.agent.resources import advertised
from instaslice.api import names
from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import (
    INSTASLICES,
    AllocationState,
    GpuStatus,
    Health,
    Instaslice,
    InstasliceSpec,
    InstasliceStatus,
    PreparedSlice,
    SliceState,
)
from instaslice.controller import node_admission, patches
from instaslice.controller.controller import Controller, Settings
from instaslice.controller.errors import Deposed
from instaslice.controller.orders import Limits
from instaslice.controller.pod_condition import condition_of
from instaslice.controller.requests import amounts, effective
from instaslice.geometry import States, models
from instaslice.kube.core import (
    NODES,
    PODS,
    Condition,
    Container,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from instaslice.kube.core import SchedulingGate as Gate
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import ObjectMeta, OwnerReference, key_of
from instaslice.kueue.objects import ADMISSION_CHECKS, KUEUE_WORKLOADS, RESOURCE_FLAVORS
from instaslice.placement import policies

A100 = models.named("A100-40GB")


class Stepped(Controller):
    """The controller itself, whose turns the world takes in place of its queues: it notes what there is to do."""

    def __init__(self, world):
        super().__init__(
            world.server.client(),
            policies.named(world.policy),
            clock=world.clock,
            rng=Random(world.rng.random()),
            settings=Settings(limits=world.limits, admission_check=world.admission_check),
            leads=lambda: world.leading,
        )
        self._note("write_spec", lambda node, **_: world.unwritten.add(node))
        self._note("ungate", lambda uid: world.ungates.add(uid))
        self._note("fail", lambda uid, _: world.failing.add(uid))
        self._note("update_condition", lambda uid: world.told.add(uid))
        self._note("wake", lambda: setattr(world, "woken", True))

    def _note(self, order, note):
        real = getattr(self.orders, order)

        def noted(*args, **more):
            real(*args, **more)
            note(*args, **more)

        setattr(self.orders, order, noted)


class World:
    def __init__(self, seed=0, policy="adaptive", admission_check=False, **limits):
        self.rng = Random(seed)
        self.admission_check = admission_check
        self.policy = policy
        self.clock = FakeClock(start=0.0)
        self.limits = Limits(**limits)
        self.remembered = {}  # what the next controller knows of earlier demand, in slices by profile
        self.server = MemoryServer(now=self.clock.now)
        self.nodes, self.instaslices, self.pods = {}, {}, {}  # as the server has them; pods by uid
        self.hardware = defaultdict(dict)  # gpu → start → profile
        self.broken = set()  # (gpu, start) that hardware refuses
        self.mute = set()  # nodes whose agent does not answer
        self.numbers = count()
        self.late = []  # what a leader that was stopped was about to write
        self.objects_went = False  # whether an Instaslice object was ever removed
        self.lagging = set()
        self.leading = True  # whether the controller may take itself for the leader
        self.contested = False  # whether writes of another leader came
        self.controller = None  # while none runs
        self.workloads = {}  # of Kueue, by name
        mirrors = {NODES: self.nodes, INSTASLICES: self.instaslices, PODS: self.pods, KUEUE_WORKLOADS: self.workloads}
        for resource, mirror in {**mirrors, ADMISSION_CHECKS: {}, RESOURCE_FLAVORS: {}}.items():
            self.server.on_change(resource, partial(self._changed, resource, mirror))
        self.begin()

    @property
    def now(self):
        return self.clock.monotonic()

    @now.setter
    def now(self, seconds):
        self.clock.advance(seconds - self.now)

    @property
    def dispatcher(self):
        return self.controller.dispatcher

    # The controller -------------------------------------------------------------------------------------------------

    def begin(self):
        """A new controller, which finds what is there: what a restart is."""
        self.unwritten, self.ungates, self.failing, self.told, self.woken = set(), set(), set(), set(), False
        self.lagging.clear()
        controller = Stepped(self)
        for resource, cache in _caches(controller).items():
            cache.replace({key_of(thing): thing for thing in self.server.all(resource)})
        self.controller = controller
        controller.state.ledger.placer.policy.recall(self.remembered)
        controller.start()

    @contextmanager
    def unattended(self):
        """No controller runs meanwhile."""
        self.controller = None
        yield
        self.begin()

    def lag(self, *resources):
        """The controller's watches of these are behind: it hears nothing of them until `hear`, one of the deeds."""
        self.lagging |= set(resources)

    @contextmanager
    def deaf(self):
        """No watch tells it anything meanwhile."""
        self.lag(NODES, INSTASLICES, PODS)
        yield
        for resource in (NODES, INSTASLICES, PODS):
            self._do_hear(resource.plural)

    def _do_hear(self, kind):
        """A watch catches up: what came and went meanwhile it never tells."""
        (resource,) = [each for each in self.lagging if each.plural == kind]
        self.lagging.remove(resource)
        with self._term():
            there = {key_of(thing): thing for thing in self.server.all(resource)}
            _caches(self.controller)[resource].replace(there)

    def stop(self):
        """The leader is stopped with its writes on the way, and another takes over."""
        for name in self.unwritten:
            self.server.forget_mishaps()
            self.server.meanwhile("PATCH", "instaslices", _pause)
            written = self.controller._write(name)
            if _run(written) is _SUSPENDED:
                self.late.append(written)
        self.server.forget_mishaps()
        self.begin()

    def arrive(self):
        """What stopped leaders wrote arrives."""
        late, self.late, self.contested = self.late, [], bool(self.late) or self.contested
        for written in late:
            with suppress(KubeError, Deposed):  # nobody is left to hear of it
                _run(written)

    def _changed(self, resource, mirror, old, new):
        thing = new or old
        name = thing.metadata.uid if resource is PODS else thing.metadata.name
        if new is None:
            del mirror[name]
        else:
            mirror[name] = new
        if self.controller is None or resource in self.lagging:
            return
        cache = _caches(self.controller).get(resource)
        if cache is None:
            return
        with self._term():
            if new is None:
                cache.remove(old)
            else:
                cache.upsert(new)

    @contextmanager
    def _term(self):
        """Who is deposed starts anew; without another leader nobody is."""
        try:
            yield
        except Deposed:
            assert self.contested, "another wrote, though there is no other"
            self.begin()

    # What users and administrators do -------------------------------------------------------------------------------

    def add_node(self, name, gpus=1, model=A100, **allocatable):
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", **advertised([model] * gpus), **allocatable}
        ready = [Condition(type="Ready", status="True")]
        meta = ObjectMeta(name=name, uid=f"node-{name}-{next(self.numbers)}", labels={"kubernetes.io/hostname": name})
        self.change_node(Node(metadata=meta, status=NodeStatus(allocatable=amounts, conditions=ready)))
        listed = tuple(
            GpuStatus(uuid=f"{name}/{i}", index=i, model=model.name, health=Health.HEALTHY) for i in range(gpus)
        )
        status = InstasliceStatus(observed_generation=1, boot_id="one", models=(ModelGeometry.of(model),), gpus=listed)
        self.change_instaslice(Instaslice(metadata=ObjectMeta(name=name), status=status))

    def change_node(self, node):
        self.server.put(NODES, node)

    def not_ready(self, name, ready="False"):
        status = msgspec.structs.replace(self.nodes[name].status, conditions=[Condition(type="Ready", status=ready)])
        self.change_node(msgspec.structs.replace(self.nodes[name], status=status))

    def cordon(self, name, cordoned=True):
        spec = msgspec.structs.replace(self.nodes[name].spec, unschedulable=cordoned)
        self.change_node(msgspec.structs.replace(self.nodes[name], spec=spec))

    def label(self, name, **labels):
        meta = self.nodes[name].metadata
        meta = msgspec.structs.replace(meta, labels={**meta.labels, **labels})
        self.change_node(msgspec.structs.replace(self.nodes[name], metadata=meta))

    def remove_node(self, name):
        self.server.drop(NODES, self.nodes[name])

    def change_instaslice(self, thing):
        if thing.metadata.name not in self.instaslices:
            thing = msgspec.structs.replace(thing, metadata=ObjectMeta(name=thing.metadata.name))
        self.server.put(INSTASLICES, thing)

    def remove_instaslice(self, name):
        self.objects_went = True
        self.server.drop(INSTASLICES, self.instaslices[name])

    def report(self, name, **changes):
        """The agent of a node says something else."""
        thing = self.instaslices[name]
        self.change_instaslice(msgspec.structs.replace(thing, status=msgspec.structs.replace(thing.status, **changes)))

    def add_pod(self, *profiles, cpu="100m", priority=0, gates=(), namespace="team", labels=None, owner="", **spec):
        """A pod with one container a profile, as the webhook leaves it; `owner` is the kind and name of a controller,
        "ReplicaSet/web"."""
        number = next(self.numbers)
        containers = spec.pop("containers", None) or [
            Container(
                name=f"c{i}",
                resources=ResourceRequirements(
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
        self.server.drop(PODS, self.pods[uid])

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
        found += [("answer", uid) for uid in self._undecided()]
        found += [("hear", resource.plural) for resource in self.lagging]
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
                self._nobody_is_overlooked()
                return
            self.do(self.rng.choice(deeds))
        raise AssertionError(f"never comes to rest: {self.deeds()[:5]}")

    def _nobody_is_overlooked(self):
        """At rest nobody waits for room that is there: what made it has woken the dispatcher."""
        found = self.controller and self.dispatcher
        if found and not self.woken and not self.lagging and found.longest_waiting.reserved is None:
            waiting = [uid for uid in found.state.queue if found.placer.plan(found.state.pods[uid]) is not None]
            assert not waiting, f"{waiting} would fit, and wait"

    def wait(self, seconds):
        """The time passes; the controller has set its alarm if it has something to do then."""
        self.now += seconds
        self.settle()

    def _undecided(self):
        """The workloads whose AdmissionCheck is about to be written."""
        watch = self.controller and self.controller.kueue
        return list(watch.check.decisions) if watch else []

    def _do_answer(self, uid):
        _run(self.controller.kueue.write(uid))

    def _do_write(self, name):
        self._turn(self.unwritten, name, self.controller._write)

    def _do_ungate(self, uid):
        self._turn(self.ungates, uid, self.controller._ungate)

    def _do_fail(self, uid):
        self._turn(self.failing, uid, self.controller._fail)

    def _turn(self, todo, key, reconcile):
        """As a worker of a queue takes it: what went wrong, or is to be looked at again, comes again."""
        todo.discard(key)
        with self._term():
            try:
                again = _run(reconcile(key)) is not None
            except KubeError:
                again = True
            if again:
                todo.add(key)

    def let_go(self, uid, node, *uuids):
        """The gate goes, as a patch of the controller says it, whoever sent it."""
        pod = self.pods[uid]
        _run(self.server.client().patch(PODS, key_of(pod), patches.ungate(pod, node, uuids)))

    def _do_decide(self, _):
        self.woken = False
        self.controller._decide()

    def _do_bind(self, uid):
        self.change_pod(uid, node_name=self._bindable(self.pods[uid]))
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
            if a.state is AllocationState.DELETING and (a.id not in done or done[a.id].state is not SliceState.DELETED):
                return "destroy", a
            if a.state is AllocationState.CREATING and a.id not in done:
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
        """The node to which a scheduler would bind it."""
        if names.REQUESTED not in pod.metadata.annotations:  # not ours, and may not fit
            return None
        if pod.spec.node_name or pod.ended or pod.metadata.deletion_timestamp or pod.spec.scheduling_gates:
            return None
        admitting = [name for name, node in self.nodes.items() if node_admission.refusal(pod, node) is None]
        return min(admitting, default=None)

    def _set(self, pod):
        self.server.put(PODS, pod)

    # What always holds ----------------------------------------------------------------------------------------------

    def check(self):
        assert self.controller is None or not self.dispatcher.state.quarantine.failures, (
            "something could not be handled: see the log"
        )
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
                assert sum(effective(pod).get("cpu", 0) for pod in there) <= cpu, f"node {name} has not that much CPU"
            for pod in there:
                if pod.metadata.deletion_timestamp or names.REQUESTED not in pod.metadata.annotations:
                    continue
                here = {gpu.uuid for gpu in thing.status.gpus}
                made = {f"MIG-{g}-{s}-{p[0]}" for g, at in self.hardware.items() if g in here for s, p in at.items()}
                for uuid in pod.metadata.annotations[names.MIG_UUIDS].split(","):
                    assert uuid in made, f"{pod.metadata.name} runs on {name} without its slice {uuid}"

        if self.controller is not None and not self.lagging:
            self._recount()

    def _recount(self):
        """What the ledger takes for held, and for used of nodes, against a count from the start."""
        ledger, rooms = self.dispatcher.state.ledger, self.dispatcher.state.capacities
        for record in ledger.nodes.values():
            grants = [
                *(tracked.grant for tracked in record.allocations.values()),
                *record.foreign_slices.values(),
                *record.quarantined,
                *(each for each in ledger.held.grants() if each.node == record.name),
            ]
            for gpu in record.gpus:
                counted = sorted((each.want, each.start) for each in grants if each.gpu == gpu)
                assert sorted((p.profile, p.start) for p in ledger.fleet.held(gpu)) == counted, f"held on {gpu}"
        waits_in_vain = [
            uid
            for uid, pod in self.pods.items()
            if not (pod.spec.scheduling_gates or pod.spec.node_name or pod.ended or uid in ledger.reservations)
        ]
        if (
            self.objects_went or waits_in_vain or len(ledger.held)
        ):  # what was promised counts until its pod is looked at again, or fails
            return
        where = {uid: pod.spec.node_name for uid, pod in self.pods.items() if not pod.ended and pod.spec.node_name}
        where = {
            **{uid: reservation.node for uid, reservation in ledger.reservations.items() if uid in self.pods},
            **where,
        }
        for name, node in self.nodes.items():
            left = amounts(node.status.allocatable)
            for uid in [uid for uid, there in where.items() if there == name]:
                for resource, amount in effective(self.pods[uid]).items():
                    left[resource] = left.get(resource, 0) - amount
            free = rooms.free(name)
            assert {key: free.get(key, 0) for key in left} == left, f"free on {name}"

    def on(self, uid):
        """Where a pod runs or is to run, as the ledger has it."""
        reservation = self.dispatcher.state.ledger.reservations.get(uid)
        return reservation and reservation.node

    def running(self):
        return [uid for uid, pod in self.pods.items() if pod.status.phase == "Running"]

    def spec(self, name) -> InstasliceSpec:
        return self.instaslices[name].spec


def _caches(controller):
    found = {NODES: controller.nodes, INSTASLICES: controller.instaslices, PODS: controller.pods}
    if controller.kueue is not None:
        watch = controller.kueue
        found |= {
            KUEUE_WORKLOADS: watch.workloads,
            ADMISSION_CHECKS: watch.checks,
            RESOURCE_FLAVORS: watch.flavors,
        }
    return found


_SUSPENDED = object()


class _Pause:
    def __await__(self):
        yield


async def _pause():
    await _Pause()


def _run(turn):
    """Run a coroutine to its end, or to where it pauses: nothing else in this world waits."""
    try:
        turn.send(None)
    except StopIteration as ended:
        return ended.value
    return _SUSPENDED


def owned_by(owner):
    kind, _, name = owner.partition("/")
    return OwnerReference(api_version="v1", kind=kind, name=name, uid=owner, controller=True)


def why(world, uid):
    """What a pod is told."""
    return condition_of(world.dispatcher.state, world.dispatcher.placer, uid)
