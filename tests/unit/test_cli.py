"""The command line as a whole: what is listed can be called, and errors are one line."""

import subprocess
import sys

import pytest

from instaslice.cli.main import COMMANDS


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "instaslice.cli", *words], capture_output=True, text=True, timeout=60)


def test_help_lists_every_command():
    shown = run("--help")
    assert shown.returncode == 0
    for name in COMMANDS:
        assert f"  {name} " in shown.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_has_help_with_an_example(name):
    shown = run(name, "--help")
    assert shown.returncode == 0, shown.stderr
    assert f"instaslice {name}" in shown.stdout.split("Examples")[1]


def test_an_unknown_command_is_a_usage_error():
    shown = run("slcie")
    assert shown.returncode == 2
    assert "slcie" in shown.stderr
