"""Flags of the controller of a local cluster: read before anything starts, kept, and granted what they need."""

from inspect import signature

import pytest
from click.testing import CliRunner
from local_clusters import recorded

from instaslice.api import roles
from instaslice.cli import up
from instaslice.local import operator
from instaslice.local.cluster import Cluster


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The specs that `instaslice up` is asked for; nothing is started."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    specs = []

    def noted(cluster, spec, *_, **__):
        specs.append(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr(Cluster, "up", noted)
    return specs


def said(*words):
    return CliRunner().invoke(up.command, words).output


def test_flags_of_the_controller_are_part_of_the_cluster(asked):
    recorded("kept", controller_flags=("--taint-nodes",))
    said("kept", "--controller-flag=--keep-quotas", "--controller-flag=--autoscaling-hints=3")
    said("kept")
    said("kept", "--controller-flag=")
    found = [spec.controller_flags for spec in asked]
    assert found == [("--keep-quotas", "--autoscaling-hints=3"), ("--taint-nodes",), ()]


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("--taint-node", "No such option"),
        ("--policy=best", "Invalid value for '--policy': 'best' is not one of"),
        ("--patience=-1", "Invalid value for '--patience'"),
        ("--patience", "Option '--patience' requires an argument"),
        ("--identity=me", "--identity=me: `instaslice up` decides it"),
        ("--help", "--help: `instaslice up` decides it"),
        ("taint-nodes", "taint-nodes: write it like --taint-nodes or --patience=60"),
    ],
)
def test_a_flag_that_the_controller_has_not_is_refused_before_anything_starts(asked, flag, why):
    assert f"Invalid value for --controller-flag: {why}" in said(f"--controller-flag={flag}")
    assert asked == []


@pytest.mark.parametrize(
    ("flags", "role"),
    [
        ((), roles.controller()),
        (("--patience=60",), roles.controller()),
        (("--taint-nodes",), roles.controller(taint_nodes=True)),
        (
            ("--keep-quotas", "--autoscaling-hints=3", "--static-mig-labels"),
            roles.controller(keep_quotas=True, autoscaling_hints=True, static_mig_labels=True),
        ),
    ],
)
def test_the_controller_is_granted_what_its_flags_need(flags, role):
    made = operator.Operator(None, None, controller_flags=flags)
    assert made.granted() == {**operator.ROLES, operator.CONTROLLER: role}


def test_every_flag_that_needs_a_permission_is_known():
    taken = {f"--{name.replace('_', '-')}" for name in signature(roles.controller).parameters}
    assert taken == set(operator.NEED_PERMISSION)
