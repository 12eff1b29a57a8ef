"""Helm, which installs the chart: the machine's if it is recent enough, otherwise the one that we build."""

import re
import shutil
import subprocess
from pathlib import Path

from instaslice.local import binaries

OLDEST = (3, 17)
"""Before, it could not take over a namespace that it has just created (`--take-ownership`)."""


def find(source: binaries.Source) -> Path:
    """Raises NotAvailable where there is none and it cannot be built."""
    machine = shutil.which("helm")
    if machine and version(Path(machine)) >= OLDEST:
        return Path(machine)
    return binaries.locate(binaries.HELM, source)["helm"]


def version(helm: Path) -> tuple[int, ...]:
    output = subprocess.run([helm, "version", "--short"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", output)
    return tuple(int(part) for part in found.groups()) if found else (0,)


if __name__ == "__main__":
    print(find(binaries.Source()))
