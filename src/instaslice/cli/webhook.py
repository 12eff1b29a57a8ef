"""`instaslice webhook`: the admission webhook as a process."""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

import click

from instaslice.api import names
from instaslice.api.largest_node import MAX_GPUS, LargestNode
from instaslice.cli.terminal.finite_range import FiniteRange
from instaslice.cli.terminal.gpu_model import GpuModel
from instaslice.cli.terminal.object_name import ObjectName
from instaslice.cli.terminal.observing import Observing, observed
from instaslice.cli.terminal.signals import run_until_signalled
from instaslice.geometry import Model, models
from instaslice.kube.client import Client
from instaslice.kube.clock import Clock, SystemClock
from instaslice.kube.errors import KubeconfigError
from instaslice.kube.meta import Key
from instaslice.kube.observer import Observer
from instaslice.observe import registry as registries
from instaslice.observe.certificates import RENEW_SECONDS, CertificateSource, FileSource, renew
from instaslice.observe.metrics import ADMISSIONS, Component
from instaslice.webhook import quota_notice
from instaslice.webhook.certificate_sources import SecretSource, start
from instaslice.webhook.server import RESULTS, Webhook, serving

log = logging.getLogger(__name__)

PAUSE_SECONDS = 5.0
"""Between reporting that we stop and stopping."""

EXAMPLES = """\b
Examples:
  instaslice webhook                                in a cluster, with its own certificate authority
  instaslice webhook --cert-dir /etc/webhook/certs  with tls.crt and tls.key from cert-manager, say
  instaslice webhook --model A100-40GB --max-gpus 8 no node is larger: reject pods that need more
  instaslice webhook --observe :9511                probes and Prometheus come from elsewhere
"""


@click.command(epilog=EXAMPLES)
@click.option("--host", help="Address to listen on.  [default: all]")
@click.option("--port", type=click.IntRange(0, 65535), default=9443, show_default=True)
@click.option(
    "--cert-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Serve with tls.crt and tls.key from here, read again when they change; needs no API server.",
)
@click.option(
    "--secret",
    default=f"{names.NAMESPACE}/{names.WEBHOOK}",
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="Without --cert-dir: where the certificate authority is kept, which all replicas share.",
)
@click.option(
    "--service",
    type=ObjectName(),
    default=names.WEBHOOK,
    show_default=True,
    help="Service in front, in the Secret's namespace.",
)
@click.option("--serve-as", multiple=True, metavar="NAME", help="A further name or address for the certificate.")
@click.option(
    "--configuration",
    type=ObjectName(),
    default=names.WEBHOOK,
    show_default=True,
    help="Whose caBundle is kept up to date.",
)
@click.option(
    "--model",
    "chosen",
    type=GpuModel(),
    multiple=True,
    help="A GPU model of the cluster; repeat.  [default: all known]",
)
@click.option(
    "--max-gpus", type=click.IntRange(1), default=MAX_GPUS, show_default=True, help="GPUs of the largest node."
)
@click.option(
    "--check-every",
    type=FiniteRange(0, min_open=True),
    default=RENEW_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Between checks of certificates and configuration.",
)
@click.option(
    "--drain",
    type=FiniteRange(0),
    default=PAUSE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to keep answering after SIGTERM, while the Service takes us out of its endpoints.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False))
@observed(Component.WEBHOOK)
def command(
    observing: Observing,
    host: str | None,
    port: int,
    cert_dir: Path | None,
    secret: str,
    service: str,
    serve_as: tuple[str, ...],
    configuration: str,
    chosen: tuple[Model, ...],
    max_gpus: int,
    check_every: float,
    drain: float,
    kubeconfig: Path | None,
) -> None:
    """Gate the pods that ask for slices, and reject those that no node could ever serve."""
    clock = SystemClock()
    webhook = Webhook(LargestNode(chosen or models.known(), max_gpus), clock)
    registries.read_from(
        observing.registry,
        lambda: [(ADMISSIONS, {(result,): webhook.answered[result] for result in RESULTS})],
    )
    observing.health.not_ready = lambda: "it does not serve yet"
    namespace, _, name = secret.partition("/")
    if not (namespace and name) or "/" in name:
        raise click.BadParameter("write it NAMESPACE/NAME", param_hint="--secret")
    for kind, part in ((ObjectName(namespace=True), namespace), (ObjectName(), name)):
        try:
            kind.convert(part, None, None)
        except click.BadParameter as error:
            raise click.BadParameter(error.message, param_hint="--secret") from None

    async def stop_serving() -> None:
        webhook.draining = True
        await clock.sleep(drain)

    async def run() -> None:
        async with AsyncExitStack() as stack:
            certificates: CertificateSource
            needed = cert_dir is None or observing.needs_api_server
            client = await _connected(stack, kubeconfig, clock, observing.calls, needed=needed)
            await stack.enter_async_context(observing.served(client, clock))
            if cert_dir is not None:
                certificates = FileSource(cert_dir)
            else:
                assert client is not None, "it is needed"
                served = [f"{service}.{namespace}.svc", *serve_as]
                certificates = SecretSource(
                    client, Key(namespace, name), served, configuration=configuration, clock=clock
                )
            await start(certificates, clock)
            async with serving(webhook, certificates.context, host=host, port=port) as bound:
                observing.health.not_ready = lambda: "stopping" if webhook.draining else ""
                log.info("admission reviews are served on port %d", bound)
                async with asyncio.TaskGroup() as group:
                    noticing = group.create_task(quota_notice.report(client)) if client else None
                    await run_until_signalled(renew(certificates, clock, every=check_every), drain=stop_serving)
                    if noticing:
                        noticing.cancel()

    asyncio.run(run())


async def _connected(
    stack: AsyncExitStack, kubeconfig: Path | None, clock: Clock, observer: Observer, *, needed: bool
) -> Client | None:
    """A client for as long as the stack; None where nothing says how to connect, unless it is needed."""
    try:
        return await stack.enter_async_context(await Client.connect(kubeconfig, clock=clock, observer=observer))
    except KubeconfigError:
        if needed:
            raise
        return None
