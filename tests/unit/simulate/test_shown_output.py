"""docs/simulator.md shows what is printed now, line by line."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from instaslice.cli.simulate import command

PAGE = Path(__file__).parents[3] / "docs" / "simulator.md"
SHOWN = re.findall(r"^```console\n\$ instaslice simulate (.*)\n((?:.*\n)*?)```$", PAGE.read_text(), re.MULTILINE)


def test_there_are_examples():
    assert len(SHOWN) >= 3


@pytest.mark.parametrize(("words", "output"), [pytest.param(*shown, id=shown[0]) for shown in SHOWN])
def test_an_example_prints_what_is_shown(words, output):
    done = CliRunner().invoke(command, shlex.split(words), catch_exceptions=False)
    assert [line.rstrip() for line in done.stdout.splitlines()] == output.splitlines()
