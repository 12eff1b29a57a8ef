"""What `instaslice status --watch` shows: a picture that fits the terminal, lines or documents elsewhere."""

import io

import msgspec
import pytest
import yaml
from gpu_nodes import allocation, fleet, made, node
from rich.console import Console
from rich.live import Live

from instaslice.cli.terminal.fleet_watch import Documents, Lines, Picture

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


@pytest.mark.parametrize(
    "height, seen, unseen",
    [
        pytest.param(60, ["fits 7g.40gb", "START  PROFILE"], [], id="all of it"),
        pytest.param(20, ["·······", "LARGEST FIT"], ["START  PROFILE"], id="a line per node"),
        pytest.param(8, ["LARGEST FIT"], ["·······", "START  PROFILE"], id="totals by model"),
    ],
)
def test_the_picture_is_as_detailed_as_the_terminal_is_high(height, seen, unseen):
    held = node([allocation("train")], [made("train")], name="gpu-held")
    status = fleet(held, *(node(name=f"gpu-{index}") for index in range(11)))
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=height, no_color=True)
    with Live(console=console, auto_refresh=False) as screen:
        Picture(screen, None).show(status, "no answer")
        text = console.file.getvalue()
    assert "not up to date: no answer" in text
    assert text.count("\n") < height
    assert [each for each in seen if each not in text] == []
    assert [each for each in unseen if each in text] == []
