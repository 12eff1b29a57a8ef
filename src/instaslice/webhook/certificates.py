"""Our certificate authority and the certificate we serve with: made, and renewed when it is time.

Pure but for the keys it draws: a state and a time in, the next state out. At any time we serve with a certificate
that the API server trusts, because trust comes first and use later:

    announce   a new authority is trusted beside the old one, which still signs
    switch     once every API server must trust it, the new one signs; the old one stays trusted until it expires
    renew      the leaf, by whoever signs, long before it expires
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY: Final = datetime.timedelta(days=1)
# An hour back: the clocks of a cluster need not agree to the second.
SLACK: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Lifetimes:
    """How long things are good for and how long before the end they are replaced."""

    authority: datetime.timedelta = 3650 * DAY
    authority_early: datetime.timedelta = 365 * DAY
    leaf: datetime.timedelta = 90 * DAY
    leaf_early: datetime.timedelta = 30 * DAY
    settle: datetime.timedelta = datetime.timedelta(hours=1)
    """Between trusting a new authority and signing with it: far above what an API server needs to notice it."""


class PemPair(msgspec.Struct, frozen=True):
    """A certificate and its key, both PEM."""

    certificate: str
    key: str

    @property
    def parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate.encode())

    @property
    def ends(self) -> datetime.datetime:
        return self.parsed.not_valid_after_utc


class AuthorityState(msgspec.Struct, frozen=True):
    """All that must be stored: who signs, who will, who did, and the certificate served."""

    authority: PemPair
    leaf: PemPair
    next: PemPair | None = None
    announced: datetime.datetime | None = None
    retired: tuple[str, ...] = ()

    @property
    def trusted(self) -> str:
        """The caBundle: every authority whose signature may be met."""
        following = (self.next.certificate,) if self.next else ()
        return "".join((self.authority.certificate, *following, *self.retired))


def advance(
    state: AuthorityState | None, now: datetime.datetime, served: Sequence[str], lifetimes: Lifetimes
) -> AuthorityState:
    """The state that should hold now; the same object where nothing is due. One step at a time: call it again later.

    `served` are the DNS names and addresses that the leaf must carry.
    """
    if state is None:
        authority = _authority(now, lifetimes)
        return AuthorityState(authority, _leaf(authority, now, served, lifetimes))
    if state.next is None and state.authority.ends - now < lifetimes.authority_early:
        return msgspec.structs.replace(state, next=_authority(now, lifetimes), announced=now)
    if state.next and state.announced and now - state.announced >= lifetimes.settle:
        retired = (state.authority.certificate, *state.retired)
        return AuthorityState(
            authority=state.next,
            leaf=_leaf(state.next, now, served, lifetimes),
            retired=tuple(pem for pem in retired if _ends(pem) > now),
        )
    if state.leaf.ends - now < lifetimes.leaf_early:
        return msgspec.structs.replace(state, leaf=_leaf(state.authority, now, served, lifetimes))
    carried = _served(state.leaf)
    if not carried >= set(served):
        # Names are added, not replaced: the replicas of two versions would overwrite each other indefinitely.
        leaf = _leaf(state.authority, now, sorted(carried | set(served)), lifetimes)
        return msgspec.structs.replace(state, leaf=leaf)
    return state


def _ends(pem: str) -> datetime.datetime:
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc


def _served(leaf: PemPair) -> set[str]:
    names = leaf.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def _authority(now: datetime.datetime, lifetimes: Lifetimes) -> PemPair:
    key = ec.generate_private_key(ec.SECP256R1())
    # Each has a name of its own: a verifier that meets two authorities of one name may try the wrong one.
    name = _name(f"instaslice-webhook-ca-{x509.random_serial_number() >> 96:x}")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key.public_key(), now, lifetimes.authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def _leaf(authority: PemPair, now: datetime.datetime, served: Sequence[str], lifetimes: Lifetimes) -> PemPair:
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(authority.key.encode(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    builder = (
        _builder(_name("instaslice-webhook"), authority.parsed.subject, key.public_key(), now, lifetimes.leaf)
        .add_extension(x509.SubjectAlternativeName([_general(each) for each in served]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    valid: datetime.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now + valid)
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> PemPair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return PemPair(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())
