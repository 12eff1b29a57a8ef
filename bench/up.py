"""How long `instaslice up` takes when its programs are there: to an API server that is ready and nodes that are Ready.

Each round starts a new cluster through the command line, as a user does, and removes it. The median counts; the range
shows the noise of the machine.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 5


def seconds(*words: str) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "instaslice.cli", *words], check=True, capture_output=True)
    return time.monotonic() - began


def measure(*flags: str) -> tuple[list[float], list[float]]:
    ups, downs = [], []
    for _ in range(ROUNDS):
        try:
            ups.append(seconds("up", "bench", *flags))
        finally:
            downs.append(seconds("down", "bench"))
    return ups, downs


def main() -> None:
    subprocess.run([sys.executable, "-m", "instaslice.cli", "fetch"], check=True, stdout=subprocess.DEVNULL)
    result = {}
    with tempfile.TemporaryDirectory(prefix="isl-bench-") as home:
        os.environ["XDG_STATE_HOME"] = home
        for key, flags in {"warm_up_s": ("--nodes", "2"), "warm_up_100_nodes_s": ("--nodes", "100")}.items():
            ups, downs = measure(*flags)
            print(f"{' '.join(flags)}: up {min(ups):.1f} to {max(ups):.1f} s, down {statistics.median(downs):.1f} s")
            result[key] = statistics.median(ups)
            result["down_s"] = statistics.median(downs)
    print("RESULT", *(f"{key}={value:.1f}" for key, value in result.items()))


if __name__ == "__main__":
    main()
