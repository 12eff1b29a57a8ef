"""Commands of the machine that a real node and Kueue need."""

import shutil
import subprocess

from instaslice.local.errors import LocalError


def tool(name: str) -> str:
    """The path of a command. Raises LocalError with the packages that contain it."""
    found = shutil.which(name)
    if found is None:
        raise LocalError(f"the command {name} is needed for this; install util-linux and iproute2 (Linux only)")
    return found


def run(command: str, *arguments: str) -> str:
    """Run a command and return its output. Raises LocalError with its error output."""
    done = subprocess.run([tool(command), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"{command} {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
