"""Deadlines in one heap: what is due is called in order, for as long as there is time."""

import pytest

from instaslice.controller.deadlines import Deadlines


@pytest.fixture
def failed():
    return []


@pytest.fixture
def agenda(failed):
    return Deadlines(failed.append, lambda: None)


def test_what_is_due_is_called_in_order_and_the_rest_waits(agenda):
    called = []
    for due in (3.0, 1.0, 2.0, 9.0):
        agenda.at(due, lambda now, due=due: called.append((due, now)))
    agenda.run(3.0)
    assert called == [(1.0, 3.0), (2.0, 3.0), (3.0, 3.0)]
    assert agenda.next == 9.0


def test_what_is_put_in_meanwhile_waits_for_the_next_run(agenda):
    called = []

    def again(now):
        called.append(now)
        agenda.at(now, again)

    agenda.at(1.0, again)
    agenda.run(1.0)
    assert (called, agenda.next) == ([1.0], 1.0)
    agenda.run(2.0)
    assert called == [1.0, 2.0]


def test_what_there_is_no_time_for_is_due_still(agenda):
    called = []
    for name in "abc":
        agenda.at(1.0, lambda _, name=name: called.append(name))
    agenda.run(1.0, lambda: True)
    assert (called, agenda.next) == (["a"], 1.0)
    agenda.run(5.0)
    assert called == ["a", "b", "c"]


def test_one_that_fails_costs_the_others_nothing(agenda, failed):
    called = []
    agenda.at(1.0, lambda _: 1 / 0)
    agenda.at(1.0, called.append)
    agenda.run(1.0)
    assert called == [1.0]
    assert [type(each) for each in failed] == [ZeroDivisionError]


def test_the_owner_hears_of_a_deadline_that_is_earlier_than_all_others():
    sooner = []
    deadlines = Deadlines(None, lambda: sooner.append(deadlines.next))
    for due in (30.0, 40.0, 20.0, 25.0):
        deadlines.at(due, lambda _: None)
    assert sooner == [30.0, 20.0]
