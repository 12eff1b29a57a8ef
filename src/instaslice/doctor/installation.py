"""What an installation stands on, as the API server holds it: webhook, policies, Lease, definition, quotas.

Each kind is read by itself. One that the caller may not read is None here and a finding `not-checked`, and costs none
of the others.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from instaslice.api import crd, names
from instaslice.doctor.dry_run import DryRuns
from instaslice.doctor.findings import Finding
from instaslice.doctor.installation_kinds import (
    AGENT_DAEMON_SETS,
    BINDINGS,
    DEFINITIONS,
    HOOK,
    OF_AGENTS,
    POLICIES,
    POLICY,
    POLICY_OF_BINDINGS,
    QUOTAS,
    WEBHOOKS,
    AdmissionPolicy,
    AgentDaemonSet,
    Definition,
    PolicyBinding,
    Quota,
    RegisteredWebhook,
    WebhookConfiguration,
)
from instaslice.doctor.kind_reader import KindReader
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import Clock
from instaslice.kube.core import LEASES, NAMESPACES, Lease, Namespace
from instaslice.kube.meta import Key

LEASE: Final = "instaslice-controller"
RENEWAL_SECONDS: Final = 6.0
"""Within which a leader renews its Lease, three times over."""


TryOut = Callable[[Client, Sequence[RegisteredWebhook], Sequence[Namespace] | None, str], Awaitable[DryRuns]]


@dataclass(frozen=True)
class Installation:
    """None is what could not be read, [] what is not there."""

    now: datetime
    lease_key: Key
    webhooks: Sequence[WebhookConfiguration] | None = None
    dry_runs: DryRuns = DryRuns()  # noqa: RUF009 - immutable
    policies: Sequence[AdmissionPolicy] | None = None
    bindings: Sequence[PolicyBinding] | None = None
    leases: Sequence[Lease] | None = None
    renewed_meanwhile: bool = False
    """Whether the Lease was renewed while it was looked at: that counts whatever the clocks say."""
    definitions: Sequence[Definition] | None = None
    quotas: Sequence[Quota] | None = None
    namespaces: Sequence[Namespace] | None = None
    agents: Sequence[AgentDaemonSet] | None = None
    """Says which nodes have an agent; nodes that `instaslice up` emulates have none of it."""
    not_checked: Sequence[Finding] = ()

    @property
    def hooks(self) -> list[tuple[str, RegisteredWebhook]]:
        """Our hooks, each with the name of its configuration."""
        return [
            (each.metadata.name, hook)
            for each in self.webhooks or ()
            for hook in each.webhooks or ()
            if hook.name == HOOK
        ]

    @property
    def unread(self) -> bool:
        """Whether nothing of it could be read."""
        read = self.webhooks, self.policies, self.bindings, self.leases, self.definitions, self.quotas
        return all(each is None for each in read)

    @property
    def absent(self) -> bool:
        """Whether nothing of it is there, but for what an uninstall leaves: the definition, and a Lease that nobody
        renews. What could not be read is not there where the definition is missing, without which nothing runs."""
        if self.definitions != [] and (self.webhooks is None or self.policies is None):
            return False
        policies = {each.metadata.name for each in self.policies or ()} & {POLICY, POLICY_OF_BINDINGS}
        led = any(each.spec.holder_identity for each in self.leases or ()) and not self.lease_expired
        return not self.hooks and not policies and not led

    @property
    def lease_expired(self) -> bool:
        """Whether the Lease has run out by our clock, and was not renewed while it was looked at: clocks differ."""
        for lease in self.leases or ():
            if lease.spec.holder_identity and lease.spec.renew_time and not self.renewed_meanwhile:
                age = self.now - datetime.fromisoformat(lease.spec.renew_time)
                return abs(age) > timedelta(seconds=lease.spec.lease_duration_seconds)
        return False

    @classmethod
    async def read(
        cls, client: Client, clock: Clock, try_out: TryOut, namespace: str = names.NAMESPACE
    ) -> "Installation":
        """`namespace` is where the controller keeps its Lease; `try_out` creates pods in dry runs. Raises
        Unreachable."""
        reader, key = KindReader(client), Key(namespace, LEASE)
        found = cls(
            now=clock.now(),
            lease_key=key,
            webhooks=await reader.all(WEBHOOKS),
            policies=await reader.all(POLICIES),
            bindings=await reader.all(BINDINGS),
            leases=await reader.one(LEASES, key),
            definitions=await reader.one(DEFINITIONS, Key("", crd.NAME)),
            quotas=await reader.all(QUOTAS),
            # These only make findings more exact: without them none is missing.
            namespaces=await KindReader(client).all(NAMESPACES),
            agents=await KindReader(client).all(AGENT_DAEMON_SETS, Selector(namespace, OF_AGENTS)),
        )
        dry_runs = await try_out(client, [hook for _, hook in found.hooks], found.namespaces, namespace)
        if dry_runs.unknown:
            reader.note("pods", dry_runs.unknown)
        if found.lease_expired:
            await clock.sleep(RENEWAL_SECONDS)
            before, again = found.leases or (), await KindReader(client).one(LEASES, key)
            renewed = bool(again) and [each.spec for each in again or ()] != [each.spec for each in before]
            found = replace(found, renewed_meanwhile=renewed)
        return replace(found, dry_runs=dry_runs, not_checked=reader.notes)
