"""Certificates that a server of ours serves with: from files that somebody else renews, or made for this process alone.

Each source has a `context` to serve with and a `refresh` to call periodically; new connections get what it loaded last,
open ones continue. Nothing is restarted.
"""

import ipaddress
import logging
import socket
import ssl
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from instaslice.errors import BadInput
from instaslice.kube.clock import Clock
from instaslice.kube.config import load_pair
from instaslice.kube.errors import KubeError

log = logging.getLogger(__name__)

RENEW_SECONDS: Final = 10.0
"""Between refreshes: Secret volumes are swapped by a symlink, without a reliable notification."""
SELF_SIGNED_DAYS: Final = 3650
"""Nobody verifies it; a process does not live that long."""


class CertificateSource(Protocol):
    """Where certificates come from."""

    context: ssl.SSLContext

    async def refresh(self) -> None:
        """Load what is new. Safe to repeat; the first call leaves a context that can serve, or raises."""
        ...


class FileSource:
    """`tls.crt` and `tls.key` in a directory: a mounted Secret, cert-manager's for one."""

    def __init__(self, directory: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificate, self._key = directory / "tls.crt", directory / "tls.key"
        self._loaded: tuple[int, int] | None = None

    async def refresh(self) -> None:
        found = self._certificate.stat()
        seen = (found.st_ino, found.st_mtime_ns)
        if seen == self._loaded:
            return
        try:
            certificate, key = self._certificate.read_text(), self._key.read_text()
            # Into another context first: a pair that does not match leaves a context without any certificate.
            load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            if self._loaded is None:
                raise BadInput(
                    f"{self._certificate} and {self._key.name} are not a pair to serve with: {error}"
                ) from None
            # Caught between the two files being written: the old pair serves until the next refresh.
            log.warning("%s does not fit its key yet: %s", self._certificate, error)
            return
        load_pair(self.context, certificate, key)
        self._loaded = seen


class SelfSigned:
    """A certificate that no authority has signed: it keeps tokens from being read on the way, and proves nothing."""

    def __init__(self, clock: Clock) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(self.context, *_self_signed(clock.now()))

    async def refresh(self) -> None:
        """It lives as long as the process."""


async def renew(source: CertificateSource, clock: Clock, *, every: float = RENEW_SECONDS) -> None:
    """Refresh periodically. Neither an unreachable API server nor an unusable certificate is a reason to stop: what is
    loaded is valid for weeks."""
    while True:
        await clock.sleep(every)
        try:
            await source.refresh()
        except (KubeError, OSError, BadInput) as error:
            log.warning("certificates not renewed, trying again: %s", error)


def _self_signed(now: datetime) -> tuple[str, str]:
    # Costs 10 MB of memory, so only where it is needed.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "instaslice")])
    host = x509.DNSName(socket.gethostname())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=SELF_SIGNED_DAYS))
        .add_extension(x509.SubjectAlternativeName([host, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()
