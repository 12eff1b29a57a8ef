"""NO_COLOR takes the colours from what a command prints on a terminal."""

import os
import re
import sys

from local_clusters import recorded
from terminals import Terminal

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


def shown(home, *words, **more):
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_STATE_HOME": str(home), "TERM": "xterm-256color", **more}
    terminal = Terminal([sys.executable, "-m", "instaslice.cli", *words], env)
    try:
        return terminal.rest()
    finally:
        terminal.close()


def test_no_color_takes_the_colours_away(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    recorded("default")
    assert COLOUR.search(shown(tmp_path, "clusters"))
    plain = shown(tmp_path, "clusters", NO_COLOR="1")
    assert "COMPONENT" in plain
    assert not COLOUR.search(plain)
