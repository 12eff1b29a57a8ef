"""What `instaslice status --watch` prints where the output is not a terminal."""

import msgspec
import pytest
import yaml
from gpu_nodes import allocation, fleet, made, node

from instaslice.cli.terminal.fleet_watch import Documents, Lines

EMPTY = fleet(node())
HELD = fleet(node([allocation("train")], [made("train")]))


def test_an_outage_is_said_once_and_so_is_its_end(capsys):
    lines = Lines()
    for failure in ("", "no answer", "still no answer", ""):
        lines.show(EMPTY, failure)
    printed = [each.partition("  ")[2] for each in capsys.readouterr().out.splitlines()]
    assert printed[-2:] == ["not up to date: no answer", "up to date again"]
    assert sum("up to date" in each for each in printed) == 2


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_document_follows_only_where_something_has_changed(form, capsys):
    documents = Documents(form)
    later = msgspec.structs.replace(EMPTY, now=EMPTY.now.replace(year=2027))
    for status in (EMPTY, later, HELD, HELD):
        documents.show(status, "")
    text = capsys.readouterr().out
    found = (
        list(yaml.safe_load_all(text)) if form == "yaml" else [msgspec.json.decode(each) for each in text.splitlines()]
    )
    assert [each["slots"] for each in found] == [{}, {"created": 1}]
