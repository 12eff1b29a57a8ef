"""`up --download` from a mirror on loopback that has the official release servers' layout and the real programs."""

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from instaslice.local import binaries, components
from instaslice.local.binaries import Source
from instaslice.local.download import release


@pytest.fixture
def mirror(tmp_path, serve):
    """The control plane's programs as their projects publish them, each with its checksum."""
    root = tmp_path / "mirror"
    programs = binaries.locate(binaries.CONTROL_PLANE, Source())
    for module in components.modules()[:2]:
        for name in (each for each in module.commands if each in programs):
            wanted = release(module, name)
            file = root / wanted.path
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.name.endswith(".tar.gz"):
                with tarfile.open(file, "w:gz", compresslevel=1) as tar:
                    tar.add(programs[name], arcname=f"release/{name}")
            else:
                file.symlink_to(programs[name])
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            (root / wanted.checksum).write_text(f"{digest}  {file.name}\n" if "SUMS" in wanted.checksum else digest)

    # kwok's project publishes no checksums, so it is built; here it comes from a folder, to save the time.
    return serve(root), programs["kwok"].parent


def test_a_cluster_of_downloaded_programs(mirror, tmp_path, new_cluster):
    address, kwok = mirror
    cache = tmp_path / "cache"
    cluster = new_cluster("mirror")
    done = subprocess.run(
        [sys.executable, "-m", "instaslice.cli", "up", cluster.name, "--download", "--download-from", address],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "KUBEBUILDER_ASSETS": str(kwok)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "building" not in done.stderr
    used = cluster.record().programs
    downloaded = {name for name, path in used.items() if Path(path).is_relative_to(cache)}
    assert downloaded == set(binaries.CONTROL_PLANE) - {"kwok"}
    assert all(cluster.components().values())
