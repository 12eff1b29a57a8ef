"""The components of a local cluster: every version that this project pins outside Python.

A component is a Go module of its own under `modules/` (their dependencies clash), or a Debian package.
Change a version here and run `make generate`: it updates the module's `go.mod` and `go.sum`.
"""

import os
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

KUBERNETES = "1.37.1"
"""The Kubernetes that `instaslice up` starts by default."""

KUBERNETES_VERSIONS = (KUBERNETES, "1.36.4")
"""The versions whose modules are pinned in this repository."""

X86_64_V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
"""The CPU flags of x86-64-v3, as Linux names them."""


@dataclass(frozen=True)
class Module:
    """One pinned Go module and the commands that are built from it."""

    name: str
    path: str
    version: str
    commands: dict[str, str] = field(hash=False)
    """Binary name → package, relative to the module (`""` for its root)."""
    stamp: dict[str, str] = field(default_factory=dict, hash=False)
    """Linker variables that carry the version (`-X key=value`)."""
    files: tuple[str, ...] = ()
    """Files and folders of the module that are copied beside its programs."""
    staged: bool = False
    """Kubernetes: its staging modules are required at v0.0.0 and need a `replace` each."""

    @property
    def directory(self) -> str:
        return f"{self.name}-{self.version}"

    def package(self, command: str) -> str:
        relative = self.commands[command]
        return f"{self.path}/{relative}" if relative else self.path


def kubernetes(version: str) -> Module:
    major, minor, _ = version.split(".")
    stamp = "k8s.io/component-base/version"
    programs = ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "kubelet")
    return Module(
        name="kubernetes",
        path="k8s.io/kubernetes",
        version=version,
        commands={name: f"cmd/{name}" for name in programs},
        stamp={f"{stamp}.gitVersion": f"v{version}", f"{stamp}.gitMajor": major, f"{stamp}.gitMinor": minor},
        staged=True,
    )


ETCD = Module("etcd", "go.etcd.io/etcd/server/v3", "3.7.3", {"etcd": ""})
KWOK = Module(
    "kwok",
    "sigs.k8s.io/kwok",
    "0.8.0",
    {"kwok": "cmd/kwok"},
    {"sigs.k8s.io/kwok/pkg/consts.Version": "v0.8.0"},
)
CONTAINERD = Module(
    "containerd",
    "github.com/containerd/containerd/v2",
    "2.4.2",
    {name: f"cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
    {"github.com/containerd/containerd/v2/version.Version": "2.4.2"},
)
CNI = Module(
    "cni",
    "github.com/containernetworking/plugins",
    "1.9.1",
    {"bridge": "plugins/main/bridge", "loopback": "plugins/main/loopback", "host-local": "plugins/ipam/host-local"},
)
KUEUE = Module(
    "kueue",
    "sigs.k8s.io/kueue",
    "0.18.4",
    {"kueue": "cmd/kueue"},
    {"sigs.k8s.io/kueue/pkg/version.GitVersion": "v0.18.4"},
    files=tuple(
        f"config/components/{part}"
        for part in ("crd/bases", "crd/kustomization.yaml", "rbac/role.yaml", "webhook/manifests.yaml")
    ),
)
HELM = Module(
    "helm",
    "helm.sh/helm/v4",
    "4.3.1",
    {"helm": "cmd/helm"},
    {"helm.sh/helm/v4/internal/version.version": "v4.3.1"},
)


@cache
def modules(kubernetes_version: str = KUBERNETES) -> tuple[Module, ...]:
    return (kubernetes(kubernetes_version), ETCD, KWOK, CONTAINERD, CNI, KUEUE, HELM)


def platform() -> str:
    """This machine as Go names it: `linux-amd64`."""
    uname = os.uname()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(uname.machine, uname.machine)
    return f"{uname.sysname.lower()}-{machine}"


def cpu_level(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What the CPU supports, as a value of GOAMD64. A cluster built for v3 needs a twentieth less CPU than for v1."""
    try:
        flags = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        return "v1"
    return "v3" if flags and set(flags[1].split()) >= X86_64_V3 else "v1"


def platform_directory() -> str:
    """The folder of the cache for programs that run on this machine: `linux-amd64`, or `linux-amd64-v3`."""
    level = cpu_level()
    return platform() if level == "v1" else f"{platform()}-{level}"
