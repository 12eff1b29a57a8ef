"""The options that say where the programs of a local cluster come from, shared by every command that needs them."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from instaslice.local.binaries import Source

OPTIONS = (
    click.option(
        "--binaries",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder to look for programs in first (then KUBEBUILDER_ASSETS, then the cache).",
    ),
    click.option("--download", is_flag=True, help="Download official release binaries instead of building them."),
    click.option("--download-from", metavar="URL", help="A mirror with the same paths, for --download."),
)


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets them as one `source`."""

    @wraps(command)
    def with_source(*, binaries: Path | None, download: bool, download_from: str | None, **others: Any) -> None:
        command(source=Source(binaries, download, download_from), **others)

    for option in reversed(OPTIONS):
        with_source = option(with_source)
    return with_source
