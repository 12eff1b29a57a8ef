"""Pods are found by namespace and labels, whatever came and went before."""

import random

import pytest
from fitting import neighbour

from instaslice.controller.scheduling.assigned_pods import MOST_KEYS, AssignedPods
from instaslice.controller.scheduling.label_selector import EVERYTHING, LabelMatcher, LabelRequirement


def having(key, *values):
    return LabelMatcher((LabelRequirement(key, True, frozenset(values) if values else None),))


LACKING = LabelMatcher((LabelRequirement("app", False, frozenset("a")),))


@pytest.mark.parametrize("seed", range(5))
def test_the_same_pods_are_found_as_by_looking_at_all(seed):
    rng, pods, there = random.Random(seed), AssignedPods(), {}
    for _ in range(400):
        name = f"p{rng.randrange(40)}"
        if rng.random() < 0.3:
            assert (pods.remove(f"uid-{name}") is not None) == (there.pop(f"uid-{name}", None) is not None)
        else:
            labels = {key: rng.choice("ab") for key in rng.sample(["app", "tier", "rev"], 2)}
            pod = neighbour(name, labels, namespace=rng.choice("xyz"))
            pods.assign(pod, rng.choice(["one", "two"]))
            there[pod.metadata.uid] = pod
        wanted = rng.choice([having("app", "a"), having("tier", "a", "b"), having("rev"), LACKING, EVERYTHING])
        spaces = rng.choice([None, ["x"], ["y", "z"], ["nowhere"]])
        found = sorted(each.pod.metadata.uid for each in pods.matching(spaces, wanted, but="uid-p0"))
        assert found == sorted(
            uid
            for uid, pod in there.items()
            if uid != "uid-p0"
            and (spaces is None or pod.metadata.namespace in spaces)
            and wanted.matches(pod.metadata.labels)
        )


def test_a_pod_that_moves_is_found_once():
    pods = AssignedPods()
    pods.assign(neighbour("p", {"app": "a"}), "one")
    assert len(list(pods.matching(["n"], having("app", "a")))) == 1
    pods.assign(neighbour("p", {"app": "b"}), "two")
    assert [each.node for each in pods.matching(["n"], having("app", "b"))] == ["two"]
    assert not list(pods.matching(["n"], having("app", "a")))


def test_one_who_asks_for_ever_new_labels_costs_no_index_each():
    pods = AssignedPods()
    pods.assign(neighbour("p", {f"k{number}": "v" for number in range(100)}), "one")
    for number in range(100):
        assert len(list(pods.matching(["n"], having(f"k{number}", "v")))) == 1
    assert len(pods._by_label["n"]) == MOST_KEYS
