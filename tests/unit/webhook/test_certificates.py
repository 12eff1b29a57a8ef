"""When certificates are renewed, and that what is served is always trusted."""

import datetime
import os
import ssl
import tempfile

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from handshakes import served

from instaslice.errors import BadInput
from instaslice.observe.certificates import FileSource
from instaslice.webhook.certificates import DAY, Lifetimes, advance

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SERVED = ["instaslice-webhook.instaslice-system.svc", "127.0.0.1"]
LIFETIMES = Lifetimes()
SETTLED = LIFETIMES.settle


def after(state, *times):
    """The state when someone looked at each of these times after the start."""
    for time in times:
        state = advance(state, START + time, SERVED, LIFETIMES)
    return state


@pytest.fixture
def first():
    return after(None, 0 * DAY)


def test_the_first_leaf_is_signed_for_what_it_serves(first):
    names = first.leaf.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == SERVED[:1]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == SERVED[1:]
    first.leaf.parsed.verify_directly_issued_by(first.authority.parsed)


def test_clocks_need_not_agree_to_the_second(first):
    for pair in (first.authority, first.leaf):
        assert pair.parsed.not_valid_before_utc == START - datetime.timedelta(hours=1)
    assert (first.authority.ends, first.leaf.ends) == (START + 3650 * DAY, START + 90 * DAY)


def test_the_authority_signs_leaves_and_no_other_authority(first):
    authority = first.authority.parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (authority.value.ca, authority.value.path_length, authority.critical) == (True, 0, True)
    leaf = first.leaf.parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    assert leaf.value.ca is False


def extensions(pair):
    """Name → whether whoever does not know it must refuse the certificate."""
    return {each.oid._name: each.critical for each in pair.parsed.extensions}


def test_what_a_verifier_must_understand(first):
    """As RFC 5280 has it: what limits a certificate is critical, what only tells of it is not."""
    assert extensions(first.authority) == {"basicConstraints": True, "keyUsage": True, "subjectKeyIdentifier": False}
    assert extensions(first.leaf) == {
        "subjectAltName": False,
        "extendedKeyUsage": False,
        "basicConstraints": True,
        "authorityKeyIdentifier": False,
    }


def test_what_an_authority_s_key_may_be_used_for(first):
    usage = first.authority.parsed.extensions.get_extension_for_class(x509.KeyUsage).value
    uses = ("digital_signature", "key_cert_sign", "crl_sign", "content_commitment", "key_encipherment",
            "data_encipherment", "key_agreement")  # fmt: skip
    assert {use for use in uses if getattr(usage, use)} == {"digital_signature", "key_cert_sign", "crl_sign"}


def test_a_leaf_serves_and_says_who_signed_it(first):
    found = first.leaf.parsed.extensions
    assert list(found.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    signer = first.authority.parsed.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert found.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == signer.digest


def test_no_two_authorities_have_one_name(first):
    announced = after(first, 3300 * DAY)
    assert announced.next.parsed.subject != announced.authority.parsed.subject


@pytest.mark.parametrize("days", [0, 30, 59])
def test_nothing_changes_before_it_is_due(first, days):
    assert after(first, days * DAY) is first


def test_the_leaf_is_renewed_a_month_early_by_the_same_authority(first):
    renewed = after(first, 61 * DAY)
    assert renewed.leaf != first.leaf
    assert renewed.trusted == first.trusted
    renewed.leaf.parsed.verify_directly_issued_by(first.authority.parsed)


def test_replicas_that_serve_under_different_names_agree_on_a_leaf(first):
    widened = advance(first, START, ["elsewhere"], LIFETIMES)
    assert widened.leaf != first.leaf
    assert advance(widened, START, SERVED, LIFETIMES) is widened
    assert advance(widened, START, ["elsewhere"], LIFETIMES) is widened


def test_a_new_authority_is_trusted_before_it_signs(first):
    announced = after(first, 3300 * DAY)
    assert announced.leaf == first.leaf
    assert announced.authority.certificate in announced.trusted
    assert announced.next.certificate in announced.trusted
    # A leaf that is due meanwhile is signed by the one that everybody trusts.
    waiting = after(announced, 3300 * DAY)
    waiting.leaf.parsed.verify_directly_issued_by(first.authority.parsed)
    assert waiting.next == announced.next


def test_the_old_authority_is_trusted_until_it_expires(first):
    switched = after(first, 3300 * DAY, 3300 * DAY + SETTLED)
    switched.leaf.parsed.verify_directly_issued_by(switched.authority.parsed)
    assert switched.authority != first.authority
    assert first.authority.certificate in switched.trusted
    again = after(switched, 6600 * DAY, 6600 * DAY + SETTLED)
    assert first.authority.certificate not in again.trusted


def test_at_every_moment_of_thirty_years_the_leaf_is_valid_and_trusted():
    state = None
    for day in range(0, 30 * 365, 7):
        before, state = state, after(state, day * DAY)
        now = START + day * DAY
        assert state.leaf.parsed.not_valid_before_utc <= now < state.leaf.ends
        # An API server that has not heard of the last step trusts the leaf all the same.
        for known in filter(None, (before, state)):
            issuers = {each.subject for each in x509.load_pem_x509_certificates(known.trusted.encode())}
            assert state.leaf.parsed.issuer in issuers


def _write(directory, pair):
    (directory / "tls.crt").write_text(pair.certificate)
    (directory / "tls.key").write_text(pair.key)


async def test_files_that_change_are_served_from_the_next_connection_on(first, tmp_path):
    _write(tmp_path, first.leaf)
    source = FileSource(tmp_path)
    await source.refresh()
    assert await served(source.context) == first.leaf.parsed
    renewed = after(first, 61 * DAY)
    with tempfile.TemporaryDirectory(dir=tmp_path) as scratch:
        _write(tmp_path / scratch, renewed.leaf)
        (tmp_path / scratch / "tls.crt").replace(tmp_path / "tls.crt")
        await source.refresh()
        assert await served(source.context) == first.leaf.parsed, "a certificate without its key was served"
        (tmp_path / scratch / "tls.key").replace(tmp_path / "tls.key")
    await source.refresh()
    assert await served(source.context) == renewed.leaf.parsed


async def test_a_strict_client_trusts_it(tmp_path):
    state = advance(None, datetime.datetime.now(datetime.UTC), SERVED, LIFETIMES)
    _write(tmp_path, state.leaf)
    source = FileSource(tmp_path)
    await source.refresh()
    strict = ssl.create_default_context(cadata=state.trusted)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    assert await served(source.context, strict) == state.leaf.parsed


async def test_files_that_do_not_belong_together_are_refused_at_the_start(first, tmp_path):
    _write(tmp_path, first.leaf)
    (tmp_path / "tls.key").write_text(first.authority.key)
    with pytest.raises(BadInput, match=r"tls.crt and tls.key are not a pair"):
        await FileSource(tmp_path).refresh()


async def test_a_file_that_is_no_text_is_refused_at_the_start_and_ignored_later(first, tmp_path):
    _write(tmp_path, first.leaf)
    source = FileSource(tmp_path)
    await source.refresh()
    (tmp_path / "tls.crt").unlink()
    (tmp_path / "tls.crt").write_bytes(b"\xff\xfe")
    os.utime(tmp_path / "tls.crt", ns=(0, 1))
    await source.refresh()
    assert await served(source.context) == first.leaf.parsed
    with pytest.raises(BadInput, match=r"are not a pair to serve with"):
        await FileSource(tmp_path).refresh()


async def test_a_file_that_is_written_in_place_is_loaded_too(first, tmp_path):
    _write(tmp_path, first.leaf)
    source = FileSource(tmp_path)
    await source.refresh()
    renewed = after(first, 61 * DAY)
    _write(tmp_path, renewed.leaf)
    # A file system may keep time by the second.
    os.utime(tmp_path / "tls.crt", ns=(0, 1))
    await source.refresh()
    assert await served(source.context) == renewed.leaf.parsed


async def test_files_that_stay_are_not_read_again(first, tmp_path):
    _write(tmp_path, first.leaf)
    source = FileSource(tmp_path)
    await source.refresh()
    (tmp_path / "tls.key").unlink()
    await source.refresh()
