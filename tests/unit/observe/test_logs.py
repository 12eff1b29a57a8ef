"""A line of the log says when, how bad, what, and about whom."""

import json
import logging

import pytest

from instaslice.observe.logs import JsonFormatter, TextFormatter, about, configure


def record(message="slice %s is created", *args, error=None, level=logging.INFO, **keys):
    made = logging.makeLogRecord(
        {"name": "instaslice.x", "levelno": level, "levelname": logging.getLevelName(level), "msg": message,
         "args": args or ("1g.5gb",), "created": 1.5, **about(**keys)}
    )  # fmt: skip
    if error is not None:
        made.exc_info = (type(error), error, None)
    return made


POD = {"pod": "team-a/train", "uid": "u-1", "node": "gpu-0", "gpu": "GPU-1", "seconds": 0.12345}


def test_a_line_of_text():
    assert TextFormatter().format(record(**POD)) == (
        "1970-01-01T00:00:01.500Z INFO slice 1g.5gb is created "
        "pod=team-a/train uid=u-1 node=gpu-0 gpu=GPU-1 seconds=0.123"
    )


def test_a_line_about_nothing_in_particular():
    assert TextFormatter().format(record("%s nodes", 2)) == "1970-01-01T00:00:01.500Z INFO 2 nodes"


def test_a_line_of_json():
    assert json.loads(JsonFormatter().format(record(**POD))) == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "info",
        "logger": "instaslice.x",
        "message": "slice 1g.5gb is created",
        **POD,
        "seconds": 0.123,
    }


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_what_somebody_else_wrote_does_not_begin_a_line(formatter):
    forged = "a\n1970-01-01T00:00:01.500Z INFO all is well"
    assert "\n" not in formatter.format(record("pod: %s", forged, request=forged))


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
@pytest.mark.parametrize("odd", ["\r", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u202e", "\ud800"])
def test_what_a_terminal_would_obey_is_escaped(formatter, odd):
    error = ValueError(f"a{odd}b")
    line = formatter.format(record("pod: %s", f"a{odd}b", request=f"a{odd}b", error=error))
    assert line.replace("\n", "").isprintable()
    assert line.encode().count(b"a\\") == 3


def test_a_value_does_not_look_like_further_keys():
    line = TextFormatter().format(record(pod='team-a/x pod=victim/pod uid="1"', uid="u-1"))
    assert line.endswith(r'pod="team-a/x pod=victim/pod uid=\"1\"" uid=u-1')


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_a_name_of_a_megabyte_is_not_a_line_of_a_megabyte(formatter):
    line = formatter.format(record("pod: %s", "x" * 1_000_000, pod="y" * 1_000_000))
    assert (line.count("x" * 3900), line.count("y" * 317)) == (1, 1)
    assert len(line) < 5000


def test_a_traceback_is_a_part_of_its_event():
    line = JsonFormatter().format(record(error=ValueError("odd"), level=logging.ERROR))
    assert "\n" not in line
    assert "ValueError: odd" in json.loads(line)["traceback"]
    assert TextFormatter().format(record(error=ValueError("odd"))).endswith("\nValueError: odd")


def test_lines_below_the_level_are_not_written(capsys):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        configure("json", "warning")
        logging.getLogger("instaslice.x").info("quiet")
        logging.getLogger("instaslice.x").warning("loud", extra=about(node="gpu-0"))
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "loud"
