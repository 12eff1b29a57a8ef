"""docs/reference says what the code says: it is generated, and this fails when somebody forgot to."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("commands.md", "names.md", "conditions.md", "instaslice.md")


@pytest.fixture(scope="session")
def generated(tmp_path_factory):
    """Written again, by a process of its own: nothing that a test patched is in it."""
    folder = tmp_path_factory.mktemp("reference")
    code = (
        "import pathlib, sys; sys.path.insert(0, 'scripts'); import write_reference as w;"
        f"w.REFERENCE = pathlib.Path({str(folder)!r}); w.main()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)
    return folder


def test_there_are_no_other_pages(generated):
    assert {each.name for each in (ROOT / "docs" / "reference").iterdir()} == set(PAGES)
    assert {each.name for each in generated.iterdir()} == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_make_generate_writes(generated, page):
    assert (ROOT / "docs" / "reference" / page).read_text() == (generated / page).read_text(), "run `make generate`"


BEFORE = r"PodCondition\(\w+, |\bwarn\(|_warn\([\w.]+\(\w+\), |partial\(warn, |ConditionStatus\.\w+, "
LITERAL = re.compile(rf'(?:{BEFORE})"[A-Z]\w+"')


def test_how_a_reason_that_is_written_out_is_found():
    assert LITERAL.search('warn("GpuLeftAlone", "Discover"')
    assert LITERAL.search('PodCondition(False, "Waiting", message)')
    assert LITERAL.search('_condition(before, READY, ConditionStatus.FALSE, "NoDriver", why)')
    assert LITERAL.search('self._warn(_reference(it), "NoDriver", "Discover")')


@pytest.mark.parametrize("package", ["agent", "controller"])
def test_every_reason_is_on_the_page(package):
    """None is written out where it is used, so that `api/reasons.py` has them all."""
    files = sorted((ROOT / "src" / "instaslice" / package).rglob("*.py"))
    assert [str(file) for file in files if LITERAL.search(file.read_text())] == []
