"""The small parts of a local cluster: names, ports, certificates, images, nodes."""

import base64
import contextlib
import csv
import hashlib
import re
import socket
import ssl
import tarfile

import msgspec
import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from instaslice.api import names
from instaslice.errors import BadInput
from instaslice.geometry import models
from instaslice.local import components, images, nodes, ports
from instaslice.local.layout import Layout
from instaslice.local.pki import Authority


@pytest.mark.parametrize("name", ["a", "default", "t123-x", "a" * 30])
def test_names_that_a_cluster_may_have(name, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/tmp/state")
    assert Layout.of(name).name == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a/b", "..", "a" * 31])
def test_names_that_a_cluster_may_not_have(name):
    with pytest.raises(BadInput, match="cluster name"):
        Layout.of(name)


def test_a_relative_state_home_is_ignored_as_the_standard_says(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert str(Layout.of("x").root) == "/home/me/.local/state/instaslice/clusters/x"


V2 = "fpu sse4_2 popcnt xsave avx"
V3 = f"{V2} avx2 bmi1 bmi2 f16c fma abm movbe"


@pytest.mark.parametrize(
    "cpuinfo, level",
    [
        pytest.param(f"processor\t: 0\nflags\t\t: {V3} avx512f\nbugs\t\t:\n", "v3", id="all of v3 and more"),
        pytest.param(f"processor\t: 0\nflags\t\t: {V2}\n", "v1", id="an older CPU"),
        pytest.param(f"flags\t\t: {V3.replace('bmi2', '')}\n", "v1", id="all but one"),
        pytest.param("processor\t: 0\nFeatures\t: fp asimd\n", "v1", id="an Arm CPU"),
        pytest.param(None, "v1", id="no Linux"),
    ],
)
def test_what_programs_may_expect_of_the_cpu(tmp_path, cpuinfo, level):
    file = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        file.write_text(cpuinfo)
    assert components.cpu_level(file) == level


def test_chosen_ports_are_free_different_and_nobody_elses():
    taken = range(ports.RANGE.start, ports.RANGE.stop - 300)
    chosen = ports.choose(20, taken)
    assert len(set(chosen)) == 20
    assert not set(chosen) & set(taken)


def test_a_port_in_use_is_not_free():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not ports.free(taken.getsockname()[1])
        with pytest.raises(BadInput, match="in use"):
            ports.require(taken.getsockname()[1])


def test_a_certificate_carries_the_user_and_groups_and_is_kept(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.issue("kubelet", "system:node:n", groups=("system:nodes",), addresses=("10.1.2.3",))
    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    names = {each.oid: each.value for each in certificate.subject}
    assert names == {NameOID.COMMON_NAME: "system:node:n", NameOID.ORGANIZATION_NAME: "system:nodes"}
    served = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "10.1.2.3" in map(str, served.get_values_for_type(x509.IPAddress))
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.pair.certificate.read_bytes()))
    again = Authority(tmp_path).issue("kubelet", "system:node:n")
    assert x509.load_pem_x509_certificate(again.certificate.read_bytes()) == certificate


def test_a_certificate_passes_the_strictest_check(tmp_path):
    """What Python asks for from 3.13 on, of those who use the kubeconfig with other clients."""
    authority = Authority(tmp_path)
    pair = authority.issue("server", "server")
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(pair.certificate, pair.key)
    strict = ssl.create_default_context(cafile=authority.pair.certificate)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        strict.wrap_bio(back, there, server_hostname="localhost"),
        served.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(3):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert ends[0].version() == "TLSv1.3"
    assert ends[0].getpeercert()["subject"]


def test_keys_are_readable_by_their_owner_alone(tmp_path):
    pair = Authority(tmp_path).issue("admin", "admin")
    assert pair.key.stat().st_mode & 0o077 == 0


def test_a_certificate_that_a_kill_left_half_written_is_created_again(tmp_path):
    authority = Authority(tmp_path)
    (tmp_path / "admin.key").write_text("a key whose certificate was never written")
    pair = authority.issue("admin", "admin")
    ssl.create_default_context().load_cert_chain(pair.certificate, pair.key)


def test_a_kubeconfig_holds_all_it_needs(tmp_path):
    authority = Authority(tmp_path)
    path = authority.kubeconfig(
        tmp_path / "kubeconfig", server="https://127.0.0.1:1", client=authority.issue("admin", "admin"), name="x"
    )
    config = yaml.safe_load(path.read_text())
    assert config["current-context"] == "x"
    inside = base64.b64decode(config["users"][0]["user"]["client-certificate-data"])
    assert inside == (tmp_path / "admin.crt").read_bytes()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("before", ["", "[]", "contexts:\n- name: x\n  context: {cluster: x}\n", "{"])
def test_a_kubeconfig_keeps_the_namespace_that_its_user_chose(tmp_path, before):
    path = tmp_path / "kubeconfig"
    path.write_text(before)

    def written():
        Authority(tmp_path).kubeconfig(path, server="https://127.0.0.1:1", client="token", name="x")
        return yaml.safe_load(path.read_text())

    config = written()
    assert config["contexts"][0]["context"] == {"cluster": "x", "user": "x"}
    config["contexts"][0]["context"]["namespace"] = "team-a"
    path.write_text(yaml.safe_dump(config))
    assert written() == config


def test_a_program_has_a_token_that_the_api_server_knows(tmp_path):
    authority = Authority(tmp_path)
    token = authority.token("kwok")
    path = authority.kubeconfig(tmp_path / "kubeconfig", server="https://127.0.0.1:1", client=token, name="x")
    assert yaml.safe_load(path.read_text())["users"][0]["user"] == {"token": token}
    listed = Authority(tmp_path).tokens({"kwok": "instaslice:kwok", "other": "o"})
    ours, other = csv.reader(listed.read_text().splitlines())
    assert ours == [token, "instaslice:kwok", "instaslice:kwok"]
    assert other[0] != token
    assert all(file.stat().st_mode & 0o077 == 0 for file in (listed, path, tmp_path / "kwok.token"))


def test_an_image_archive_names_what_is_in_it(tmp_path):
    program = tmp_path / "busybox"
    program.write_text("#!/bin/sh\necho sh\necho ls\n")
    program.chmod(0o755)
    _, busybox = images.write(program, tmp_path / "images")
    with tarfile.open(busybox) as tar:
        (entry,) = msgspec.json.decode(tar.extractfile("manifest.json").read())
        config = msgspec.json.decode(tar.extractfile(entry["Config"]).read())
        layer = tar.extractfile(entry["Layers"][0]).read()
        with tarfile.open(fileobj=tar.extractfile(entry["Layers"][0])) as inside:
            assert inside.getmember("bin/ls").linkname == "busybox"
    assert entry["RepoTags"] == [images.BUSYBOX]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]


def test_an_emulated_node_says_what_it_has():
    made = nodes.manifest(3, 8, models.named("H100-80GB-SXM5"), "1.37.1")
    assert made["metadata"]["name"] == "gpu-3"
    assert made["metadata"]["labels"]["nvidia.com/gpu.count"] == "8"
    assert made["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert made["metadata"]["labels"][names.EMULATED] == "H100-80GB-SXM5"
    assert made["status"]["allocatable"] == made["status"]["capacity"]


def test_nodes_beyond_the_number_wanted_are_surplus():
    assert sorted(nodes.surplus(["gpu-0", "gpu-1", "gpu-10"], 1)) == ["gpu-1", "gpu-10"]


@pytest.mark.parametrize("model", models.known(), ids=lambda model: model.name)
def test_every_product_name_is_a_legal_label(model):
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", nodes.product(model))
