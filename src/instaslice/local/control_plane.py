"""The control plane: the command line of each component, and when it is ready.

Everything listens on loopback, uses TLS with a certificate of the cluster's own authority and is subject to RBAC. Only
the API server's connection to etcd is plain: a socket in the cluster's directory, which only its user may enter.
"""

import http.client
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from instaslice.kube.config import trusting
from instaslice.local.layout import Layout
from instaslice.local.pki import TOKENS, Authority, KeyFiles

SERVICE_RANGE = "10.96.0.0/16"

PORTS = (
    "kube-apiserver",
    "etcd",
    "etcd-peer",
    "kube-scheduler",
    "kube-controller-manager",
    "kwok",
    "kubelet",
    "kueue",
    "kueue-health",
    "instaslice-webhook",
    "instaslice-webhook-observe",
    "instaslice-controller-observe",
    "instaslice-agent-observe",
    "instaslice-node-agent-observe",
)
"""What a cluster reserves ports for, even for parts that it does not have: they may be added later."""

ADMIN = ("instaslice-admin", ("system:masters",))
CLIENTS = {
    "kube-scheduler": "system:kube-scheduler",
    "kube-controller-manager": "system:kube-controller-manager",
    "kwok": "instaslice:kwok",
    "kueue": "instaslice:kueue",
    "instaslice-webhook": "instaslice:webhook",
    "instaslice-controller": "instaslice:controller",
    "instaslice-agent": "instaslice:agent",
}
"""Program → the user that RBAC sees. They authenticate with tokens, as pods do: the API server checks the signature of
a certificate for every request."""

SERVING = ("kube-scheduler", "kube-controller-manager", "kwok", "kueue")
SOCKET = "unix://etcd.sock"
"""Relative, since programs start in the cluster's directory: the kernel limits the path to 107 characters. With TLS
etcd spends half as much CPU again on a burst of pods."""


@dataclass(frozen=True)
class ControlPlane:
    """What the command lines are built from."""

    layout: Layout
    ports: Mapping[str, int]
    programs: Mapping[str, Path]

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    @property
    def etcd(self) -> str:
        return f"https://127.0.0.1:{self.ports['etcd']}"

    def prepare(self) -> None:
        """Certificates and kubeconfigs. Safe to repeat; the kubeconfigs follow the ports."""
        authority = Authority(self.layout.pki)
        authority.issue("etcd", "etcd")
        authority.issue("kube-apiserver", "kube-apiserver")
        authority.issue("apiserver-to-kubelet", "instaslice-apiserver", groups=("system:masters",))
        authority.signing_key("service-accounts")
        for server in SERVING:
            authority.issue(server, server)
        user, groups = ADMIN
        self._write_kubeconfig(authority, self.layout.kubeconfig, authority.issue("admin", user, groups=groups))
        for client in CLIENTS:
            self._write_kubeconfig(authority, self.kubeconfig(client), authority.token(client))
        authority.tokens(CLIENTS)

    def _write_kubeconfig(self, authority: Authority, path: Path, client: KeyFiles | str) -> None:
        authority.kubeconfig(path, server=self.server, client=client, name=f"instaslice-{self.layout.name}")

    def key_files(self, name: str) -> KeyFiles:
        return KeyFiles(self.layout.pki / f"{name}.crt", self.layout.pki / f"{name}.key")

    def kubeconfig(self, client: str) -> Path:
        return self.layout.pki / f"{client}.kubeconfig"

    @property
    def authority(self) -> Path:
        return self.layout.pki / "ca.crt"

    def commands(self) -> dict[str, list[str]]:
        """Component → command line, in the order in which they start."""
        components = {
            "etcd": self._etcd(),
            "kube-apiserver": self._apiserver(),
            "kube-scheduler": self._serving("kube-scheduler"),
            "kube-controller-manager": self._controller_manager(),
            "kwok": self._kwok(),
        }
        return {
            name: [str(self.programs[name]), *(f"--{flag}={value}" for flag, value in flags.items())]
            for name, flags in components.items()
        }

    def _etcd(self) -> dict[str, object]:
        pair = self.key_files("etcd")
        peer = f"https://127.0.0.1:{self.ports['etcd-peer']}"
        return {
            "name": "local",
            "data-dir": self.layout.etcd,
            "listen-client-urls": f"{SOCKET},{self.etcd}",
            "advertise-client-urls": self.etcd,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"local={peer}",
            "cert-file": pair.certificate,
            "key-file": pair.key,
            "trusted-ca-file": self.authority,
            "client-cert-auth": "true",
            "peer-cert-file": pair.certificate,
            "peer-key-file": pair.key,
            "peer-trusted-ca-file": self.authority,
            "peer-client-cert-auth": "true",
            # Cheap writes. A killed etcd loses nothing by this, only a machine that loses power does.
            "unsafe-no-fsync": "true",
            "quota-backend-bytes": 8 << 30,
            "log-level": "warn",
        }

    def _apiserver(self) -> dict[str, object]:
        serving, kubelet = map(self.key_files, ("kube-apiserver", "apiserver-to-kubelet"))
        accounts = self.layout.pki / "service-accounts"
        return {
            "bind-address": "127.0.0.1",
            "secure-port": self.ports["kube-apiserver"],
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "client-ca-file": self.authority,
            "token-auth-file": self.layout.pki / TOKENS,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "etcd-servers": SOCKET,
            "kubelet-certificate-authority": self.authority,
            "kubelet-client-certificate": kubelet.certificate,
            "kubelet-client-key": kubelet.key,
            "kubelet-preferred-address-types": "InternalIP",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": f"{accounts}.pub",
            "service-account-signing-key-file": f"{accounts}.key",
            "service-cluster-ip-range": SERVICE_RANGE,
            # The `kubernetes` service cannot have a loopback address, and without a service network it needs none.
            "endpoint-reconciler-type": "none",
            "allow-privileged": "true",
            "profiling": "false",
        }

    def _serving(self, name: str) -> dict[str, object]:
        """The flags that the scheduler and the controller-manager share."""
        kubeconfig, pair = self.kubeconfig(name), self.key_files(name)
        return {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "bind-address": "127.0.0.1",
            "secure-port": self.ports[name],
            "tls-cert-file": pair.certificate,
            "tls-private-key-file": pair.key,
            # There is one of each, and a lost Lease would end the process.
            "leader-elect": "false",
            # The default of 20 requests per second costs the controller-manager 3 s at start.
            "kube-api-qps": 1000,
            "kube-api-burst": 2000,
            "profiling": "false",
        }

    def _controller_manager(self) -> dict[str, object]:
        return {
            **self._serving("kube-controller-manager"),
            "use-service-account-credentials": "true",
            "service-account-private-key-file": self.layout.pki / "service-accounts.key",
            "root-ca-file": self.authority,
            "cluster-signing-cert-file": self.authority,
            "cluster-signing-key-file": self.layout.pki / "ca.key",
        }

    def _kwok(self) -> dict[str, object]:
        pair = self.key_files("kwok")
        return {
            "kubeconfig": self.kubeconfig("kwok"),
            "config": Path(__file__).parent / "stages.yaml",
            "manage-nodes-with-label-selector": "type=kwok",
            "node-lease-duration-seconds": 40,
            "node-ip": "127.0.0.1",
            "node-port": self.ports["kwok"],
            "server-address": f"127.0.0.1:{self.ports['kwok']}",
            "tls-cert-file": pair.certificate,
            "tls-private-key-file": pair.key,
        }

    def admin(self) -> ssl.SSLContext:
        """The administrator's access to everything that serves TLS, including etcd."""
        admin = self.key_files("admin")
        context = trusting(cafile=self.authority)
        context.load_cert_chain(admin.certificate, admin.key)
        return context

    def ready(self, component: str) -> Callable[[], bool]:
        path = {"kube-apiserver": "/readyz", "etcd": "/health"}.get(component, "/healthz")
        port, https = self.ports[component], http.client.HTTPSConnection
        return lambda: is_healthy(https("127.0.0.1", port, timeout=5, context=self.admin()), path)


def is_healthy(connection: http.client.HTTPConnection, path: str) -> bool:
    """Whether the server answers 200. Closes the connection."""
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
