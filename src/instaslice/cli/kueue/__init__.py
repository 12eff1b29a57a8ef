"""`instaslice kueue`: what an administrator gives Kueue.

manifests   queues that count GPU memory, and the configuration by which each slice is charged once
"""

from collections.abc import Mapping

import click

from instaslice.cli.terminal.command_group import CommandGroup

COMMANDS: Mapping[str, str] = {
    "manifests": "Print queues that count GPU memory, or Kueue's configuration for them.",
}
EXAMPLES = """\b
Examples:
  instaslice kueue manifests --config               what Kueue's configuration needs, once per cluster
  instaslice kueue manifests | kubectl apply -f -   a queue for all the GPU memory of the cluster
"""


@click.group(cls=CommandGroup, package=__name__, listed=COMMANDS, epilog=EXAMPLES)
def command() -> None:
    """Have Kueue count GPU memory: its queues and its configuration."""
