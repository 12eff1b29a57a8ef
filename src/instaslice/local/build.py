"""Build programs from a pinned Go module, once, however many callers there are.

The build runs in a scratch directory beside the target and is moved there when it is complete: an interrupted build
leaves nothing that looks like a program. A file lock makes a second caller wait for the result of the first.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from instaslice.local import components, golang, layout
from instaslice.local.components import Module
from instaslice.local.errors import NotAvailable
from instaslice.local.progress import ConsoleProgress, Progress

MODULES = Path(__file__).parent / "modules"
DISK_NEEDED = 700 << 20
"""Bytes that the programs of a cluster take."""
BUILD_DISK_NEEDED = 6 << 30
"""Bytes that Go's own caches take while the largest module is built."""
FEW_PACKAGES = 50
"""With fewer packages left to compile, Go's cache already holds most and needs no more room."""


def build(module: Module, commands: Sequence[str], target: Path, step: str = "") -> None:
    """Make sure that `target` holds every program in `commands`. Raises NotAvailable in one line."""
    with layout.lock(target.with_name(f".{target.name}.lock")):
        missing = [name for name in commands if not (target / name).exists()]
        if not missing:
            return
        for stale in target.parent.glob(f".{target.name}-*"):
            shutil.rmtree(stale, ignore_errors=True)
        _check_disk(target.parent, DISK_NEEDED, "set XDG_CACHE_HOME to a place with more room")
        source = MODULES / module.directory
        if not source.is_dir():
            pinned = sorted(each.name for each in MODULES.iterdir())
            raise NotAvailable(f"{module.name} {module.version} is not pinned here (pinned: {', '.join(pinned)})")
        go = golang.find(_go_directive(source))
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
            with ConsoleProgress(f"{step}building {module.name} {module.version}: {', '.join(missing)}") as progress:
                _compile(go, source, module, missing, Path(scratch), progress)
            target.mkdir(exist_ok=True)
            # The files before the programs: whoever finds the programs finds the files.
            if module.files:
                unpacked = _ask_go(go, source, module, "list", "-m", "-f", "{{.Dir}}", module.path)
                _copy(Path(unpacked), module.files, target)
            for name in missing:
                (Path(scratch) / name).replace(target / name)


def _compile(go: Path, source: Path, module: Module, commands: list[str], scratch: Path, progress: Progress) -> None:
    go_cache = Path(_ask_go(go, source, module, "env", "GOCACHE"))
    go_cache.mkdir(parents=True, exist_ok=True)
    packages = [module.package(name) for name in commands]
    total = _ask_go(go, source, module, "list", "-deps", "-f", "{{.Stale}}", *packages).count("true")
    if total > FEW_PACKAGES:
        _check_disk(go_cache, BUILD_DISK_NEEDED, "set GOCACHE and GOMODCACHE to a place with more room")
    linker = " ".join(["-s -w", *(f"-X {key}={value}" for key, value in module.stamp.items())])
    # A single package may not have the name of its program (etcd's is `server`), so the output is a file; several
    # packages are written to a directory under their own names.
    output = scratch / commands[0] if len(commands) == 1 else scratch
    output_lines: deque[str] = deque(maxlen=50)
    compiler = subprocess.Popen(
        [go, "build", "-v", "-ldflags", linker, "-o", f"{output}{'' if len(commands) == 1 else os.sep}", *packages],
        cwd=source,
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert compiler.stderr is not None
        for done, line in enumerate(compiler.stderr, start=1):
            output_lines.append(line.rstrip())
            progress.step(min(done, total), total)
        code = compiler.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(compiler.pid, signal.SIGKILL)
        compiler.wait()
    if code:
        raise _failure(module, list(output_lines))


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOAMD64": components.cpu_level(),
        "GOROOT": "",  # may be set for another Go than the one found
        "GOWORK": "off",
        # More memory for less time: a tenth of the build on two cores.
        "GOGC": os.environ.get("GOGC", "400"),
    }


def _ask_go(go: Path, source: Path, module: Module, *arguments: str) -> str:
    argv = [str(go), *arguments]
    done = subprocess.run(argv, cwd=source, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise _failure(module, done.stderr.splitlines())
    return done.stdout.strip()


def _copy(source: Path, files: Sequence[str], target: Path) -> None:
    """Contents only: Go's own copies are read-only, folders too."""
    for file in files:
        place = source / file
        for each in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if each.is_file():
                copy = target / each.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(each, copy)


def _failure(module: Module, lines: list[str]) -> NotAvailable:
    lines = [line.strip() for line in lines if line.strip() and not line.startswith("go: downloading")]
    last = lines[-1] if lines else "go printed nothing"
    full = next((line for line in lines if "no space left" in line), None)
    if full:
        return NotAvailable(f"building {module.name} {module.version}: the disk is full ({full}); make room")
    return NotAvailable(f"building {module.name} {module.version} failed ({last}); {golang.REMEDY}")


def _check_disk(directory: Path, needed: int, remedy: str) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise NotAvailable(
            f"{directory}: {free / 2**30:.1f} GiB free, {needed / 2**30:.1f} GiB needed for the build; {remedy}"
        )


def _go_directive(source: Path) -> tuple[int, ...]:
    found = re.search(r"^go (\S+)$", (source / "go.mod").read_text(), re.MULTILINE)
    assert found, f"{source}/go.mod names no Go version"
    return tuple(int(part) for part in found.group(1).split("."))
