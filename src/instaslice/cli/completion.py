"""`instaslice completion`: the script by which a shell completes our commands."""

import click
from click.shell_completion import get_completion_class

from instaslice.cli.main import COMPLETE_VARIABLE, PROGRAM, instaslice

EXAMPLES = """\b
Examples:
  source <(instaslice completion bash)     in ~/.bashrc; bash 4.4 or later
  source <(instaslice completion zsh)      in ~/.zshrc, after compinit
  instaslice completion fish | source      in ~/.config/fish/config.fish
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script for SHELL that completes commands, flags, and names of pods, nodes, contexts and GPU models.

    `kubectl instaslice` completes as well where kubectl's own completion is loaded.
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows the three"
    click.echo(found(instaslice, {}, PROGRAM, COMPLETE_VARIABLE).source())
