"""What a newcomer types first."""

import os
import re
import subprocess
import sys


def test_the_demo_follows_a_pod_to_its_end_and_leaves_nothing(tmp_path):
    # A state home of its own; the programs come from the user's cache.
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "instaslice.cli", "demo"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told = re.findall(r"pod sample: (.+)", done.stdout)
    assert (told[0], told[-1]) == ("gated", "Succeeded on gpu-0")
    assert done.stdout.rstrip().endswith("the cluster is gone again")
    assert not list(tmp_path.glob("instaslice/clusters/*/cluster.json"))
