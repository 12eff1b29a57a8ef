"""The container image: `python scripts/image build IMG`, `push IMG`, `archive PATH`, `unpack FOLDER`, `config`, `size`.

docs/image.md says what each is for. What commands print on standard output is theirs; everything else goes to the
standard error.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import click
import debian_base
from archive import Archive
from client_settings import secrets
from engine import Engine, find, install
from stored_image import ROOT, StoredImage, folder, stored

from instaslice.errors import InstasliceError

DEFAULT_BASE = "python:3.13-slim"
"""As in the Dockerfile."""


def base_of(engine: Engine, given: str | None) -> str:
    """The base to build on, which the engine has now: as given, or the default if a registry is reached, or our own."""
    if engine.pull(given or DEFAULT_BASE):
        return given or DEFAULT_BASE
    if given:
        raise click.ClickException(f"{engine.name} has no image {given} and cannot pull it: name another with BASE=")
    name = f"localhost/instaslice-base:{debian_base.release()}"
    if not engine.has(name):
        if os.geteuid() != 0:
            raise click.ClickException(f"{DEFAULT_BASE} cannot be pulled, and only root can make a base instead: BASE=")
        if not shutil.which("debootstrap"):
            install(["debootstrap"])
        engine.load_root(name, debian_base.tarball(folder()))
    return name


def build(image: str, given: str | None = None) -> tuple[Engine, str]:
    """Build the image; what built it, and on what."""
    engine = find()
    base = base_of(engine, given)
    click.echo(f"building {image} with {engine.name} on {base}", err=True)
    with tempfile.TemporaryDirectory() as scratch:
        engine.build(image, ROOT, base, secrets(Path(scratch)))
    return engine, base


def current() -> StoredImage:
    base = os.environ.get("BASE")
    return stored(lambda name: build(name, base), base)


@click.group()
def main() -> None:
    """Build the container image of this tree with docker, podman or buildah."""


@main.command("build")
@click.argument("image")
@click.option(
    "--base", help="Any image with Python 3.11 or later.  [default: the Dockerfile's, or Debian by debootstrap]"
)
@click.option("--platforms", help="linux/amd64,linux/arm64, say; docker pushes the result at once.")
def build_image(image: str, base: str | None, platforms: str | None) -> None:
    """Build IMAGE."""
    if platforms is None:
        build(image, base)
        return
    engine = find()
    with tempfile.TemporaryDirectory() as scratch:
        engine.build_platforms(image, ROOT, platforms, base, secrets(Path(scratch)))


@main.command()
@click.argument("image")
def push(image: str) -> None:
    """Push IMAGE, of one or several platforms."""
    find().push(image)


@main.command()
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
def archive(path: Path) -> None:
    """Write the image of this tree to PATH, for `ctr images import`, and print its name. Built only when it changed."""
    image = current()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.hardlink_to(image.archive)
    if not path.exists():
        shutil.copyfile(image.archive, path)
    click.echo(image.name)


@main.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def unpack(directory: Path) -> None:
    """Write the root filesystem of the image of this tree to DIRECTORY, which must not exist."""
    Archive(current().archive).unpack(directory)


@main.command()
def config() -> None:
    """Print user, entry point and environment of the image of this tree, as JSON."""
    click.echo(json.dumps(Archive(current().archive).config["config"]))


@main.command()
def size() -> None:
    """Print the megabytes of the base, and of what the image adds to it, as JSON."""
    click.echo(json.dumps(current().sizes))


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except InstasliceError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
