"""A real kubelet with containerd on this machine, isolated from the machine's own.

Both run in a PID and a mount namespace that one idle process holds open: when the holder ends, the kernel ends every
process in it (including shims and containers) and removes every mount. Inside, `/var/lib`, `/run` and `/var/log` are
the cluster's own: the kubelet's device-plugin socket is fixed at /var/lib/kubelet/device-plugins, and this allows two
real nodes on one machine. The network is the machine's, with a bridge of the cluster; pods run in a cgroup of the
cluster. `remove` deletes the bridge and the cgroup, which belong to no process.
"""

import ipaddress
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from instaslice.local import cgroups, forwarder, images, system
from instaslice.local.errors import LocalError
from instaslice.local.layout import Layout
from instaslice.local.network import Network
from instaslice.local.pki import Authority
from instaslice.local.process import Processes

NAME = "real-0"
HOLDER = "node"
AGENT = "instaslice-node-agent"
FORWARDER = "api-forwarder"
COVERED = {"lib": "/var/lib", "run": "/run", "log": "/var/log"}
"""Folder of the node → what it is mounted over. All three exist on every Linux, so nothing is created outside."""
MAX_SOCKET_PATH = 107
"""Linux limits the path of a Unix socket to this many bytes."""


@dataclass(frozen=True)
class RealNode:
    """One kubelet and its containerd, as command lines and files."""

    layout: Layout
    network: Network
    programs: Mapping[str, Path]
    port: int
    server: str
    server_port: int
    agent: tuple[str, ...] = ()
    """The command line of the agent that serves the node's GPUs, if any."""

    @property
    def home(self) -> Path:
        return self.layout.node

    @property
    def socket(self) -> Path:
        return self.home / "containerd.sock"

    @property
    def cgroup(self) -> str:
        return cgroup(self.layout)

    def start(self, processes: Processes) -> None:
        """Start what does not run yet. Raises LocalError or NotStarted in one line."""
        if not processes.find(HOLDER):
            # As after a boot: nothing runs in there, and what was only in memory is gone.
            for volatile in ("run", "containerd-state", "cdi"):
                shutil.rmtree(self.home / volatile, ignore_errors=True)
            self._ready_file.unlink(missing_ok=True)
        self._write_files()
        self.network.make()
        cgroups.make(self.cgroup)
        processes.start(FORWARDER, self._forwarder_command())
        processes.start(HOLDER, self._holder_command())
        processes.wait(HOLDER, self._ready_file.exists)
        processes.start("containerd", self._enter(processes, self.programs["containerd"], "--config", self._config))
        processes.wait("containerd", self._containerd_ready)
        self._import_images()
        processes.start("kubelet", self._enter(processes, self.programs["kubelet"], *self._kubelet_flags()))
        if self.agent:
            argv = self._enter(processes, *self.agent)
            if processes.argv(AGENT) != argv:
                processes.kill(AGENT)
            processes.start(AGENT, argv)

    def _forwarder_command(self) -> list[str]:
        return [sys.executable, "-m", forwarder.__name__, self.network.ip, str(self.server_port)]

    # The files -------------------------------------------------------------------------------------------------

    @property
    def _config(self) -> Path:
        return self.home / "containerd.toml"

    @property
    def _ready_file(self) -> Path:
        """Created by the holder when the namespaces are ready."""
        return self.home / "inside"

    def _write_files(self) -> None:
        for folder in (*COVERED, "bin", "cni", "cdi", "images", "lib/kubelet", "run/lock", "run/cdi"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        for name, path in self.programs.items():
            link = self.home / "bin" / name
            link.unlink(missing_ok=True)
            link.symlink_to(path)
        authority = Authority(self.layout.pki)
        authority.issue("kubelet", f"system:node:{NAME}", groups=("system:nodes",), addresses=(self.network.ip,))
        client = authority.issue("kubelet-client", f"system:node:{NAME}", groups=("system:nodes",))
        authority.kubeconfig(
            self.layout.pki / "kubelet.kubeconfig", server=self.server, client=client, name=self.layout.name
        )
        self._config.write_text(_containerd_config(self.home, self.socket, self.programs["runc"]))
        (self.home / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_config(), sort_keys=False))
        (self.home / "cni" / "10-bridge.conflist").write_bytes(msgspec.json.encode(self._cni_config()))

    def _kubelet_config(self) -> dict[str, object]:
        pki = self.layout.pki
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.network.ip,
            "port": self.port,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "tlsCertFile": str(pki / "kubelet.crt"),
            "tlsPrivateKeyFile": str(pki / "kubelet.key"),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "resolvConf": "",
            # The disk is the machine's: evict only when it is really full.
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "2s",
        }

    def _kubelet_flags(self) -> list[str]:
        return [
            f"--config={self.home / 'kubelet.yaml'}",
            f"--kubeconfig={self.layout.pki / 'kubelet.kubeconfig'}",
            "--root-dir=/var/lib/kubelet",
            f"--hostname-override={NAME}",
            f"--node-ip={self.network.ip}",
        ]

    def _cni_config(self) -> dict[str, object]:
        subnet = str(ipaddress.ip_interface(self.network.address).network)
        ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": self.network.bridge, "isGateway": True, "ipMasq": False, "ipam": ipam}
        return {"cniVersion": "1.0.0", "name": self.network.bridge, "plugins": [bridge, {"type": "loopback"}]}

    # The namespaces --------------------------------------------------------------------------------------------

    def _holder_command(self) -> list[str]:
        """Opens the namespaces, mounts over the machine's folders, reports that, and stays as PID 1 to reap orphans."""
        covers = " && ".join(f"mount --bind '{self.home / folder}' {target}" for folder, target in COVERED.items())
        script = f"{covers} && : > '{self._ready_file}' || exit 1\nsleep infinity &\nwait"
        isolate = ["--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
        return [system.tool("unshare"), *isolate, "/bin/sh", "-c", script]

    def _enter(self, processes: Processes, program: str | Path, *flags: str | Path) -> list[str]:
        holder = processes.find(HOLDER)
        inside = holder.children()[0].pid if holder else 0
        path = f"PATH={self.home / 'bin'}:{os.environ.get('PATH', os.defpath)}"
        nsenter = [system.tool("nsenter"), f"--target={inside}", "--mount", "--pid", "--"]
        return [*nsenter, "env", path, str(program), *map(str, flags)]

    def _containerd_ready(self) -> bool:
        return self.socket.exists() and self._ctr("version").returncode == 0

    def _import_images(self) -> None:
        done = self.home / "images" / "imported"
        if done.exists():
            return
        for archive in images.write(self.programs["busybox"], self.home / "images"):
            self.import_image(archive)
        done.touch()

    def import_image(self, archive: Path) -> None:
        """Give containerd an image from a file, under the name in it. Raises LocalError."""
        self._require(self._ctr("images", "import", str(archive)), f"import {archive}")

    def tag_image(self, name: str, also: str) -> None:
        """Give an image that containerd has another name too. Raises LocalError."""
        self._require(self._ctr("images", "tag", "--force", name, also), f"give {name} the name {also}")

    def _require(self, done: subprocess.CompletedProcess[str], what: str) -> None:
        if done.returncode:
            raise LocalError(f"containerd did not {what}: {done.stderr.strip().splitlines()[-1:]}")

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [str(self.programs["ctr"]), "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def remove(layout: Layout, network: Network | None) -> None:
    """Delete the bridge and the cgroup. Every process of the node must have ended; safe to repeat."""
    if network:
        network.remove()
    cgroups.remove(cgroup(layout))


def cgroup(layout: Layout) -> str:
    return f"instaslice-{layout.short_hash}"


def cdi(layout: Layout) -> Path:
    """Containerd's CDI folder: the same path inside and outside."""
    return layout.node / "cdi"


def check(layout: Layout) -> None:
    """Raises LocalError if this machine or this directory cannot have a real node."""
    if os.uname().sysname != "Linux" or os.geteuid() != 0:
        raise LocalError("--real-node needs Linux and root: it opens namespaces, mounts and a bridge of its own")
    if len(os.fsencode(layout.node / "lib/kubelet/device-plugins/kubelet.sock")) > MAX_SOCKET_PATH:
        raise LocalError(f"{layout.root} is too deep for the sockets of a real node; set XDG_STATE_HOME")
    for covered in COVERED.values():
        if layout.root.is_relative_to(covered):
            raise LocalError(f"{layout.root} is below {covered}, which the real node mounts over; set XDG_STATE_HOME")


def _containerd_config(home: Path, socket: Path, runc: Path) -> str:
    return f"""\
version = 3
root = "{home}/containerd"
state = "{home}/containerd-state"

[grpc]
  address = "{socket}"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{images.PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  # Ours, which has one path inside and outside, and the usual one, for an agent that is installed as on any node.
  cdi_spec_dirs = ["{home}/cdi", "/var/run/cdi"]
  # Without CAP_SYS_RESOURCE a container may not lower its score, and runc would fail.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  SystemdCgroup = false

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{home}/bin"]
  conf_dir = "{home}/cni"
"""
