"""The messages that docs/troubleshooting.md and docs/install.md quote are those that the code and the chart have."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = re.compile(r"^\| `([^`]+)`(?: \(reason `(\w+)`\))?(?: \(from (the [^)]+)\))? \|", re.MULTILINE)
MESSAGES = [(message, reason) for message, reason, by_others in QUOTED.findall(PAGE) if not by_others]


OF_THE_CHART = [
    message
    for message, _, by_others in QUOTED.findall(
        (ROOT / "docs" / "install.md").read_text().partition("## When it does")[2]
    )
    if not by_others
]
TEMPLATES = "".join(
    (ROOT / "charts" / "instaslice" / "templates" / name).read_text().replace("%s", "…")
    for name in ("guards.yaml", "NOTES.txt")
)


def strings(file):
    """Every string of a module; what is filled in when it runs is `…`, as on the page."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.JoinedStr(values=values):
                yield "".join(each.value if isinstance(each, ast.Constant) else "…" for each in values)
            case ast.Constant(value=str(text)):
                yield text.replace("{}", "…")


SAID = "\n".join(text for file in sorted((ROOT / "src" / "instaslice").rglob("*.py")) for text in strings(file))


def test_messages_are_found_on_the_pages():
    assert len(MESSAGES) >= 25
    assert len(OF_THE_CHART) >= 8


@pytest.mark.parametrize("message, reason", MESSAGES)
def test_a_message_is_said_by_the_code(message, reason):
    # A name at either end may come from elsewhere; in the middle each is one that the same string fills in.
    text = message.strip("… :;,()")
    assert text in SAID
    assert (
        not reason
        or f'"{reason}"'
        in (ROOT / "src/instaslice/api/reasons.py").read_text()
        + (ROOT / "src/instaslice/drivers/driver.py").read_text()
    )


@pytest.mark.parametrize("message", OF_THE_CHART)
def test_a_message_is_said_by_the_chart(message):
    assert message.strip("… :;,()") in TEMPLATES
