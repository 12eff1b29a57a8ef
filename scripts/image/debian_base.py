"""A base image without a registry: Debian with its own Python, made by debootstrap and kept beside the programs.

Only root of a Debian machine can make it. It has the release and the mirror of the machine, and stays until its file is
removed: `rm ~/.cache/instaslice/linux-*/image/debian-*.tar` for the security updates since.
"""

import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from instaslice.local import layout
from instaslice.local.errors import NotAvailable

PACKAGES = ("ca-certificates", "python3-venv")
OLDEST_PYTHON = (3, 11)
UNNEEDED = (
    "var/cache/apt", "var/cache/debconf", "var/lib/apt/lists", "var/log",
    "usr/share/doc", "usr/share/info", "usr/share/lintian", "usr/share/locale", "usr/share/man",
)  # fmt: skip
"""Folders whose contents nothing in an image reads."""


def release() -> str:
    """The code name of the machine's Debian. Raises NotAvailable where the machine is not one."""
    found = platform.freedesktop_os_release()
    if found.get("ID") != "debian" or "VERSION_CODENAME" not in found:
        raise NotAvailable(
            f"a base image made by debootstrap needs a Debian machine, this is {found.get('PRETTY_NAME', 'another')}; "
            "give one with BASE=, or reach a registry"
        )
    return found["VERSION_CODENAME"]


def tarball(folder: Path) -> Path:
    """The base's root filesystem as one file in `folder`, made if it is missing (two minutes)."""
    codename = release()
    target = folder / f"debian-{codename}.tar"
    with layout.lock(folder / ".base.lock"):
        for interrupted in folder.glob(".base-*"):
            shutil.rmtree(interrupted)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=folder, prefix=".base-") as scratch:
                root, packed = Path(scratch) / "root", Path(scratch) / "root.tar"
                print(f"making a base image of Debian {codename} with debootstrap (once)", file=sys.stderr, flush=True)
                # What it mounts below `root` must be gone with it, however it ends, before that is removed.
                isolated = ("unshare", "--mount", "--propagation=private", "debootstrap", "--variant=minbase")
                _run(*isolated, f"--include={','.join(PACKAGES)}", codename, root, *_mirror())
                _trim(root)
                _run("tar", "--sort=name", "--numeric-owner", "-C", root, "-cf", packed, ".")
                packed.replace(target)
    return target


def _mirror() -> list[str]:
    """Where the machine itself has its packages from; debootstrap knows one where apt does not say."""
    wanted = [f"Codename: {release()}", "Component: main"]
    sources = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted], capture_output=True, text=True, check=False
    ).stdout.split()
    return sources[:1]


def _trim(root: Path) -> None:
    version = subprocess.run(
        ["chroot", root, "python3", "-c", "import sys; print(*sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    if tuple(map(int, version)) < OLDEST_PYTHON:
        raise NotAvailable(f"Debian {release()} has Python {'.'.join(version)}, 3.11 is needed; give a base with BASE=")
    for folder in UNNEEDED:
        for each in (root / folder).glob("*"):
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()


def _run(*words: str | Path) -> None:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["it printed nothing"])[-1]
        raise NotAvailable(f"making a base image failed ({last}); give one with BASE=, or reach a registry")
