"""The options that say where the programs of a local cluster come from: the same for every command that needs them."""

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
        help="Folder to take programs from before all else (then KUBEBUILDER_ASSETS, then the cache).",
    ),
    click.option("--download", is_flag=True, help="Fetch official release binaries instead of building them."),
    click.option("--download-from", metavar="URL", help="A mirror that has the same paths."),
)


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets them as one `source`."""

    @wraps(command)
    def with_source(*, binaries: Path | None, download: bool, download_from: str | None, **others: Any) -> None:
        command(source=Source(binaries, download, download_from), **others)

    for option in reversed(OPTIONS):
        with_source = option(with_source)
    return with_source
