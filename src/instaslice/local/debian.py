"""Programs that come as Debian packages: unpacked into the cache, nothing installed over the machine's own.

runc needs a C compiler and libseccomp to build, busybox is no Go at all: for these two the distribution's packages
are the simplest source that is kept up to date.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from instaslice.local import layout
from instaslice.local.errors import NotAvailable

PACKAGES = {"runc": ("runc", "usr/sbin/runc"), "busybox": ("busybox-static", "bin/busybox")}
"""Program → package, and where it lies in it."""


def unpack(programs: Sequence[str], target: Path) -> None:
    """See that `target` holds every program. Raises NotAvailable in one line."""
    with layout.lock(target.with_name(f".{target.name}.lock")):
        missing = [name for name in programs if not (target / name).exists()]
        if not missing:
            return
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise NotAvailable(
                f"{' and '.join(missing)}: this machine has no apt-get to fetch them with; "
                "put them into a folder and name it with --binaries"
            )
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
            here = Path(scratch)
            _fetch([PACKAGES[name][0] for name in missing], here)
            target.mkdir(exist_ok=True)
            for name in missing:
                package, inside = PACKAGES[name]
                archive = next(here.glob(f"{package}_*.deb"))
                _run(["dpkg-deb", "--extract", str(archive), str(here / package)], here)
                # Debian moves /bin into /usr: the package may have either.
                found = next(
                    each for each in (here / package / inside, here / package / "usr" / inside) if each.exists()
                )
                found.replace(target / name)


def _fetch(packages: list[str], here: Path) -> None:
    """Download with the machine's sources, but lists and archives of our own: the machine's may be empty or old."""
    for folder in ("lists/partial", "archives/partial"):
        (here / folder).mkdir(parents=True)
    apt = [
        "apt-get",
        "-qq",
        "-o",
        f"Dir::State::lists={here}/lists",
        "-o",
        f"Dir::Cache={here}",
        "-o",
        "APT::Sandbox::User=",
    ]
    _run([*apt, "update"], here)
    _run([*apt, "download", *packages], here)


def _run(argv: list[str], here: Path) -> None:
    done = subprocess.run(argv, cwd=here, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise NotAvailable(f"{argv[0]} failed ({said}); put runc and busybox into a folder and name it with --binaries")
