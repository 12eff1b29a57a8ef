"""Kubeconfigs that cannot be used are one line with the file and a remedy; tokens are read anew."""

import base64
import pathlib
import shutil
import ssl
import stat
import sys
import tempfile

import certifi
import pytest
import yaml

from instaslice.kube import config
from instaslice.kube.client import Client
from instaslice.kube.errors import KubeconfigError
from instaslice.local.pki import Authority

WHOLE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "clusters": [{"name": "c", "cluster": {"server": "https://example.test:6443/prefix/"}}],
    "users": [{"name": "u", "user": {"token": "secret"}}],
    "contexts": [
        {"name": "here", "context": {"cluster": "c", "user": "u"}},
        {"name": "nowhere", "context": {"cluster": "missing", "user": "u"}},
    ],
}


def but(**changes):
    return yaml.safe_dump({**WHOLE, **changes})


def with_user(**user):
    return but(users=[{"name": "u", "user": user}])


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="missing"),
        pytest.param("", id="empty"),
        pytest.param("- a list", id="not a mapping"),
        pytest.param("a: b: c", id="not YAML"),
        pytest.param("\x00\x01", id="not text"),
        pytest.param("{}", id="nothing in it"),
        pytest.param(but(**{"current-context": "else"}), id="a context that is not there"),
        pytest.param(but(**{"current-context": "nowhere"}), id="a cluster that is not there"),
        pytest.param(but(clusters=[{"name": "c", "cluster": {}}]), id="no server"),
        pytest.param(but(clusters={"name": "c"}), id="clusters of the wrong shape"),
        pytest.param(
            but(clusters=[{"name": "c", "cluster": {"server": "https://x", "certificate-authority-data": "%%"}}]),
            id="a CA that is not base64",
        ),
        pytest.param(with_user(**{"client-certificate": "no.crt", "client-key": "no.key"}), id="a certificate gone"),
        pytest.param(
            with_user(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-program"}),
            id="an exec plugin that is not installed",
        ),
        pytest.param(
            with_user(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}),
            id="an exec plugin that fails",
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_one_line_that_names_it(tmp_path, clock, content):
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    with pytest.raises(KubeconfigError) as raised:
        await config.load(file, clock=clock)
    line = str(raised.value)
    assert "\n" not in line
    assert str(file) in line
    assert ": " in line.partition(str(file))[2], "a remedy follows"


@pytest.mark.parametrize(
    "cluster",
    [{"server": "localhost:6443"}, {"server": "https://x", "proxy-url": "socks5://y:1080"}],
    ids=["a server without a scheme", "a proxy that is not HTTP"],
)
async def test_an_address_that_cannot_be_used_is_one_line_that_names_the_file(tmp_path, cluster):
    file = tmp_path / "kubeconfig"
    file.write_text(but(clusters=[{"name": "c", "cluster": cluster}]))
    with pytest.raises(KubeconfigError, match=r": .* is not an http:// or https:// address: correct its server"):
        await Client.connect(file)


async def test_a_folder_in_place_of_the_file_is_named(tmp_path, clock):
    with pytest.raises(KubeconfigError, match="cannot be read"):
        await config.load(tmp_path, clock=clock)


async def test_the_environment_names_a_file_that_is_missing(tmp_path, clock):
    with pytest.raises(KubeconfigError, match="unset it"):
        await config.load(clock=clock, env={"KUBECONFIG": str(tmp_path / "none")})


async def test_the_namespace_is_that_of_the_context(tmp_path, clock):
    file = tmp_path / "kubeconfig"
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u", **more}}
        for name, more in (("plain", {}), ("team", {"namespace": "team-a"}))
    ]
    file.write_text(but(contexts=contexts, **{"current-context": "plain"}))
    assert (await config.load(file, clock=clock)).namespace == "default"
    assert (await config.load(file, context="team", clock=clock)).namespace == "team-a"
    async with await Client.connect(file, context="team") as client:
        assert client.namespace == "team-a"


async def test_the_namespace_of_a_service_account_is_that_of_its_pod(tmp_path, clock):
    (tmp_path / "ca.crt").write_text(certifi.contents())
    (tmp_path / "token").write_text("t")
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert (await config.load(clock=clock, env=env, service_account=tmp_path)).namespace == "default"
    (tmp_path / "namespace").write_text("team-a\n")
    assert (await config.load(clock=clock, env=env, service_account=tmp_path)).namespace == "team-a"


async def test_server_token_and_prefix_are_read(tmp_path, clock):
    file = tmp_path / "kubeconfig"
    file.write_text(but())
    found = await config.load(file, clock=clock)
    assert found.server == "https://example.test:6443/prefix"
    assert found.tls().verify_mode == ssl.CERT_REQUIRED
    assert await found.authorization() == "Bearer secret"


async def test_skipping_verification_proxy_and_server_name_are_honoured(tmp_path, clock):
    cluster = {
        "server": "https://example.test",
        "insecure-skip-tls-verify": True,
        "proxy-url": "http://proxy.test:3128",
        "tls-server-name": "inside.test",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(but(clusters=[{"name": "c", "cluster": cluster}]))
    found = await config.load(file, clock=clock)
    assert found.tls().verify_mode == ssl.CERT_NONE
    assert (found.proxy, found.server_name) == ("http://proxy.test:3128", "inside.test")


@pytest.fixture
def token_file(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    return file


@pytest.fixture(params=["kubeconfig", "service account"])
async def with_token_file(request, tmp_path, token_file, clock):
    """A configuration whose token stands in `token_file`."""
    if request.param == "kubeconfig":
        file = tmp_path / "kubeconfig"
        file.write_text(with_user(tokenFile=str(token_file)))
        return await config.load(file, clock=clock)
    (tmp_path / "ca.crt").write_text(certifi.contents())
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    return await config.load(clock=clock, env=env, service_account=tmp_path)


async def test_a_token_file_is_read_anew_each_minute(with_token_file, token_file, clock):
    assert await with_token_file.authorization() == "Bearer first"
    token_file.write_text("second\n")
    assert await with_token_file.authorization() == "Bearer first"
    clock.advance(60)
    assert await with_token_file.authorization() == "Bearer second"


async def test_a_refused_token_is_read_anew_at_once(with_token_file, token_file):
    token_file.write_text("second")
    assert await with_token_file.authorization(refused=True) == "Bearer second"


async def test_a_pod_without_a_token_is_told_why(tmp_path, clock):
    with pytest.raises(KubeconfigError, match="automountServiceAccountToken"):
        await config.load(clock=clock, env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, service_account=tmp_path)


async def test_where_a_pod_has_the_address_of_the_api_server_from(tmp_path, clock):
    (tmp_path / "ca.crt").write_text(certifi.contents())
    (tmp_path / "token").write_text("t")
    found = await config.load(clock=clock, env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, service_account=tmp_path)
    assert found.source == "KUBERNETES_SERVICE_HOST (by the chart: apiServer.host)"


async def test_an_exec_plugin_gives_the_token(tmp_path, clock):
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\n"
        'print(\'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}\')\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    file = tmp_path / "kubeconfig"
    file.write_text(with_user(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}))
    assert await (await config.load(file, clock=clock)).authorization() == "Bearer t"


@pytest.fixture
def pair(tmp_path):
    """A client's certificate and key as files."""
    return Authority(tmp_path / "pki").issue("client", "somebody")


def _data(file):
    """With its lines broken, as kubectl takes it too."""
    return base64.encodebytes(file.read_bytes()).decode()


@pytest.mark.parametrize("key_inside", [pytest.param(True, id="both inside"), pytest.param(False, id="the key beside")])
async def test_certificates_inside_a_kubeconfig_are_not_left_in_files(tmp_path, clock, pair, monkeypatch, key_inside):
    """The process may be killed at any moment, and among them is a private key."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    authority = {"server": "https://x.test", "certificate-authority-data": _data(tmp_path / "pki" / "ca.crt")}
    key = {"client-key-data": _data(pair.key)} if key_inside else {"client-key": "pki/client.key"}
    user = {"client-certificate-data": _data(pair.certificate), **key}
    file = tmp_path / "kubeconfig"
    file.write_text(but(clusters=[{"name": "c", "cluster": authority}], users=[{"name": "u", "user": user}]))
    found = await config.load(file, clock=clock)
    assert not list(scratch.iterdir())
    assert [each["subject"] for each in found.tls().get_ca_certs()] == [((("commonName", "instaslice-local"),),)]


@pytest.fixture(params=["kubeconfig", "service account"])
async def with_authority_file(request, tmp_path, token_file, pair, clock):
    """A configuration whose authority stands in `ca.crt`."""
    shutil.copy(tmp_path / "pki" / "ca.crt", tmp_path / "ca.crt")
    if request.param == "kubeconfig":
        file = tmp_path / "kubeconfig"
        files = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        cluster = {"server": "https://x.test", "certificate-authority": "ca.crt"}
        file.write_text(but(clusters=[{"name": "c", "cluster": cluster}], users=[{"name": "u", "user": files}]))
        return await config.load(file, clock=clock)
    return await config.load(clock=clock, env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, service_account=tmp_path)


def serial(context):
    """Of the one authority that is trusted."""
    (authority,) = context.get_ca_certs()
    return authority["serialNumber"]


async def test_an_authority_that_was_replaced_is_trusted_by_the_next_connection(with_authority_file, tmp_path):
    first = with_authority_file.tls()
    assert with_authority_file.tls() is first
    Authority(tmp_path / "next")
    (tmp_path / "next" / "ca.crt").rename(tmp_path / "ca.crt")
    second = with_authority_file.tls()
    assert serial(second) != serial(first), "and the old one is not"
    assert with_authority_file.tls() is second


@pytest.mark.parametrize("break_it", [pathlib.Path.unlink, lambda file: file.write_text("half of a cert")])
async def test_an_authority_that_cannot_be_read_just_now_leaves_the_last_one(
    with_authority_file, tmp_path, caplog, break_it
):
    first = with_authority_file.tls()
    break_it(tmp_path / "ca.crt")
    assert with_authority_file.tls() is first
    assert with_authority_file.tls() is first
    assert len(caplog.records) == 1
    shutil.copy(Authority(tmp_path / "next").pair.certificate, tmp_path / "ca.crt")
    assert serial(with_authority_file.tls()) != serial(first)


async def test_a_client_certificate_that_was_replaced_is_shown_by_the_next_connection(tmp_path, clock, pair):
    file = tmp_path / "kubeconfig"
    file.write_text(with_user(**{"client-certificate": str(pair.certificate), "client-key": str(pair.key)}))
    found = await config.load(file, clock=clock)
    first = found.tls()
    renewed = Authority(tmp_path / "next").issue("client", "somebody")
    renewed.certificate.rename(pair.certificate)
    assert found.tls() is first, "it does not fit the key yet"
    renewed.key.rename(pair.key)
    assert found.tls() is not first


async def test_another_key_than_the_certificates_is_refused(tmp_path, clock, pair):
    other = Authority(tmp_path / "other").issue("client", "somebody")
    file = tmp_path / "kubeconfig"
    file.write_text(
        with_user(**{"client-certificate-data": _data(pair.certificate), "client-key-data": _data(other.key)})
    )
    with pytest.raises(KubeconfigError, match="key values mismatch"):
        await config.load(file, clock=clock)


def test_certificates_are_checked_as_kubectl_does_and_no_more_strictly():
    context = config.trusting(cafile=certifi.where())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


def test_a_pair_is_loaded_where_no_folder_can_be_written_to(tmp_path, monkeypatch):
    pair = Authority(tmp_path).issue("server", "somebody")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    config.load_pair(context, pair.certificate.read_text(), pair.key.read_text())
    with pytest.raises(ssl.SSLError):
        config.load_pair(context, pair.certificate.read_text(), "no key")
