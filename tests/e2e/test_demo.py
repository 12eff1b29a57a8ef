"""What a newcomer types first: its story is always the same."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from instaslice.local.process import CLUSTER_VARIABLE

DEMO = [sys.executable, "-m", "instaslice.cli", "demo"]
STATES = ["gated", "creating", "created", "ungated", "Running", "Succeeded", "released"]
PODS = ["train", "tune", "distill", "eval", "serve", "whale", "embed", "notebooks"]


def environment(home: Path) -> dict[str, str]:
    """A state home of its own; the programs come from the user's cache."""
    return {**os.environ, "XDG_STATE_HOME": str(home)}


def left_by(home: Path) -> list[str]:
    """Clusters and processes that are still there."""
    found = [str(record) for record in home.glob("instaslice/clusters/*/cluster.json")]
    for process in psutil.process_iter():
        try:
            if process.environ().get(CLUSTER_VARIABLE, "").startswith(str(home)):
                found.append(process.name())
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def output(new_home):
    """What the demo prints where nobody looks at a terminal, and the folder in which its cluster was."""
    home = new_home("demo")
    done = subprocess.run(DEMO, env=environment(home), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, home


def happened(output: tuple[str, Path]) -> list[tuple[str, str]]:
    """(pod, what became of it), in the order printed."""
    return re.findall(r"pod (\S+): (.+)", output[0])


def when(output: tuple[str, Path], pod: str, state: str) -> int:
    """The place of it among all that happened."""
    return next(at for at, (who, what) in enumerate(happened(output)) if who == pod and what.startswith(state))


@pytest.mark.parametrize("pod", PODS)
def test_each_pod_goes_through_its_states_in_order(output, pod):
    words = [what for who, what in happened(output) if who == pod and not what.startswith("waits")]
    assert [re.split(r"[ ,]", what)[0] for what in words] == STATES


def test_the_one_that_must_wait_says_why_and_gets_its_slice_when_another_ends(output):
    assert when(output, "whale", "gated") < when(output, "whale", "waits") < when(output, "train", "Succeeded")
    assert when(output, "train", "Succeeded") < when(output, "whale", "creating")
    for longer in ("tune", "distill", "eval"):
        assert when(output, "whale", "creating") < when(output, longer, "Succeeded")
    # It is the very GPU that became free: no other is whole.
    places = {who: what for who, what in happened(output) if what.startswith("Running")}
    assert places["whale"] == places["train"]
    assert re.search(r"whale ran \d\.\d\d s after train ended", output[0])


def test_smaller_ones_pass_the_one_that_waits(output):
    for smaller in ("embed", "notebooks"):
        assert when(output, "whale", "gated") < when(output, smaller, "Running") < when(output, "whale", "creating")


def test_a_typo_is_refused_with_the_nearest_names(output):
    (refusal,) = [what for who, what in happened(output) if who == "typo"]
    assert refusal.startswith("refused: ")
    assert "nvidia.com/mig-3g.21gb" in refusal
    assert "did you mean 3g.20gb" in refusal


def test_nothing_is_left(output):
    text, home = output
    assert text.rstrip().endswith("the cluster is gone again")
    assert left_by(home) == []


def test_on_a_terminal_the_gpus_are_coloured_bars_and_control_c_cleans_up(new_home):
    home = new_home("terminal")
    terminal, theirs = pty.openpty()
    look = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "120"}
    demo = subprocess.Popen(
        DEMO,
        env=environment(home) | look,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # A shell ignores it for what runs in the background, as these tests may, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    shown = ""
    # A cell with a background of its own, and the words of the slice in it.
    while not re.search(r"48;2;\d+;\d+;\d+m +7g\.40gb train +", shown):
        shown += os.read(terminal, 65536).decode(errors="replace")
    demo.send_signal(signal.SIGINT)
    with_end = shown + drained(terminal)
    assert demo.wait(timeout=60) == 130
    assert "\x1b[?25h" in with_end, "the cursor is shown again"
    assert left_by(home) == []


def drained(terminal: int) -> str:
    """All that is still written there, until its last writer is gone."""
    rest = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            # Linux says so where other systems send an end of file.
            chunk = b""
        if not chunk:
            return rest.decode(errors="replace")
        rest += chunk
