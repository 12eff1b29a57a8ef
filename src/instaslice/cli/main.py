"""`instaslice`: finds the command, turns our errors into one line and an exit code.

A command is a module of this package with a click command named `command`. It is imported when it is called, so
that `instaslice --help` costs no more than click.
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

import click
from click.shell_completion import ShellComplete

from instaslice import __version__
from instaslice.cli.terminal.command_group import CommandGroup
from instaslice.cli.terminal.plain_text import echo
from instaslice.errors import InstasliceError, leaves

PROGRAM: Final = "instaslice"
PLUGIN: Final = "kubectl instaslice"
COMPLETE_VARIABLE: Final = "_INSTASLICE_COMPLETE"
"""By which the shell asks for completions."""
NO_FILES, FILES = 4, 0
"""What kubectl is told: whether the shell shall complete names of files."""
COMMANDS: Mapping[str, str] = {
    "demo": "Show pods with slices on a temporary cluster.",
    "up": "Start a real Kubernetes on this machine, with emulated GPU nodes.",
    "down": "Stop a local cluster and remove everything it left on this machine.",
    "fetch": "Build or download the programs of a local cluster, and start nothing.",
    "clusters": "Show local clusters and whether their components run.",
    "status": "Show the fleet: who holds which slice, what still fits, who waits.",
    "simulate": "Run a workload through a fleet, without a cluster, and compare placement policies.",
    "explain": "Say why a pod waits and what would make it fit, or where its slices are.",
    "doctor": "Check that pods, nodes and slices agree with each other.",
    "kueue": "Have Kueue count GPU memory: its queues and its configuration.",
    "drained": "Say whether pods still hold slices or wait for them, before a node or the cluster gives them up.",
    "completion": "Print a script by which bash, zsh or fish completes our commands.",
    "controller": "Place the pods that wait for slices, and release the slices when their pods are gone.",
    "webhook": "Serve the admission webhook that gates the pods that ask for slices.",
    "agent": "Create and destroy the slices of a node, or of many emulated ones.",
}
"""Command → the line that `instaslice --help` prints; the module of the same name holds the rest."""


@click.group(
    cls=CommandGroup,
    package="instaslice.cli",
    listed=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name=PROGRAM)
def instaslice() -> None:
    """Cut GPUs into slices on Kubernetes at the moment a pod asks for one."""


def kubectl_plugin() -> None:
    """`kubectl instaslice`: kubectl runs what is called `kubectl-instaslice` on the PATH."""
    main(PLUGIN)


def kubectl_complete() -> None:
    """What kubectl's completion asks for `kubectl instaslice`, of `kubectl_complete-instaslice`: the words of the
    command line, the last of which is not complete. It wants one completion per line, and what to do about files."""
    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(instaslice, {}, PLUGIN, COMPLETE_VARIABLE).get_completions(words, incomplete)
    for each in found:
        if each.type == "plain":
            click.echo(f"{each.value}\t{each.help}" if each.help else each.value)
    click.echo(f":{FILES if any(each.type == 'file' for each in found) else NO_FILES}")


def main(program: str = PROGRAM) -> None:
    try:
        instaslice.main(prog_name=program, complete_var=COMPLETE_VARIABLE, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except InstasliceError as error:
        echo(f"error: {error}", err=True)
        sys.exit(1)
    except ExceptionGroup as group:
        if all(isinstance(each, BrokenPipeError) for each in leaves(group)):
            # Whoever read has read enough: `| head`. Click ends quietly where no group is around it, and so do we.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        # From concurrent tasks. Anything but our own errors and those of files is a defect: its traceback is shown.
        if not all(isinstance(each, InstasliceError) or _is_of_a_file(each) for each in leaves(group)):
            raise
        for each in leaves(group):
            echo(f"error: {_in_one_line(each)}", err=True)
        sys.exit(1)
    except OSError as error:
        echo(f"error: {_in_one_line(error)}", err=True)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)


def _is_of_a_file(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.filename is not None


def _in_one_line(error: BaseException) -> str:
    """For a directory that cannot be written, or a full disk, what the system says and where: it is all we know."""
    if not isinstance(error, OSError):
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"
