"""Which labels a selector selects."""

import msgspec
import pytest

from instaslice.controller.scheduling.label_selector import EVERYTHING, NOTHING, label_matcher
from instaslice.kube.core import LabelSelector


def made(**fields):
    return label_matcher(msgspec.convert(fields, LabelSelector))


def line(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


@pytest.mark.parametrize(
    "found, labels, selected, words",
    [
        pytest.param(label_matcher(None), {"app": "a"}, False, "of no selector", id="no selector selects nobody"),
        pytest.param(made(), {}, True, "with any labels", id="an empty one everybody"),
        pytest.param(made(matchLabels={"app": "a"}), {"app": "a", "b": ""}, True, "app=a", id="a label"),
        pytest.param(made(matchLabels={"app": "a"}), {"app": "b"}, False, "app=a", id="another value"),
        pytest.param(made(matchLabels={"app": ""}), {}, False, "app=", id="empty is not absent"),
        pytest.param(
            made(matchExpressions=[line("app", "In", "b", "a")]), {"app": "a"}, True, "app in (a,b)", id="one of"
        ),
        pytest.param(made(matchExpressions=[line("app", "NotIn", "a")]), {}, True, "app!=a", id="absent is not in"),
        pytest.param(
            made(matchExpressions=[line("app", "NotIn", "a", "b")]),
            {"app": "a"},
            False,
            "app notin (a,b)",
            id="one of those that are out",
        ),
        pytest.param(made(matchExpressions=[line("app", "Exists")]), {"app": ""}, True, "app", id="is there"),
        pytest.param(
            made(matchExpressions=[line("app", "DoesNotExist")]), {"app": ""}, False, "!app", id="is not to be there"
        ),
        pytest.param(
            made(matchLabels={"app": "a"}, matchExpressions=[line("tier", "Exists")]),
            {"app": "a"},
            False,
            "app=a, tier",
            id="all lines have to hold",
        ),
        pytest.param(
            made(matchExpressions=[line("app", "Like", "a")]), {"app": "a"}, False, "of no selector", id="unheard of"
        ),
    ],
)
def test_who_is_selected(found, labels, selected, words):
    assert found.matches(labels) is selected
    assert str(found) == words


def test_only_the_empty_one_is_everything():
    assert made() == EVERYTHING
    assert EVERYTHING.matches_everything
    assert not NOTHING.matches_everything


def test_values_of_the_pod_itself_are_added_where_it_has_the_label():
    found = made(matchLabels={"app": "a"}).with_values({"tier": "x"}, ["tier", "rev"])
    assert str(found) == "app=a, tier=x"
    assert not found.matches({"app": "a", "tier": "y"})
