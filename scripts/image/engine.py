"""What builds images on this machine: docker, podman or buildah; on Debian, root gets buildah by itself.

The three understand the same `build` flags. Only what they call differently is here.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from instaslice.local.errors import NotAvailable

APT_PACKAGES = ("buildah", "debootstrap")
PULL_SECONDS = 120
"""A machine that reaches no registry may have its packets dropped instead of refused."""
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Engine:
    """One of the three, by name."""

    name: str

    @property
    def environment(self) -> Mapping[str, str]:
        if self.name != "buildah":
            return os.environ
        # The storage and the isolation that work everywhere, in a container and without systemd too.
        return {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot", **os.environ}

    def build(self, image: str, context: Path, base: str, secrets: Mapping[str, Path]) -> None:
        """Raises NotAvailable; what the engine prints goes to the terminal."""
        self._run("build", "--tag", image, *self._build_flags(context, base, secrets), str(context))

    def build_platforms(
        self, image: str, context: Path, platforms: str, base: str | None, secrets: Mapping[str, Path]
    ) -> None:
        """One name for several platforms. docker can only push the result; the others keep it as a manifest list."""
        flags = [*self._build_flags(context, base, secrets), "--platform", platforms, str(context)]
        if self.name == "docker":
            self._run("buildx", "build", "--push", "--tag", image, *flags)
        else:
            self.free_name(image)
            self._run("build", "--manifest", image, *flags)

    def push(self, image: str) -> None:
        """An image of one or of several platforms."""
        if self.name != "docker" and self._succeeds(["manifest", "exists", image]):
            self._run("manifest", "push", "--all", image, f"docker://{image}")
        else:
            self._run("push", image)

    def save(self, image: str, archive: Path) -> None:
        """As a file in the format of `docker save`, which every runtime imports."""
        if self.name == "buildah":
            self._run("push", "--quiet", image, f"docker-archive:{archive}:{image}")
        else:
            form = ["--format", "docker-archive"] if self.name == "podman" else []
            self._run("save", *form, "--output", str(archive), image)

    def remove(self, image: str) -> None:
        self._run("rmi", image)

    def has(self, image: str) -> bool:
        return self._inspect(image) is not None

    def pull(self, image: str) -> bool:
        """Whether it is here now."""
        if self.has(image):
            return True
        try:
            done = subprocess.run(
                [self.name, "pull", image], env=self.environment, capture_output=True, check=False, timeout=PULL_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def layers(self, image: str) -> list[str]:
        """The digests of its layers, lowest first."""
        found = self._inspect(image)
        if found is None:
            raise NotAvailable(f"{self.name} has no image {image}")
        return list(found["OCIv1"]["rootfs"]["diff_ids"] if self.name == "buildah" else found[0]["RootFS"]["Layers"])

    def load_root(self, image: str, tarball: Path) -> None:
        """Make an image with one layer of a root filesystem."""
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        if self.name == "buildah":
            container = self._output("from", "scratch").strip()
            try:
                self._run("add", "--quiet", container, str(tarball), "/")
                self._run("config", "--env", path, container)
                self._run("commit", "--quiet", container, image)
            finally:
                self._run("rm", container)
        else:
            self._run("import", "--change", f"ENV {path}", str(tarball), image)

    def free_name(self, image: str) -> None:
        # A build adds its images to a list that exists, behind those of the build before, which nodes would then take;
        # and it refuses a name that an image of one platform has.
        if self._succeeds(["manifest", "exists", image]):
            self._run("manifest", "rm", image)
        elif self.has(image):
            self.remove(image)

    def _build_flags(self, context: Path, base: str | None, secrets: Mapping[str, Path]) -> list[str]:
        arguments = [f"BASE={base}"] if base else []
        if self.name == "docker":
            # The others hand them over by themselves. Names only: the values come from our environment.
            arguments += [name for name in PROXIES if name in os.environ]
        return [
            *("--file", str(context / "Dockerfile")),
            *(word for each in arguments for word in ("--build-arg", each)),
            *(word for name, file in secrets.items() for word in ("--secret", f"id={name},src={file}")),
        ]

    def _succeeds(self, words: Sequence[str]) -> bool:
        return (
            subprocess.run([self.name, *words], env=self.environment, capture_output=True, check=False).returncode == 0
        )

    def _inspect(self, image: str) -> dict | list | None:
        form = ["inspect", "--type", "image"] if self.name == "buildah" else ["image", "inspect"]
        done = subprocess.run(
            [self.name, *form, image], env=self.environment, capture_output=True, text=True, check=False
        )
        return json.loads(done.stdout) if done.returncode == 0 else None

    def _output(self, *words: str) -> str:
        return subprocess.run(
            [self.name, *words], env=self.environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    def _run(self, *words: str) -> None:
        # Its output is for people: our own standard output holds only what we print.
        done = subprocess.run([self.name, *words], env=self.environment, stdout=2, check=False)
        if done.returncode:
            raise NotAvailable(f"{self.name} {words[0]} failed with exit code {done.returncode}; it says why above")


def find() -> Engine:
    """The first that works. A docker client without its daemon does not."""
    for name, works in {"docker": ["info"], "podman": ["info"], "buildah": ["version"]}.items():
        if shutil.which(name) and _quiet([name, *works]):
            return Engine(name)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NotAvailable(
            "no container engine: install docker, podman or buildah (on Debian root gets buildah by itself)"
        )
    install(APT_PACKAGES)
    return Engine("buildah")


def install(packages: Sequence[str]) -> None:
    """From the machine's Debian, for good."""
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]
    print(f"installing {' and '.join(packages)} with apt-get", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--no-install-recommends", *packages]):
        done = subprocess.run([*apt, "--yes", *words], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise NotAvailable(f"apt-get {words[0]} failed ({last}); install {' and '.join(packages)} yourself")


def _quiet(words: Sequence[str]) -> bool:
    try:
        return subprocess.run(words, capture_output=True, check=False, timeout=30).returncode == 0
    except subprocess.TimeoutExpired:
        return False
