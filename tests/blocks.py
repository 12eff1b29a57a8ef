"""Which tests may run side by side, and in which order: `make test` runs two lanes (pytest-xdist, `-n 2`).

Most tests of a cluster wait, so two lanes fill two cores. A lane takes one block of tests after another; a block is
never divided, so that a cluster that its tests share is started once.
"""

MACHINE = "whole machine"
"""Tests that compare the mounts, links and cgroups of the machine before and after, and all tests that make such: one
block, so that nobody makes any while another counts."""
BLOCKS = {
    "tests/integration/local": MACHINE,
    "tests/integration/node": MACHINE,
    "tests/integration/install": MACHINE,
    "tests/integration/image": MACHINE,
    "tests/integration/classic/test_kills.py": "kills",
    "tests/integration/classic": "classic",
    "tests/integration/kueue": "kueue",
    "tests/integration/agent": "agent",
    "tests/integration/controller": "controller",
    "tests/integration": "shared cluster",
}
"""The first path that a test lies under names its block. Every other file is a block of its own."""
LONGEST_FIRST = (MACHINE, "classic", "kills", "kueue", "controller", "agent", "shared cluster")
"""The files come last, where they fill what is left of the shorter lane."""


def block(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return next((name for path, name in BLOCKS.items() if f"{file}/".startswith(f"{path}/")), file)


def rank(nodeid: str) -> int:
    """For sorting."""
    name = block(nodeid)
    return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)
