"""The options that say which cluster a command looks at, shared by every command that only reads one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from instaslice.cli.terminal import completions

F = TypeVar("F", bound=Callable[..., Any])

_KUBECONFIG = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="[default: $KUBECONFIG, in a pod its service account, ~/.kube/config]",
)
_CONTEXT = click.option(
    "--context",
    shell_complete=completions.contexts,
    help="The context of the kubeconfig.  [default: its current one]",
)


def cluster_options(command: F) -> F:
    """Add `--kubeconfig` and `--context`."""
    return _KUBECONFIG(_CONTEXT(command))
