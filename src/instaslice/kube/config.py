"""Where the API server is and who we are: from a pod's service account, or from a kubeconfig.

A pod needs no library: two environment variables and two files, the token read again each minute because the kubelet
replaces it. Certificate files are checked before each request: they are replaced too, if less often. A
kubeconfig (contexts, merged files, exec plugins, OIDC, proxies) is read by kubernetes_asyncio, imported only then: it
costs 37 MB that no agent should pay. designs/0002-our-own-kube-client.md has the comparison.
"""

import base64
import logging
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import yaml

from instaslice.kube.clock import Clock
from instaslice.kube.errors import KubeconfigError

log = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_SECONDS = 60.0
DEFAULT_NAMESPACE = "default"

_AUTHORITY, _CERTIFICATE, _KEY = "certificate-authority-data", "client-certificate-data", "client-key-data"


class Config(Protocol):
    """What a connection needs to know. `tls` and `authorization` may change at any time."""

    source: str
    """Named in errors: a file, or "the service account"."""
    server: str
    """Without a slash at the end; may hold a path."""
    server_name: str | None
    """The name the certificate must carry, where it is not the address."""
    proxy: str | None
    namespace: str
    """The one that commands look at unless they are given another, as kubectl does."""

    def tls(self) -> ssl.SSLContext:
        """For the next request, where the server speaks TLS."""
        ...

    async def authorization(self, *, refused: bool = False) -> str | None:
        """The Authorization header of the next request. `refused`: the last one got a 401, so read it again now."""
        ...


async def load(
    kubeconfig: Path | None = None,
    *,
    context: str | None = None,
    clock: Clock,
    env: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Config:
    """The file that was named; else $KUBECONFIG; else the pod's service account; else ~/.kube/config.

    Raises KubeconfigError, one line that names the file and the remedy.
    """
    if kubeconfig is not None:
        return await _from_file(str(kubeconfig), "give a file that exists with --kubeconfig", context, clock)
    if env.get("KUBECONFIG"):
        return await _from_file(env["KUBECONFIG"], "set KUBECONFIG to a file that exists, or unset it", context, clock)
    if env.get("KUBERNETES_SERVICE_HOST"):
        return InCluster(env, service_account, clock)
    return await _from_file(
        str(Path.home() / ".kube" / "config"), "set KUBECONFIG or give --kubeconfig; `instaslice up` makes one",
        context, clock,
    )  # fmt: skip


class InCluster:
    """The service account of the pod we run in."""

    def __init__(self, env: Mapping[str, str], account: Path, clock: Clock) -> None:
        host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
        # What names the server; the service account has the token and the authority only.
        self.source = "KUBERNETES_SERVICE_HOST (by the chart: apiServer.host)"
        self.server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self.server_name: str | None = None
        self.proxy: str | None = None
        self.namespace = _text(account / "namespace") or DEFAULT_NAMESPACE
        self._token_file = account / "token"
        self._clock = clock
        try:
            authority = account / "ca.crt"
            self._tls = _Certificates(lambda: trusting(cafile=authority), [authority])
            self._token = self._read()
        except (OSError, ssl.SSLError) as error:
            raise KubeconfigError(
                f"the service account in {account} is not usable ({_one_line(error)}): does the pod have "
                "automountServiceAccountToken: false?"
            ) from error

    def tls(self) -> ssl.SSLContext:
        return self._tls.context()

    async def authorization(self, *, refused: bool = False) -> str | None:
        if refused or self._clock.monotonic() - self._at >= REREAD_SECONDS:
            self._token = self._read()
        return self._token

    def _read(self) -> str:
        self._at = self._clock.monotonic()
        return f"Bearer {self._token_file.read_text().strip()}"


class FromKubeconfig:
    """What kubernetes_asyncio made of one context of one or several kubeconfig files."""

    def __init__(self, paths: str, context: str | None, clock: Clock) -> None:
        self.source = paths
        self.namespace = DEFAULT_NAMESPACE
        self._context = context
        self._clock = clock

    async def read(self) -> None:
        """Read the files and run the exec plugin, if there is one."""
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import kube_config

        found = Configuration(host="")
        merged = kube_config.KubeConfigMerger(self.source).config
        loader = kube_config.KubeConfigLoader(merged, self._context, config_base_path=None)
        current: Any = loader.current_context
        self.namespace = current["context"].get("namespace") or DEFAULT_NAMESPACE
        inline = _inline(merged, current)
        await loader.load_and_set(found)
        self._at = self._clock.monotonic()
        # It keeps the line end of a token file, which no header may hold.
        self._authorization: str | None = found.api_key.get("BearerToken", "").strip() or None
        self.server: str = (found.host or "").rstrip("/")
        self.server_name: str | None = found.tls_server_name
        self.proxy: str | None = found.proxy
        self._tls: _Certificates | None = None
        if self.server.startswith("https"):
            files = [Path(file) for file in (found.ssl_ca_cert, found.cert_file, found.key_file) if file]
            self._tls = _Certificates(lambda: _context(found, inline), files)

    def tls(self) -> ssl.SSLContext:
        assert self._tls is not None, "only a server that speaks TLS has a context"
        return self._tls.context()

    async def authorization(self, *, refused: bool = False) -> str | None:
        # A client certificate is in the TLS context already and has nothing to read again. A token may come from a
        # file or a plugin; the library does not say which, so all are read again, as its own refresh does.
        stale = self._authorization and self._clock.monotonic() - self._at >= REREAD_SECONDS
        if refused or stale:
            await _reading(self, "log in again, then retry")
        return self._authorization


class _Certificates:
    """A TLS context made from files, and made again when one of them has changed. Where that fails (only half of a
    pair is written, say), the last one that worked is used until the files change again."""

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Sequence[Path]) -> None:
        self._make = make
        self._files = files
        self._seen = [_stamp(file) for file in files]
        self._context = make()

    def context(self) -> ssl.SSLContext:
        now = [_stamp(file) for file in self._files]
        if now != self._seen:
            self._seen = now
            try:
                self._context = self._make()
            except (OSError, ssl.SSLError) as error:
                log.warning("%s changed and cannot be used: %s", ", ".join(map(str, self._files)), _one_line(error))
        return self._context


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """Differs once a file was written, replaced or made readable. A mounted secret is a link to what is replaced."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns, found.st_size


def trusting(*, cafile: str | Path | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """A context that trusts this authority, or the machine's, as kubectl does."""
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    # On from Python 3.13, where it refuses what clusters have that kubectl is content with: EKS, for one, has had
    # authorities without a key identifier.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """A certificate and its key, both PEM, into a context."""
    # OpenSSL reads certificates from files only.
    with _private_file() as file:
        file.write(f"{certificate}\n{key}".encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}" if isinstance(file.name, int) else file.name)


def _private_file() -> IO[bytes]:
    """Ours alone, and gone once it is closed. In memory on Linux: the image has no folder that it may write to."""
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("certificate"), "w+b")
    return tempfile.NamedTemporaryFile()


def _context(found: Any, inline: Mapping[str, str]) -> ssl.SSLContext:
    context = trusting(cafile=found.ssl_ca_cert, cadata=inline.get(_AUTHORITY))
    if _CERTIFICATE in inline or _KEY in inline:
        certificate = inline.get(_CERTIFICATE) or Path(found.cert_file).read_text()
        load_pair(context, certificate, inline.get(_KEY) or Path(found.key_file).read_text())
    elif found.cert_file:
        context.load_cert_chain(found.cert_file, found.key_file)
    if not found.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _inline(merged: Any, current: Any) -> dict[str, str]:
    """Certificates that stand in the kubeconfig itself, taken out of it: the library would write them to files that
    stay behind when the process is killed, a private key among them."""
    taken = {}
    for kind, fields in (("cluster", (_AUTHORITY,)), ("user", (_CERTIFICATE, _KEY))):
        named = current["context"].get(kind)
        entry = merged[f"{kind}s"].get_with_name(named, safe=True) if named else None
        inside = entry[kind].value if entry is not None else {}
        for field in fields:
            if text := inside.pop(field, None):
                # Lines may be broken, as kubectl has it; anything else that does not belong there is no certificate.
                taken[field] = base64.b64decode("".join(text.split()), validate=True).decode()
    return taken


async def _from_file(paths: str, remedy: str, context: str | None, clock: Clock) -> FromKubeconfig:
    config = FromKubeconfig(os.pathsep.join(_existing(paths, remedy)), context, clock)
    await _reading(config, "check its contexts with `kubectl config view`")
    if not config.server:
        raise KubeconfigError(f"kubeconfig {paths} names no server for its context: set clusters[].cluster.server")
    return config


def _existing(paths: str, remedy: str) -> list[str]:
    """Those of the named files that are there, as kubectl takes them; each checked for being a kubeconfig at all."""
    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    there = [file for file in files if file.exists()]
    if not there:
        raise KubeconfigError(f"kubeconfig {paths} does not exist: {remedy}")
    for file in there:
        _check(file)
    return [str(file) for file in there]


def _check(file: Path) -> None:
    """What the library would report as a traceback."""
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise KubeconfigError(
            f"kubeconfig {file} cannot be read ({error.strerror}): make it a file this user may read"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError(
            f"kubeconfig {file} is not YAML ({_one_line(error)}): correct it, or create it with your provider's login"
        ) from error
    if not isinstance(content, dict):
        raise KubeconfigError(f"kubeconfig {file} is not a kubeconfig (no clusters in it): give another file")


async def _reading(config: FromKubeconfig, remedy: str) -> None:
    try:
        await config.read()
    except Exception as error:
        # The library raises its own exception, but also KeyError, TypeError, AssertionError and binascii.Error on
        # files it does not expect, and whatever an exec plugin's start raises. To the user all are the same thing.
        raise KubeconfigError(f"kubeconfig {config.source} is not usable ({_one_line(error)}): {remedy}") from error


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
