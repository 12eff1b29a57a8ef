"""Completion, in real shells: what is typed before the tab key becomes a command that runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete
from terminals import HANGS, Terminal

from instaslice import __version__
from instaslice.cli.main import COMMANDS, COMPLETE_VARIABLE, instaslice
from instaslice.geometry import models

BIN = Path(sys.executable).parent
SETUP = {
    "bash": "source <(instaslice completion bash)",
    "zsh": "autoload -Uz compinit; compinit -u -D; source <(instaslice completion zsh)",
    "fish": "instaslice completion fish | source",
}
QUIET = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"], "fish": ["--no-config", "-i"]}


def environment(home, **more):
    told = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    return {**told, **more}


@pytest.mark.parametrize("shell", SETUP)
def test_a_tab_completes_commands_and_flags(shell, tmp_path):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    terminal = Terminal([program, *QUIET[shell]], environment(tmp_path))
    try:
        terminal.type(f"{SETUP[shell]}\r")
        # In two pieces where it is typed, so that only the shell prints it in one.
        terminal.type("echo re''ady\r")
        terminal.until("ready")
        terminal.type("instaslice expl\t--hel\t\r")
        terminal.until("Usage: instaslice explain")
    finally:
        terminal.close()


def completed(*words):
    found = ShellComplete(instaslice, {}, "instaslice", COMPLETE_VARIABLE).get_completions(list(words[:-1]), words[-1])
    return [each.value for each in found]


def test_commands_are_completed_without_importing_them():
    code = (
        "import sys; from click.shell_completion import ShellComplete; from instaslice.cli import main as m;"
        "found = ShellComplete(m.instaslice, {}, 'instaslice', 'X').get_completions([], '');"
        "print(*[each.value for each in found]);"
        "print(*[name for name in sys.modules if name.startswith('instaslice.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS, check=True)
    found, loaded = done.stdout.splitlines()
    assert found.split() == list(COMMANDS)
    assert not set(loaded.split()) & {f"instaslice.cli.{name}" for name in COMMANDS}


@pytest.mark.parametrize(
    "words, expected",
    [
        pytest.param(["do"], ["down", "doctor"], id="commands"),
        pytest.param(["status", "--no"], ["--node"], id="flags"),
        pytest.param(["status", "-o", ""], ["text", "wide", "json", "yaml"], id="choices"),
        pytest.param(["up", "--model", "h2"], [each for each in models.names() if each.startswith("H2")], id="models"),
        pytest.param(["explain", "sts"], ["sts/"], id="kinds of workloads"),
        pytest.param(["explain", "node/a"], [], id="no workload"),
    ],
)
def test_what_a_word_is_completed_to(words, expected, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert completed(*words) == expected


def test_contexts_are_those_of_the_kubeconfig(tmp_path, monkeypatch):
    file = tmp_path / "kubeconfig"
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("prod", "preview", "test")]
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "test", "contexts": contexts}
    config |= {"clusters": [{"name": "c", "cluster": {"server": "https://c"}}], "users": [{"name": "u", "user": {}}]}
    file.write_text(yaml.safe_dump(config))
    assert completed("status", "--kubeconfig", str(file), "--context", "pr") == ["prod", "preview"]
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert completed("doctor", "--context", "t") == ["test"]
    file.write_text("{ torn")
    assert completed("doctor", "--context", "t") == []


def test_a_cluster_that_does_not_answer_completes_nothing(tmp_path, nobody, capsys):
    file = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"https://{nobody}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {
        "current-context": "c",
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
    }
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    assert completed("status", "--kubeconfig", str(file), "--node", "") == []
    assert completed("explain", "--kubeconfig", str(file), "pod/") == []
    assert capsys.readouterr() == ("", "")


def run(program, *words, home):
    return subprocess.run(
        [BIN / program, *words], capture_output=True, text=True, timeout=HANGS, env=environment(home), check=False
    )


@pytest.mark.parametrize("program", ["instaslice", "kubectl-instaslice"])
def test_the_version_is_that_of_the_package(program, tmp_path):
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert f'\nversion = "{__version__}"\n' in project
    assert run(program, "--version", home=tmp_path).stdout == f"instaslice, version {__version__}\n"


def test_the_plugin_of_kubectl_is_the_same_program_under_its_name(tmp_path):
    assert run("kubectl-instaslice", "status", "--help", home=tmp_path).stdout.startswith(
        "Usage: kubectl instaslice status [OPTIONS]"
    )
    typo = run("kubectl-instaslice", "sttus", home=tmp_path)
    assert typo.returncode == 2
    assert typo.stderr.startswith("Usage: kubectl instaslice")


@pytest.mark.parametrize(
    "words, expected",
    [
        pytest.param(["stat"], [f"status\t{COMMANDS['status']}", ":4"], id="a command"),
        pytest.param(["status", "-o", "y"], ["yaml", ":4"], id="a choice"),
        pytest.param(["status", "--kubeconfig", ""], [":0"], id="a file"),
    ],
)
def test_what_kubectl_is_told_when_it_completes_the_plugin(words, expected, tmp_path):
    assert run("kubectl_complete-instaslice", *words, home=tmp_path).stdout.splitlines() == expected
