"""Whatever pods, nodes and Instaslice objects say: the controller handles them all, and its records stay right."""

from collections import Counter
from contextlib import contextmanager
from random import Random
from unittest import mock

import pytest
from fake_clock import FakeClock
from hypothesis import HealthCheck, given, settings
from mutated_objects import histories, valid
from prometheus_client import CollectorRegistry

from instaslice.api.pods import gated
from instaslice.controller import patches
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.dispatcher import Dispatcher
from instaslice.controller.orders import Limits
from instaslice.controller.pod_condition import condition_of
from instaslice.controller.quarantine import Quarantine
from instaslice.controller.state_times import StateTimes
from instaslice.errors import InstasliceError
from instaslice.kube.core import Node, Pod
from instaslice.placement import policies
from instaslice.placement.room import rooms


class CheckedOrders:
    """Carries out nothing, but makes what would be sent."""

    def __init__(self):
        self.clock = FakeClock(start=0.0)
        state = ClusterState(policies.named("adaptive"))
        self.dispatcher = Dispatcher(state, self, self.clock.monotonic, Random(0), Limits())
        self.times = StateTimes(self.dispatcher, self.clock, CollectorRegistry())

    def begin(self, cluster):
        for thing in (*cluster.nodes, *cluster.instaslices, *cluster.pods):
            self.hear((None, thing))
        self.dispatcher.start()
        self.times.live = True

    def hear(self, change):
        old, new = change
        match new or old:
            case Pod():
                self.dispatcher.pod_changed(old, new)
                self.times.pod_changed(old, new)
            case Node():
                self.dispatcher.node_changed(old, new)
            case _:
                self.dispatcher.instaslice_changed(old, new)
                self.times.instaslice_changed(old, new)

    def pass_(self, seconds):
        self.clock.advance(seconds)
        self.dispatcher.decide()
        assert all(age >= 0 for age in self.times.oldest().values())
        assert sum(self.times.waiting().values()) == sum(
            gated(pod) and not pod.ended for pod in self.dispatcher.state.pods.values()
        )
        rooms(self.dispatcher.state.ledger.fleet)
        for uid in list(self.dispatcher.state.pods):
            condition_of(self.dispatcher.state, self.dispatcher.placer, uid)

    def write_spec(self, node, *, soon):
        record = self.dispatcher.state.ledger.nodes.get(node)
        if record is not None:
            assert record.spec() is not None

    def ungate(self, uid):
        pod, reservation = self.dispatcher.state.pods[uid], self.dispatcher.state.ledger.reservations[uid]
        if gated(pod) and reservation.created:
            assert patches.ungate(pod, reservation.node, reservation.uuids)

    def fail(self, uid, reason): ...

    def update_condition(self, uid): ...

    def wake(self): ...


@contextmanager
def strictly():
    """Defects come out; what is known to be wrong with an object is set aside as it would be."""
    real = Quarantine.failed

    def failed(self, what, error, *keys):
        if not isinstance(error, InstasliceError):
            raise error
        return real(self, what, error, *keys)

    with mock.patch.object(Quarantine, "failed", failed):
        yield


def recounted(dispatcher):
    """GPU → what the records say that it holds."""
    held = {gpu: Counter() for record in dispatcher.state.ledger.nodes.values() for gpu in record.gpus}
    for record in dispatcher.state.ledger.nodes.values():
        slots = [tracked.grant for tracked in record.allocations.values()]
        for grant in (*slots, *record.foreign_slices.values(), *record.quarantined):
            if grant.gpu in record.gpus:
                held[grant.gpu][grant.want, grant.start] += 1
    return held


def check(dispatcher):
    ledger = dispatcher.state.ledger
    fleet = ledger.fleet
    held = {gpu: Counter((each.profile, each.start) for each in fleet.held(gpu)) for gpu in recounted(dispatcher)}
    assert held == recounted(dispatcher)
    assert len(fleet) == sum(len(record.gpus) for record in ledger.nodes.values())
    for name, record in ledger.nodes.items():
        for gpu in record.gpus:
            number = fleet.number(gpu)
            assert fleet.node_of[number].name == name
            assert fleet.is_open(number) is not bool(fleet.why_closed(gpu))
        assert {tracked.allocation.gpu for tracked in record.allocations.values()} <= {*record.gpus, *record.unusable}
    for uid, reservation in ledger.reservations.items():
        assert reservation.uid == uid
        assert all(
            ledger.nodes[reservation.node].allocations[tracked.allocation.id] is tracked
            for tracked in reservation.allocations
        )
    rooms = dispatcher.state.capacities
    charged = {}
    for node, amounts in rooms._charges.values():
        charged.setdefault(node, Counter()).update(amounts)
    for node in {*charged, *rooms._used}:
        assert {k: v for k, v in charged.get(node, {}).items() if v} == rooms._used.get(node, {})
    for uid in dispatcher.state.queue:
        assert uid in dispatcher.state.pods
        assert uid not in ledger.reservations


def test_the_valid_cluster_is_handled_without_a_word():
    """Else the next test would be about nothing."""
    ears = CheckedOrders()
    ears.begin(valid())
    ears.pass_(1)
    check(ears.dispatcher)
    assert not ears.dispatcher.state.quarantine.failures
    assert len(ears.dispatcher.state.ledger.reservations) >= 4
    assert len(ears.dispatcher.state.queue) >= 1


@pytest.mark.parametrize("seconds", [1, 400], ids=["at once", "with every deadline met"])
@given(histories())
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_whatever_objects_say_the_controller_goes_on_and_its_books_are_right(seconds, told):
    begins, changes = told
    ears = CheckedOrders()
    with strictly():
        ears.begin(begins)
        ears.pass_(seconds)
        check(ears.dispatcher)
        for change in changes:
            ears.hear(change)
            check(ears.dispatcher)
            ears.pass_(seconds)
            check(ears.dispatcher)
