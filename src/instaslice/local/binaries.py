"""Where the programs of a cluster come from.

In this order: a folder that the user names, `KUBEBUILDER_ASSETS`, the cache, and then a download (if requested) or a
build. Only what is needed is downloaded or built: a cluster of emulated nodes needs no kubelet.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from instaslice.errors import BadInput
from instaslice.local import build, components, debian, download, layout
from instaslice.local.errors import NotAvailable

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "kwok")
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
HELM = ("helm",)


def needed(*, real_node: bool, kueue: bool, helm: bool = False) -> list[str]:
    """The programs of a cluster with these parts, and no others."""
    return [*CONTROL_PLANE, *(NODE if real_node else ()), *(KUEUE if kueue else ()), *(HELM if helm else ())]


@dataclass(frozen=True)
class Source:
    """Where the user wants programs to come from."""

    folder: Path | None = None
    download: bool = False
    download_from: str | None = None

    def __post_init__(self) -> None:
        if self.folder and not self.folder.is_dir():
            raise BadInput(f"--binaries {self.folder}: no such folder")
        if self.download_from and not self.download:
            raise BadInput("--download-from needs --download")


def locate(names: Sequence[str], source: Source, kubernetes: str = components.KUBERNETES) -> dict[str, Path]:
    """The path of every program, downloaded or built if it is missing. Raises BadInput or NotAvailable in one line."""
    if kubernetes not in components.KUBERNETES_VERSIONS and not source.download:
        known = ", ".join(components.KUBERNETES_VERSIONS)
        raise BadInput(f"Kubernetes {kubernetes} is not pinned here: choose {known}, or any with --download")
    given = {name: path for name in names if (path := _given(name, source))}
    groups = _groups([name for name in names if name not in given], kubernetes)
    incomplete = [group for group in groups if not group.complete]
    for step, group in enumerate(incomplete, start=1):
        group.obtain(source, f"[{step}/{len(incomplete)}] ")
    return given | {name: group.folder / name for group in groups for name in group.programs}


def missing(names: Sequence[str], source: Source, kubernetes: str = components.KUBERNETES) -> list[str]:
    """The programs that `locate` would have to download or build."""
    groups = _groups([name for name in names if not _given(name, source)], kubernetes)
    return [name for group in groups for name in group.programs if not (group.folder / name).exists()]


def _given(name: str, source: Source) -> Path | None:
    """The program in a folder that the user named: the flag takes precedence over the variable."""
    folders = [source.folder, os.environ.get("KUBEBUILDER_ASSETS")]
    paths = (Path(folder).absolute() / name for folder in folders if folder)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


@dataclass(frozen=True)
class _Group:
    """Programs that share a folder of the cache: those of one Go module, or, without a module, Debian's."""

    folder: Path
    programs: list[str]
    module: components.Module | None = None

    @property
    def complete(self) -> bool:
        return all((self.folder / name).exists() for name in self.programs)

    def obtain(self, source: Source, step: str) -> None:
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotAvailable(
                f"{self.folder.parent}: cannot be created ({error.strerror}); set XDG_CACHE_HOME"
            ) from error
        if self.module is None:
            debian.unpack(self.programs, self.folder)
        elif source.download and download.available(self.module):
            download.download(self.module, self.programs, self.folder, source.download_from, step)
        else:
            build.build(self.module, self.programs, self.folder, step)


def _groups(names: Sequence[str], kubernetes: str) -> list[_Group]:
    base = layout.cache() / components.platform_directory()
    by_module = [
        _Group(base / module.directory, [name for name in names if name in module.commands], module)
        for module in components.modules(kubernetes)
    ]
    packaged = _Group(base / "debian", [name for name in names if name in debian.PACKAGES])
    return [group for group in (*by_module, packaged) if group.programs]
