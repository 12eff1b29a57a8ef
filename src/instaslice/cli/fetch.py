"""`instaslice fetch`: build or download the programs before they are needed."""

from pathlib import Path

import click

from instaslice.cli.terminal.program_source import source_options
from instaslice.local import binaries, components
from instaslice.local.binaries import Source

EXAMPLES = """\b
Examples:
  instaslice fetch                   what `instaslice up` needs
  instaslice fetch --real-node       and what a real node needs
  instaslice fetch --download        official binaries instead of a build
"""


@click.command(epilog=EXAMPLES)
@click.option("--real-node", is_flag=True, help="Also kubelet, containerd and what they need.")
@click.option("--kueue", is_flag=True, help="Also Kueue.")
@click.option("--helm", is_flag=True, help="Also Helm, which installs the chart.")
@click.option(
    "--kubernetes", default=components.KUBERNETES, show_default=True, metavar="VERSION", help="Version of Kubernetes."
)
@source_options
def command(real_node: bool, kueue: bool, helm: bool, kubernetes: str, source: Source) -> None:
    """Build or download the programs of a local cluster into the cache, and start nothing."""
    found = binaries.locate(binaries.needed(real_node=real_node, kueue=kueue, helm=helm), source, kubernetes)
    width = max(map(len, found))
    for name, path in sorted(found.items()):
        click.echo(f"{name:{width}}  {_short(path)}")


def _short(path: Path) -> str:
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)
