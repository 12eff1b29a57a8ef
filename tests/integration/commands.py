"""Our commands as a user types them."""

import asyncio
import subprocess
import sys


async def instaslice(kubeconfig, *words):
    """The command as a user types it: its exit code and what it prints."""
    command = [sys.executable, "-m", "instaslice.cli", *words, "--kubeconfig", str(kubeconfig)]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
