"""Helm on our chart, for tests."""

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from instaslice.local import helm
from instaslice.local.binaries import Source

CHART = Path(__file__).parents[1] / "charts" / "instaslice"
NAMESPACE = "instaslice-system"
RELEASE = "instaslice"


@cache
def program() -> Path:
    return helm.find(Source())


class HelmFailed(Exception):
    """Helm ended with an error; the text is what it said."""


@dataclass(frozen=True)
class Helm:
    """Without a kubeconfig it renders, and asks no cluster."""

    kubeconfig: Path | None = None
    chart: Path = CHART
    namespace: str = NAMESPACE

    def run(self, *arguments: str, timeout: float = 300) -> str:
        argv = [program(), *arguments, f"--namespace={self.namespace}"]
        env = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
        argv += [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout, env=env)
        if done.returncode:
            raise HelmFailed(done.stderr.strip() + "\n" + done.stdout)
        return done.stdout

    def template(self, *settings: str, flags: tuple[str, ...] = ()) -> list[dict]:
        """What the chart makes of these values (`agent.gpus=0`)."""
        text = self.run("template", RELEASE, str(self.chart), *_set(settings), *flags)
        return [document for document in yaml.safe_load_all(text) if document]

    def install(self, *settings: str, flags: tuple[str, ...] = ()) -> str:
        """Install or upgrade, and wait until all of it is ready."""
        wait = ("--install", "--wait", "--timeout=180s", "--create-namespace")
        return self.run("upgrade", RELEASE, str(self.chart), *wait, *_set(settings), *flags)


def _set(settings: tuple[str, ...]) -> list[str]:
    # A tag may look like a number.
    return [f"--set{'-string' if each.startswith('image.tag=') else ''}={each}" for each in settings]


def find(documents: list[dict], kind: str, name: str, namespace: str | None = None) -> dict:
    """The one document of that kind and name, in that namespace if one is given."""
    found = [each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    (one,) = (each for each in found if namespace in (None, each["metadata"].get("namespace")))
    return one
