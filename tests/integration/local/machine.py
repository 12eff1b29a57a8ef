"""What a cluster could leave on a machine: processes, mounts, links, cgroups, namespaces, folders."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import psutil

from instaslice.local.cluster import Cluster
from instaslice.local.process import CLUSTER_VARIABLE

FIXED = ("/var/lib/kubelet", "/var/lib/cni", "/etc/cni", "/run/containerd", "/run/netns", "/var/log/pods")
"""Where a kubelet or a container runtime would leave things if it were not kept apart."""


CGROUPS = ("instaslice", "kube", "containerd", "cri-")
"""In the names of cgroups that a cluster, or a kubelet that is not kept apart, would make. Others come and go."""


def snapshot() -> dict[str, set[str]]:
    """Everything of that kind on this machine, to be compared before and after: see `blocks.MACHINE`."""
    return {
        "mounts": set(Path("/proc/self/mounts").read_text().splitlines()),
        "links": {entry.name for entry in Path("/sys/class/net").iterdir()},
        "cgroups": {path for path, _, _ in os.walk("/sys/fs/cgroup") if any(name in path for name in CGROUPS)},
        "folders": {path for path in FIXED if Path(path).exists()},
    }


def processes_of(*roots: Path) -> list[str]:
    """Processes that carry the mark of one of these clusters or run a program with its path on the command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = " ".join(process.cmdline())
            if any(process.environ().get(CLUSTER_VARIABLE) == str(root) or str(root) in words for root in roots):
                found.append(f"{process.pid} {words}")
    return found


def kill_everything(cluster: Cluster) -> None:
    """SIGKILL to every process that carries the cluster's mark; some end with another before their turn."""
    for process in cluster.processes.strays():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def wait_for_start(cluster: Cluster, component: str, starting: subprocess.Popen[bytes]) -> None:
    """Until `starting`, which brings the cluster up, has started that component, or has ended."""
    while component not in cluster.components() and starting.poll() is None:
        # Often enough to meet the moment, and seldom enough to leave the core to what is waited for.
        time.sleep(0.002)
