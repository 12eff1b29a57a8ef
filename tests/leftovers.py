"""Where the clusters of tests lie, and the end of those whose test process was killed."""

import os
import re
import tempfile
from pathlib import Path

import psutil
import pytest

from instaslice.local.cluster import Cluster

HOME = Path(tempfile.gettempdir()) / f"instaslice-tests-{os.getuid()}"
"""Apart from the user's own."""
RECORDS = ("instaslice/clusters/*/cluster.json", "*/instaslice/clusters/*/cluster.json")
"""Below HOME itself, and below the homes in it that tests give to what they start."""


def own(name: str) -> str:
    """A name, of a cluster or a folder below HOME, that says whose it is."""
    return f"t{os.getpid()}-{name}"


def remove() -> None:
    """Every cluster below HOME whose test process is gone."""
    for record in [found for pattern in RECORDS for found in HOME.glob(pattern)]:
        owner = re.search(r"/t(\d+)-", str(record))
        if owner and not psutil.pid_exists(int(owner[1])):
            down(record)


def down(record: Path) -> None:
    """End the cluster with this record, in whatever state home it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(record.parents[3]))
        Cluster(record.parent.name).down()
