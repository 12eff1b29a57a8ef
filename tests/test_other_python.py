"""The unit tests once more, on the newest Python that we support, where this machine has it."""

import os
import subprocess
from pathlib import Path

import pytest

SKIPPED = 77


@pytest.mark.timeout(1200)  # the first time its environment is made
def test_the_unit_tests_on_the_newest_python(record_property):
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        ["scripts/test_other_python"],
        cwd=Path(__file__).parents[1],
        env=ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    last = (done.stdout.strip().splitlines() or ["it said nothing"])[-1]
    if done.returncode == SKIPPED:
        pytest.skip(last)
    assert done.returncode == 0, done.stdout
    record_property("told", last)
