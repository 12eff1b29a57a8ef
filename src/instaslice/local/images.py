"""Container images without a registry: tar files in the layout of `docker save`, built from one static program.

The real node needs two: one for sandboxes, and one to run something.
"""

import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

import msgspec

from instaslice.local.components import platform

PAUSE = "instaslice.local/pause:1"
BUSYBOX = "docker.io/library/busybox:1.35"
"""With a tag, so that the kubelet does not try to pull it."""


def write(busybox: Path, directory: Path) -> list[Path]:
    """Write the two archives, from a statically linked busybox."""
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    directory.mkdir(parents=True, exist_ok=True)
    layer = _layer(busybox, applets)
    return [
        _archive(directory / "pause.tar", PAUSE, layer, ["/bin/busybox", "tail", "-f", "/dev/null"]),
        _archive(directory / "busybox.tar", BUSYBOX, layer, ["sh"]),
    ]


def _layer(busybox: Path, applets: list[str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777), ("var", 0o755)):
            tar.addfile(_entry(folder, tarfile.DIRTYPE, mode))
        data = busybox.read_bytes()
        tar.addfile(_entry("bin/busybox", tarfile.REGTYPE, 0o755, size=len(data)), io.BytesIO(data))
        for applet in applets:
            if applet != "busybox":
                tar.addfile(_entry(f"bin/{applet}", tarfile.SYMTYPE, 0o777, link="busybox"))
        passwd = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
        tar.addfile(_entry("etc/passwd", tarfile.REGTYPE, 0o644, size=len(passwd)), io.BytesIO(passwd))
    return out.getvalue()


def _entry(name: str, kind: bytes, mode: int, *, size: int = 0, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.linkname = kind, mode, size, link
    return entry


def _archive(path: Path, name: str, layer: bytes, command: list[str]) -> Path:
    digest = hashlib.sha256(layer).hexdigest()
    config = msgspec.json.encode(
        {
            "architecture": platform().split("-")[1],
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    )
    identity = hashlib.sha256(config).hexdigest()
    manifest = [{"Config": f"{identity}.json", "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    files = {
        f"{identity}.json": config,
        f"{digest}/layer.tar": layer,
        "manifest.json": msgspec.json.encode(manifest),
    }
    with tarfile.open(path, "w") as tar:
        for file, data in files.items():
            tar.addfile(_entry(file, tarfile.REGTYPE, 0o644, size=len(data)), io.BytesIO(data))
    return path
