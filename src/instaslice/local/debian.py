"""Programs from Debian packages: unpacked into the cache, never installed on the machine.

runc needs a C compiler and libseccomp to build, and busybox is not written in Go: for these two the distribution's
packages are the simplest source that is kept up to date.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from instaslice.local import layout
from instaslice.local.errors import NotAvailable

PACKAGES = {"runc": ("runc", "usr/sbin/runc"), "busybox": ("busybox-static", "bin/busybox")}
"""Program → package, and its path in the package."""


def unpack(programs: Sequence[str], target: Path) -> None:
    """Make sure that `target` holds every program. Raises NotAvailable in one line."""
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
                # Debian has moved /bin into /usr: the package may have either.
                found = next(
                    each for each in (here / package / inside, here / package / "usr" / inside) if each.exists()
                )
                found.replace(target / name)


def _fetch(packages: list[str], here: Path) -> None:
    """Download from the machine's sources, but with our own lists and archives: the machine's may be empty or old."""
    for folder in ("lists/partial", "archives/partial"):
        (here / folder).mkdir(parents=True)
    options = [f"Dir::State::lists={here}/lists", f"Dir::Cache={here}", "APT::Sandbox::User="]
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    _run([*apt, "update"], here)
    _run([*apt, "download", *packages], here)


def _run(argv: list[str], here: Path) -> None:
    done = subprocess.run(argv, cwd=here, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
        raise NotAvailable(
            f"{argv[0]} failed ({output}); put runc and busybox into a folder and name it with --binaries"
        )
