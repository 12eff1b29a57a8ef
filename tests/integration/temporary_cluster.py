"""A real etcd and kube-apiserver on loopback, until `instaslice.local` is merged and takes its place."""

import os
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

BINARIES = Path(os.environ.get("KUBEBUILDER_ASSETS", "/tmp/kbin"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Certificates:
    """A CA and what it signs, as files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
        ca = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(ca.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject, key):
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(days=1))
        )

    def sign(self, name: str, group: str = "") -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if group:
            parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        certificate = (
            self._builder(x509.Name(parts), key)
            .add_extension(x509.SubjectAlternativeName(names), False)
            .sign(self._key, hashes.SHA256())
        )
        cert_file, key_file = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(_pem(key))
        return cert_file, key_file


def _pem(key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Cluster:
    """etcd and kube-apiserver as processes of ours, each killed, started and paused by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.etcd = f"http://127.0.0.1:{free_port()}"
        self.etcd_ssl: ssl.SSLContext | None = None
        self.kubeconfig = folder / "kubeconfig"
        certificates = Certificates(folder)
        serving, admin = certificates.sign("kube-apiserver"), certificates.sign("admin", "system:masters")
        accounts = folder / "accounts.key"
        accounts.write_bytes(_pem(rsa.generate_private_key(65537, 2048)))
        self._ssl = ssl.create_default_context(cafile=certificates.ca)
        self._ssl.load_cert_chain(*admin)
        self._write_kubeconfig(certificates.ca, *admin)
        peer = f"http://127.0.0.1:{free_port()}"
        self._commands = {
            "etcd": [
                "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "error",
                "--listen-client-urls", self.etcd, "--advertise-client-urls", self.etcd,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", f"default={peer}",
            ],
            "kube-apiserver": [
                "--etcd-servers", self.etcd, "--secure-port", str(self.port), "--bind-address", "127.0.0.1",
                "--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.96.0.0/16",
                "--tls-cert-file", str(serving[0]), "--tls-private-key-file", str(serving[1]),
                "--client-ca-file", str(certificates.ca), "--authorization-mode", "RBAC",
                "--service-account-issuer", "https://test", "--service-account-key-file", str(accounts),
                "--service-account-signing-key-file", str(accounts), "--disable-admission-plugins", "ServiceAccount",
            ],
        }  # fmt: skip
        self._processes: dict[str, subprocess.Popen] = {}

    def _write_kubeconfig(self, ca: Path, cert: Path, key: Path) -> None:
        server = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(ca)}
        user = {"client-certificate": str(cert), "client-key": str(key)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(content))

    def start(self, name: str) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        self._processes[name] = subprocess.Popen([BINARIES / name, *self._commands[name]], stdout=log, stderr=log)
        if name == "kube-apiserver":
            self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        for _ in range(600):
            if self._processes["kube-apiserver"].poll() is not None:
                break
            try:
                url = f"https://127.0.0.1:{self.port}/readyz"
                urllib.request.urlopen(url, context=self._ssl, timeout=5).read()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError((self.folder / "kube-apiserver.log").read_text()[-3000:])

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def pause(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for name in list(self._processes):
            self.kill(name)


def start() -> Cluster:
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="instaslice-kube-")))
    try:
        cluster.start("etcd")
        cluster.start("kube-apiserver")
    except BaseException:
        cluster.stop()
        raise
    return cluster
