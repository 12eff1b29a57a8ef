"""docs/reference says what the code says: it is generated, and this fails when somebody forgot to."""

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
