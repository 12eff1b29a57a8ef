"""Where the programs of a cluster come from.

In this order: a folder that the user names, `KUBEBUILDER_ASSETS`, the cache, and then a download (when asked for) or
a build. Only what is asked for is fetched or built: a cluster of emulated nodes needs no kubelet.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from instaslice.errors import BadInput
from instaslice.local import build, components, debian, download, layout
from instaslice.local.errors import NotAvailable

PLANE = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "kwok")
NODE = (
    "kubelet",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "bridge",
    "loopback",
    "host-local",
    "runc",
    "busybox",
)
KUEUE = ("kueue",)


def needed(*, real_node: bool, kueue: bool) -> list[str]:
    """The programs of a cluster with these parts, and no others."""
    return [*PLANE, *(NODE if real_node else ()), *(KUEUE if kueue else ())]


@dataclass(frozen=True)
class Source:
    """How the user wants programs to be found."""

    folder: Path | None = None
    download: bool = False
    download_from: str | None = None

    def __post_init__(self) -> None:
        if self.folder and not self.folder.is_dir():
            raise BadInput(f"--binaries {self.folder}: no such folder")
        if self.download_from and not self.download:
            raise BadInput("--download-from needs --download")


def locate(names: Sequence[str], source: Source, kubernetes: str = components.KUBERNETES) -> dict[str, Path]:
    """A path for every program, fetched or built where it must be. Raises BadInput or NotAvailable in one line."""
    if kubernetes not in components.KUBERNETES_VERSIONS and not source.download:
        known = ", ".join(components.KUBERNETES_VERSIONS)
        raise BadInput(f"Kubernetes {kubernetes} is not pinned here: choose {known}, or any with --download")
    found = {name: path for name in names if (path := _given(name, source))}
    missing = [name for name in names if name not in found]
    for home, wanted, module in _homes(missing, kubernetes):
        if not all((home / name).exists() for name in wanted):
            _make_room_for(home)
            if module is None:
                debian.unpack(wanted, home)
            elif source.download and download.available(module):
                download.download(module, wanted, home, source.download_from)
            else:
                build.build(module, wanted, home)
        found.update({name: home / name for name in wanted})
    return found


def _given(name: str, source: Source) -> Path | None:
    """In a folder that was named for us, the flag before the variable."""
    folders = [source.folder, os.environ.get("KUBEBUILDER_ASSETS")]
    places = (Path(folder).absolute() / name for folder in folders if folder)
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _homes(names: Sequence[str], kubernetes: str) -> list[tuple[Path, list[str], components.Module | None]]:
    """The programs by the cache folder that holds them: one a module and version, one for Debian's."""
    base = layout.cache() / components.home()
    homes: list[tuple[Path, list[str], components.Module | None]] = []
    for module in components.modules(kubernetes):
        wanted = [name for name in names if name in module.commands]
        if wanted:
            homes.append((base / module.directory, wanted, module))
    packaged = [name for name in names if name in debian.PACKAGES]
    if packaged:
        homes.append((base / "debian", packaged, None))
    return homes


def _make_room_for(home: Path) -> None:
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotAvailable(f"{home.parent}: cannot be made ({error.strerror}); set XDG_CACHE_HOME") from error
