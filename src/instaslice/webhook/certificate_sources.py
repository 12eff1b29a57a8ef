"""Certificates of our own authority, which all replicas share: the source to serve with unless files are given."""

import logging
import ssl
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from cryptography import x509

from instaslice.errors import BadInput
from instaslice.kube.client import Client, JsonOp
from instaslice.kube.clock import Clock
from instaslice.kube.config import load_pair
from instaslice.kube.errors import Conflict, KubeError, NotFound
from instaslice.kube.meta import ApiStruct, Key, ObjectMeta, key_of
from instaslice.kube.resource import Resource
from instaslice.observe.certificates import CertificateSource
from instaslice.webhook.certificates import AuthorityState, Lifetimes, advance
from instaslice.webhook.manifests import CONFIGURATIONS, HOOK, bundle

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
"""Between attempts of the first refresh."""


class Secret(ApiStruct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, bytes] = msgspec.field(default_factory=dict)


SECRETS = Resource(Secret, "Secret", "secrets")
STATE = "state.json"


class SecretSource:
    """Our own authority, its state in a Secret that all replicas share, its certificates in our configuration.

    Replicas need no leader: a refresh starts from the Secret and is written only if nobody wrote in between. A Secret
    that is deleted is written again by a replica that has read it.
    """

    def __init__(
        self,
        client: Client,
        secret: Key,
        served: Sequence[str],
        *,
        configuration: str,
        clock: Clock,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.state: AuthorityState | None = None
        self._client = client
        self._secret = secret
        self._served = served
        self._configuration = configuration
        self._clock = clock
        self._lifetimes = lifetimes or Lifetimes()

    async def refresh(self) -> None:
        while True:
            found = await self._read()
            before = _state(found)
            if before is None and self.state is not None:
                # It was deleted while we run. With a new authority, other replicas would serve what nobody trusts until
                # their next refresh; so it is written again as it was, and read like any other.
                log.warning("secret %s was deleted or emptied: writing it again", self._secret)
                with suppress(Conflict):
                    await self._write(found, self.state)
                continue
            # What became trusted only now has not reached every API server: this refresh must not build on it.
            if before is not None and await self._trust(before):
                self._load(before)
                return
            after = advance(before, self._clock.now(), self._served, self._lifetimes)
            if after is before:
                self._load(after)
                return
            try:
                await self._write(found, after)
            except Conflict:
                # Another replica was faster, and its authority is as good.
                continue
            self._load(after)
            await self._trust(after)
            return

    async def _read(self) -> Secret | None:
        try:
            return await self._client.get(SECRETS, self._secret)
        except NotFound:
            return None

    async def _write(self, found: Secret | None, state: AuthorityState) -> None:
        data = {STATE: msgspec.json.encode(state)}
        if found is None:
            meta = ObjectMeta(namespace=self._secret.namespace, name=self._secret.name)
            await self._client.create(SECRETS, Secret(metadata=meta, data=data))
            return
        version = {"resourceVersion": found.metadata.resource_version}
        await self._client.merge(SECRETS, self._secret, {"metadata": version, "data": data})

    async def _trust(self, state: AuthorityState) -> bool:
        """Write the authorities into our configuration; whether that changed it."""
        wanted = bundle(state.trusted)
        try:
            present = await self._client.get(CONFIGURATIONS, Key("", self._configuration))
        except NotFound:
            # Nobody calls us yet; it is filled in once it exists.
            return False
        # Tested by name, not by version: replicas that write the same thing at once are not in each other's way.
        ops = [
            op
            for index, hook in enumerate(present.webhooks or ())
            if hook.name == HOOK and hook.client_config.ca_bundle != wanted
            for op in (
                JsonOp(op="test", path=f"/webhooks/{index}/name", value=HOOK),
                JsonOp(op="add", path=f"/webhooks/{index}/clientConfig/caBundle", value=wanted),
            )
        ]
        if ops:
            await self._client.patch(CONFIGURATIONS, Key("", self._configuration), ops)
        return bool(ops)

    def _load(self, state: AuthorityState) -> None:
        if self.state is None or self.state.leaf != state.leaf:
            load_pair(self.context, state.leaf.certificate, state.leaf.key)
        self.state = state


async def start(source: CertificateSource, clock: Clock) -> None:
    """The first refresh, until it succeeds: an API server that has just started is unreachable at first, then answers
    403 until it has read its own roles. Exiting would only make the wait longer."""
    while True:
        try:
            return await source.refresh()
        except KubeError as error:
            log.warning("no certificates yet, trying again: %s", error)
            await clock.sleep(RETRY_SECONDS)


def _state(secret: Secret | None) -> AuthorityState | None:
    if secret is None or STATE not in secret.data:
        return None
    try:
        state = msgspec.json.decode(secret.data[STATE], type=AuthorityState)
        # Before any of it is trusted or loaded: a pair that does not match leaves a context without any certificate.
        for pair in filter(None, (state.authority, state.next, state.leaf)):
            load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair.certificate, pair.key)
        x509.load_pem_x509_certificates(state.trusted.encode())
    except (msgspec.DecodeError, ssl.SSLError, ValueError) as error:
        key = key_of(secret)
        remedy = "delete the Secret: a replica that runs writes its own again, otherwise a new authority is made"
        raise BadInput(f"secret {key}: {STATE} cannot be read ({error}); {remedy}") from None
    return state
