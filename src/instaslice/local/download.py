"""Official release binaries instead of a build: `instaslice up --download`.

Files come from the projects' own addresses; `--download-from URL` puts another host and prefix before the same path,
for mirrors and closed networks. A file is used only if its published SHA-256 matches.
"""

import hashlib
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from instaslice.local import layout
from instaslice.local.components import CNI, CONTAINERD, ETCD, Module, platform
from instaslice.local.errors import NotAvailable
from instaslice.local.progress import ConsoleProgress, NoProgress, Progress

CHUNK = 1 << 20
TIMEOUT = 60


@dataclass(frozen=True)
class Release:
    """Where a project publishes a file: its path and that of its checksum, below `host`."""

    host: str
    path: str
    checksum: str

    def address(self, path: str, base: str | None) -> str:
        return f"{(base or self.host).rstrip('/')}/{path}"


def available(module: Module) -> bool:
    """Whether the project publishes binaries with checksums; the others are built."""
    return module.name in {"kubernetes", ETCD.name, CONTAINERD.name, CNI.name}


def release(module: Module, command: str) -> Release:
    system, machine = platform().split("-")
    version = module.version
    if module.name == "kubernetes":
        path = f"v{version}/bin/{system}/{machine}/{command}"
        return Release("https://dl.k8s.io", path, f"{path}.sha256")
    github = "https://github.com"
    if module.name == ETCD.name:
        folder = f"etcd-io/etcd/releases/download/v{version}"
        return Release(github, f"{folder}/etcd-v{version}-{system}-{machine}.tar.gz", f"{folder}/SHA256SUMS")
    if module.name == CONTAINERD.name:
        path = f"containerd/containerd/releases/download/v{version}/containerd-{version}-{system}-{machine}.tar.gz"
        return Release(github, path, f"{path}.sha256sum")
    assert module.name == CNI.name
    folder = f"containernetworking/plugins/releases/download/v{version}"
    path = f"{folder}/cni-plugins-{system}-{machine}-v{version}.tgz"
    return Release(github, path, f"{path}.sha256")


def download(
    module: Module,
    commands: Sequence[str],
    target: Path,
    base: str | None,
    step: str = "",
) -> None:
    """Make sure that `target` holds every program in `commands`. Raises NotAvailable; leaves nothing partial."""
    with layout.lock(target.with_name(f".{target.name}.lock")):
        for name in commands:
            if (target / name).exists():
                continue
            wanted = release(module, name)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
                fetched = Path(scratch) / "fetched"
                with ConsoleProgress(f"{step}downloading {name} ({module.name} {module.version})") as progress:
                    _fetch(wanted.address(wanted.path, base), fetched, progress)
                _check(fetched, wanted, base)
                program = _unpack(fetched, name) if wanted.path.endswith(("gz", "tgz")) else fetched
                program.chmod(0o755)
                target.mkdir(exist_ok=True)
                program.replace(target / name)


def _fetch(address: str, to: Path, progress: Progress) -> None:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer, to.open("wb") as out:  # noqa: S310
            total, done = int(answer.headers.get("Content-Length") or 0), 0
            while piece := answer.read(CHUNK):
                done += out.write(piece)
                progress.step(done >> 20, max(total, done) >> 20)
            if total and done != total:
                raise NotAvailable(f"{address}: ended after {done} of {total} bytes; try again")
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise NotAvailable(
            f"{address} could not be downloaded ({error}); check --download-from, or omit --download to build"
        ) from error


def _check(fetched: Path, wanted: Release, base: str | None) -> None:
    address = wanted.address(wanted.checksum, base)
    sums = fetched.with_name("checksum")
    _fetch(address, sums, NoProgress())
    published = _published(sums.read_text(errors="replace"), Path(wanted.path).name)
    with fetched.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != published:
        raise NotAvailable(
            f"{wanted.address(wanted.path, base)}: SHA-256 is {found}, published is {published or 'none'} ({address}); "
            "the download was thrown away"
        )


def _published(text: str, file: str) -> str | None:
    """The checksum for `file` in a bare `.sha256` or in a list of `SUM  NAME` lines."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if len(lines) == 1 and len(lines[0]) == 1:
        return lines[0][0]
    return next((words[0] for words in lines if len(words) > 1 and words[-1].lstrip("*") == file), None)


def _unpack(archive: Path, name: str) -> Path:
    """Extract the program of that name from a tar file."""
    with tarfile.open(archive) as tar:
        member = next((each for each in tar if each.isfile() and Path(each.name).name == name), None)
        inside = tar.extractfile(member) if member else None
        if inside is None:
            raise NotAvailable(f"{archive.name}: holds no {name}")
        out = archive.with_name(f"unpacked-{name}")
        with out.open("wb") as to:
            shutil.copyfileobj(inside, to)
    return out
