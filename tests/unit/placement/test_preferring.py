"""A node that the pod prefers is taken where the policy finds several GPUs equally good, and only there."""

import pytest

from instaslice.geometry import models
from instaslice.placement import Demand, Fleet, Placer, policies

A100 = models.named("A100-40GB")
NODES = ["a", "b", "c"]


def placer(policy="best-fit"):
    fleet = Fleet()
    for name in NODES:
        fleet.add_gpu(f"{name}/0", name, A100)
    return Placer(fleet, policies.named(policy))


def liking(name):
    return lambda each: float(each == name)


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("policy", ["best-fit", "spread", "adaptive", "fgd", "dp"])
@pytest.mark.parametrize("wants", [("1g.5gb",), ("3g.20gb", "2g.10gb")])
def test_of_equals_the_preferred(policy, name, wants):
    assert placer(policy).place(Demand(wants, prefers=liking(name))).node == name


def test_without_a_wish_the_first():
    assert placer().place(Demand(("1g.5gb",))).node == "a"
    assert placer().place(Demand(("1g.5gb",), prefers=lambda _: 0.0)).node == "a"


def test_a_better_one_all_the_same():
    door = placer()
    door.commit(door.place(Demand(("3g.20gb",), lambda name: name == "b")))
    assert door.place(Demand(("1g.5gb",), prefers=liking("c"))).node == "b"


def test_one_that_does_not_admit_the_pod_is_not_asked():
    asked = []
    plan = placer().place(Demand(("1g.5gb",), lambda name: name != "c", prefers=lambda name: asked.append(name) or 0.0))
    assert plan.node == "a"
    assert set(asked) == {"a", "b"}
