"""An image as a file, in the format of `docker save`: how large its layers are, and its root filesystem."""

import gzip
import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

GZIP = b"\x1f\x8b"
WHITEOUT = ".wh."
"""A layer removes a file of a lower one by this before its name."""


class Archive:
    """Reads one archive."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with tarfile.open(path) as tar:
            (manifest,) = _json(tar, "manifest.json")
            self.config = _json(tar, manifest["Config"])
        self.layers = dict(zip(self.config["rootfs"]["diff_ids"], manifest["Layers"], strict=True))
        """The digest of each, lowest first, and its name in the archive."""

    def size(self, digest: str) -> int:
        """Bytes of a layer, not compressed."""
        with self._opened(digest) as layer:
            return layer.seek(0, 2)

    def unpack(self, root: Path) -> None:
        """Write the root filesystem into a new folder. Owners are kept, which takes root."""
        root.mkdir(parents=True)
        for digest in self.layers:
            with self._opened(digest) as file, tarfile.open(fileobj=file) as layer:
                kept = []
                for member in layer:
                    folder, _, name = member.name.rpartition("/")
                    if name.startswith(WHITEOUT):
                        _remove(root / folder / name.removeprefix(WHITEOUT))
                    else:
                        kept.append(member)
                # It is our own image: links to anywhere and files of root belong in it.
                layer.extractall(root, members=kept, filter="fully_trusted")  # noqa: S202

    @contextmanager
    def _opened(self, digest: str) -> Iterator[IO[bytes]]:
        with tarfile.open(self._path) as tar:
            file = tar.extractfile(self.layers[digest])
            assert file is not None, "a layer is a file"
            compressed = file.read(2) == GZIP
            file.seek(0)
            with gzip.open(file) if compressed else file as layer:
                yield layer


def _json(tar: tarfile.TarFile, name: str) -> Any:
    file = tar.extractfile(name)
    assert file is not None, f"{name} is a file"
    return json.load(file)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
