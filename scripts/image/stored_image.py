"""The image of this tree as an archive: built once, and found by the contents of what it is built from.

Tests and benchmarks take it from here. It lies beside the programs of the local cluster.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from archive import Archive
from engine import Engine

from instaslice.local import components, layout

ROOT = Path(__file__).parents[2]
REPOSITORY = "instaslice.local/instaslice"
"""No registry: with a tag of its own no kubelet tries to pull it."""
KEPT = 3
"""Archives of 250 MB each; those used last stay."""


def folder() -> Path:
    found = layout.cache() / components.platform() / "image"
    found.mkdir(parents=True, exist_ok=True)
    return found


@dataclass(frozen=True)
class StoredImage:
    """One image in the cache."""

    name: str
    archive: Path
    base: list[str]
    """The layers of its base."""

    @property
    def sizes(self) -> dict[str, float]:
        """Megabytes of its base, and of what we add to it; not compressed."""
        image = Archive(self.archive)
        sizes = {digest: image.size(digest) for digest in image.layers}
        base = sum(size for digest, size in sizes.items() if digest in self.base)
        return {"base_mb": round(base / 1e6, 1), "image_mb": round((sum(sizes.values()) - base) / 1e6, 1)}


def key(base: str | None = None) -> str:
    """Differs when the image would: by what a build may see of the tree, and by the base that was asked for."""
    seen = hashlib.sha256((ROOT / ".dockerignore").read_bytes())
    seen.update((base or "").encode())
    for pattern in (ROOT / ".dockerignore").read_text().split():
        if pattern.startswith("!"):
            place = ROOT / pattern[1:]
            for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
                if file.is_file() and "__pycache__" not in file.parts:
                    seen.update(f"{file.relative_to(ROOT)} {file.stat().st_mode & 0o111:o}\0".encode())
                    seen.update(hashlib.sha256(file.read_bytes()).digest())
    return seen.hexdigest()[:16]


def stored(build: Callable[[str], tuple[Engine, str]], base: str | None = None) -> StoredImage:
    """The image of the tree as it is now. `build(name)` builds it, and returns the engine and the name of the base."""
    wanted, home = key(base), folder()
    archive, record = home / f"instaslice-{wanted}.tar", home / f"instaslice-{wanted}.json"
    name = f"{REPOSITORY}:{wanted}"
    with layout.lock(home / ".image.lock"):
        for interrupted in home.glob(".image-*"):
            shutil.rmtree(interrupted)
        if not (archive.exists() and record.exists()):
            engine, built_on = build(name)
            with tempfile.TemporaryDirectory(dir=home, prefix=".image-") as scratch:
                engine.save(name, Path(scratch) / "image.tar")
                record.write_text(json.dumps(engine.layers(built_on)))
                (Path(scratch) / "image.tar").replace(archive)
            engine.remove(name)
        os.utime(archive)
        for old in sorted(home.glob("instaslice-*.tar"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink()
            old.with_suffix(".json").unlink(missing_ok=True)
    return StoredImage(name, archive, json.loads(record.read_text()))
