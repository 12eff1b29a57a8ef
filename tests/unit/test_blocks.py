"""What `make test` may run side by side."""

import re
from pathlib import Path

import pytest
from blocks import MACHINE, block, rank

TESTS = Path(__file__).parents[1]
TOUCHES_THE_MACHINE = re.compile(r"real_node=True|--real-node|snapshot\(\)|\"mount\"")


@pytest.mark.parametrize(
    "nodeid, name",
    [
        ("tests/integration/classic/test_waiting.py::test_x", "classic"),
        ("tests/integration/classic/test_kills.py::test_x[1::2]", "kills"),
        ("tests/integration/kube/test_verbs.py::test_x", block("tests/integration/webhook/test_policy.py::test_y")),
        ("tests/e2e/test_demo.py::test_x", "tests/e2e/test_demo.py"),
    ],
)
def test_the_block_of_a_test(nodeid, name):
    assert block(nodeid) == name


def test_whatever_changes_or_counts_the_mounts_and_links_of_the_machine_is_in_one_block():
    found = {
        str(file.relative_to(TESTS.parent))
        for file in TESTS.rglob("test_*.py")
        if file != Path(__file__) and TOUCHES_THE_MACHINE.search(file.read_text())
    }
    assert len(found) > 2
    assert {each for each in found if block(each) != MACHINE} == set()


def test_blocks_with_a_name_come_before_all_files_of_their_own():
    assert rank("tests/integration/api/test_x.py::test_x") < rank("tests/e2e/test_demo.py::test_x")
    assert rank("tests/e2e/test_demo.py::test_x") == rank("tests/unit/test_cli.py::test_y")
