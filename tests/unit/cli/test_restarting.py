"""A controller that can no longer trust what it knows becomes a new process, and does nothing else before."""

import os
import sys

import pytest
from click.testing import CliRunner

from instaslice.cli import controller
from instaslice.controller.errors import Deposed
from instaslice.kube.errors import LeaseLost


class Client:
    @classmethod
    async def connect(cls, *_, **__):
        return cls()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_): ...


class Replaced(BaseException):
    """The process is another from here on."""


@pytest.fixture
def terms(monkeypatch):
    """What each time of leading ends with; what the process became."""
    ends, became = [], []

    class Election:
        is_fresh = True

        def __init__(self, *_, **__): ...

        async def run(self, _lead):
            raise ends.pop(0)

    def execv(path, argv):
        became.append((path, argv))
        raise Replaced

    monkeypatch.setattr(controller, "Client", Client)
    monkeypatch.setattr(controller, "Election", Election)
    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-m", "instaslice.cli", "controller", "--patience=7"])
    return ends, became


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Deposed("another wrote"), id="another wrote"),
        pytest.param(LeaseLost("not renewed"), id="the lease is lost"),
        pytest.param(ExceptionGroup("tasks", [ExceptionGroup("more", [Deposed("another wrote")])]), id="in a task"),
    ],
)
def test_it_begins_again_with_the_same_command_line(terms, error):
    ends, became = terms
    ends.append(error)
    with pytest.raises(Replaced):
        CliRunner().invoke(controller.command, ["--observe", ""], catch_exceptions=False)
    again = [sys.executable, "-m", "instaslice.cli", "controller", "--patience=7"]
    assert became == [(sys.executable, again)]


def test_a_defect_ends_it(terms):
    ends, became = terms
    ends.append(RuntimeError("a defect"))
    assert isinstance(CliRunner().invoke(controller.command, ["--observe", ""]).exception, RuntimeError)
    assert not became
