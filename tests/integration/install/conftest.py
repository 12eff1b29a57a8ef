"""The chart on a real node, installed by real Helm: the image is built and imported, and our pods run it.

A real kubelet with containerd and an emulated GPU; Kubernetes has nothing of ours but the chart. The lines of
docs/local-cluster.md make it. Needs Linux and root.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import leftovers
import pytest
from helm import Helm, program
from versions import KUBERNETES

from instaslice.kube.client import Client
from instaslice.local import binaries
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster

ROOT = Path(__file__).parents[3]


def pytest_collection_modifyitems(items):
    if sys.platform != "linux" or os.geteuid() != 0:
        reason = pytest.mark.skip(reason="a real node needs Linux and root on this machine")
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(reason)


def built(name: str) -> Path:
    return binaries.locate((name,), Source(), KUBERNETES)[name]


@dataclass(frozen=True)
class Page:
    """The lines by which docs/local-cluster.md installs the chart, for a cluster and an archive of the tests."""

    cluster: str
    archive: Path
    home: Path

    def lines(self, first: str, last: str) -> str:
        """Those from the one that begins with `first` to the one that begins with `last`."""
        text = (ROOT / "docs" / "local-cluster.md").read_text()
        (block,) = re.findall(r"^### The chart on it\n.*?^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        commands = [each.removeprefix("$ ") for each in block.replace("\\\n", "").splitlines()]
        (start,) = (at for at, each in enumerate(commands) if each.startswith(first))
        (end,) = (at for at, each in enumerate(commands) if each.startswith(last))
        script = "\n".join(commands[start : end + 1])
        for written, ours in {
            "out/instaslice.tar": str(self.archive),
            "instaslice up chart": f"instaslice up {self.cluster} --kubernetes {KUBERNETES}",
            "clusters/chart": f"clusters/{self.cluster}",
            "~/.local/state": str(self.home),
            "~/.cache/instaslice/*/containerd-*/ctr": str(built("ctr")),
        }.items():
            script = script.replace(written, ours)
        return script

    def run(self, script: str, **variables: str) -> str:
        """What it prints, errors too."""
        path = f"{ROOT / '.venv' / 'bin'}:{built('kubectl').parent}:{program().parent}:{os.environ['PATH']}"
        argv = ["bash", "-euc", script]
        # The environment that runs this test is ready: `make` must not build it again, with pytest in it.
        ready = self.archive.with_name("ready")
        ready.touch()
        done = subprocess.run(
            argv,
            cwd=ROOT,
            env={**os.environ, "PATH": path, "MAKEFLAGS": f"READY={ready}", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=500,
        )
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout


@pytest.fixture(scope="package")
def page(state_home, tmp_path_factory):
    return Page(leftovers.own("install"), tmp_path_factory.mktemp("image") / "instaslice.tar", state_home)


@pytest.fixture(scope="package")
def variables(page):
    """The cluster of the page, with the image on its real node; what its variables are then."""
    try:
        names = ("IMG", "KUBECONFIG", "HOST", "PORT")
        printed = page.run(page.lines("IMG=", "PORT=") + "".join(f'\necho "{name}=${name}"' for name in names))
        yield dict(line.split("=", 1) for line in printed.splitlines()[-len(names) :])
    finally:
        Cluster(page.cluster).down()


@pytest.fixture(scope="package")
def image(variables):
    """The name of the image of this tree."""
    return variables["IMG"]


@pytest.fixture(scope="package")
def node(page, image):
    """Kubernetes alone, with the image on its real node; "next" is another tag of it."""
    made = Cluster(page.cluster)
    made.real_node().tag_image(image, f"{image.rpartition(':')[0]}:next")
    return made


@pytest.fixture
def helm(node):
    return Helm(node.kubeconfig)


@pytest.fixture
def settings(variables):
    """Values for this cluster, which has no kube-proxy: pods reach the API server over the bridge."""
    repository, _, tag = variables["IMG"].rpartition(":")
    return (
        f"image.repository={repository}",
        f"image.tag={tag}",
        "image.pullPolicy=Never",
        "agent.emulated.enabled=true",
        f"apiServer.host={variables['HOST']}",
        f"apiServer.port={variables['PORT']}",
        "namespace.create=true",
    )


@pytest.fixture
async def client(node):
    async with await Client.connect(node.kubeconfig, rate=1000, burst=1000) as made:
        yield made
