"""Certificates and tokens of a local cluster: an authority, a certificate per server, a kubeconfig per client.

Everything is written once when the cluster is created; RBAC and the node authoriser use the names in the certificates.
"""

import base64
import datetime
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from instaslice.files import write_atomically

VALID = datetime.timedelta(days=3650)
SERVED_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVED_ADDRESSES = ("127.0.0.1", "::1", "10.96.0.1")
TOKENS = "tokens.csv"
PRIVATE = 0o600
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclass(frozen=True)
class KeyFiles:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """The cluster's certificate authority. In an existing directory it reads what is there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pair = KeyFiles(directory / "ca.crt", directory / "ca.key")
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.pair.certificate.exists():
            # RSA, as kubeadm's: the API server checks this signature for every request of every client, which with an
            # elliptic curve took a twentieth of its CPU time under load.
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            name = _name("instaslice-local", ())
            usage = x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
                decipher_only=False,
            )  # fmt: skip
            certificate = (
                _builder(name, name, key.public_key())
                .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
                .add_extension(usage, critical=True)
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            )
            _write_key(self.pair.key, key)
            write_atomically(self.pair.certificate, _pem(certificate.sign(key, hashes.SHA256())), mode=PRIVATE)
        self._certificate = x509.load_pem_x509_certificate(self.pair.certificate.read_bytes())
        loaded = serialization.load_pem_private_key(self.pair.key.read_bytes(), password=None)
        assert isinstance(loaded, PrivateKey)
        self._key = loaded

    def issue(
        self, file: str, common_name: str, *, groups: Sequence[str] = (), addresses: Sequence[str] = ()
    ) -> KeyFiles:
        """A certificate for serving on loopback (and `addresses`) and for a client; reuses an existing one."""
        pair = KeyFiles(self.directory / f"{file}.crt", self.directory / f"{file}.key")
        if pair.certificate.exists():
            return pair
        key = ec.generate_private_key(ec.SECP256R1())
        served: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVED_NAMES]
        served += [x509.IPAddress(ipaddress.ip_address(each)) for each in (*SERVED_ADDRESSES, *addresses)]
        certificate = (
            _builder(_name(common_name, groups), self._certificate.subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName(served), critical=False)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        _write_key(pair.key, key)
        write_atomically(pair.certificate, _pem(certificate.sign(self._key, hashes.SHA256())), mode=PRIVATE)
        return pair

    def signing_key(self, file: str) -> KeyFiles:
        """A bare key pair (public, private) for service-account tokens."""
        pair = KeyFiles(self.directory / f"{file}.pub", self.directory / f"{file}.key")
        if not pair.certificate.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            _write_key(pair.key, key)
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            write_atomically(pair.certificate, public, mode=PRIVATE)
        return pair

    def token(self, client: str) -> str:
        """The token that authenticates this client; reuses an existing one."""
        path = self.directory / f"{client}.token"
        if not path.exists():
            write_atomically(path, secrets.token_urlsafe(32).encode(), mode=PRIVATE)
        return path.read_text()

    def tokens(self, users: Mapping[str, str]) -> Path:
        """Write the API server's list of tokens, for these clients with their user names."""
        rows = (f'{self.token(client)},"{user}","{user}"\n' for client, user in users.items())
        path = self.directory / TOKENS
        write_atomically(path, "".join(rows).encode(), mode=PRIVATE)
        return path

    def kubeconfig(self, path: Path, *, server: str, client: KeyFiles | str, name: str) -> Path:
        """Write a self-contained kubeconfig. The client has a certificate or a token. A namespace that was set in the
        context of an earlier one is kept."""

        def inline(file: Path) -> str:
            return base64.b64encode(file.read_bytes()).decode()

        if isinstance(client, KeyFiles):
            user = {"client-certificate-data": inline(client.certificate), "client-key-data": inline(client.key)}
        else:
            user = {"token": client}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": server, "certificate-authority-data": inline(self.pair.certificate)},
                }
            ],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, **_namespace(path, name)}}],
            "current-context": name,
        }
        write_atomically(path, yaml.safe_dump(document, sort_keys=False).encode(), mode=PRIVATE)
        return path


def _namespace(kubeconfig: Path, context: str) -> dict[str, str]:
    """What `kubectl config set-context --namespace` wrote into that context, if anything."""
    try:
        contexts = yaml.safe_load(kubeconfig.read_bytes())["contexts"]
        (found,) = (each["context"]["namespace"] for each in contexts if each["name"] == context)
        return {"namespace": str(found)}
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
        # None was set, or it is no kubeconfig: it is replaced as a whole.
        return {}


def _name(common_name: str, groups: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, public: PublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # An hour back, in case clocks differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALID)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: PrivateKey) -> None:
    # SEC1 (PKCS#1 for RSA) rather than PKCS#8: every Go component reads it.
    data = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    write_atomically(path, data, mode=PRIVATE)
