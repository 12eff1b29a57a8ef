"""`instaslice controller`: places waiting pods, has their slices created, ungates them. One replica leads."""

import asyncio
import logging
import os
import random
import socket
import sys
from pathlib import Path
from typing import NoReturn

import click

from instaslice.api import names
from instaslice.cli.terminal.finite_range import FiniteRange
from instaslice.cli.terminal.object_name import ObjectName
from instaslice.cli.terminal.observing import Observing, observed
from instaslice.cli.terminal.signals import run_until_signalled
from instaslice.controller.controller import Controller, Settings
from instaslice.controller.errors import Deposed
from instaslice.controller.orders import Limits
from instaslice.controller.placement_check.decisions import HOLD_SECONDS
from instaslice.errors import leaves
from instaslice.kube.cache import freeze_heap
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.errors import LeaseLost
from instaslice.kube.lease import Election
from instaslice.kube.meta import Key
from instaslice.observe import registry as registries
from instaslice.observe.metrics import LEADER, LEASE_AGE, Component
from instaslice.placement import policies

log = logging.getLogger(__name__)

LEASE = "instaslice-controller"
SWITCH_SECONDS = 0.0005
"""After which a thread that computes hands the interpreter to the event loop; with Python's own 5 ms every answer of
the API server would wait that long while the placement policy learns."""
EXAMPLES = """\b
Examples:
  instaslice controller                            in a cluster, as one of two replicas
  instaslice controller --kubeconfig controller.kubeconfig   outside, as the user or account that the policies trust
  instaslice controller --policy first-fit --patience 60
  instaslice controller --taint-nodes --autoscaling-hints 5
  instaslice controller --observe :9510 --metrics-auth --log-format json
"""


@click.command(epilog=EXAMPLES)
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--namespace",
    type=ObjectName(namespace=True),
    default=names.NAMESPACE,
    show_default=True,
    help="Namespace of the Lease.",
)
@click.option("--identity", help="Unique among the replicas.  [default: host name and process]")
@click.option(
    "--policy",
    type=click.Choice(policies.names()),
    default=policies.DEFAULT,
    show_default=True,
    help="How slices are placed.",
)
@click.option(
    "--patience",
    type=FiniteRange(0),
    default=Limits.patience,
    show_default=True,
    help="Seconds that the first pod in the queue lets smaller pods pass; then GPUs are reserved for it.",
)
@click.option(
    "--create-timeout",
    type=FiniteRange(1),
    default=Limits.create,
    show_default=True,
    help="Seconds after which a node whose agent does not answer gets no more pods.",
)
@click.option(
    "--bind-timeout",
    type=FiniteRange(1),
    default=Limits.bind,
    show_default=True,
    help="Seconds after which a pod that has its slices but is not bound fails and releases them.",
)
@click.option(
    "--node-timeout",
    type=FiniteRange(1),
    default=Limits.node,
    show_default=True,
    help="Seconds after which a node that is not ready is given up.",
)
@click.option(
    "--taint-nodes",
    is_flag=True,
    help=f"Keep the taint {names.MANAGED}:NoSchedule on nodes with sliced GPUs, against pods without slices.",
)
@click.option(
    "--static-mig-labels",
    is_flag=True,
    help="Keep on nodes with sliced GPUs the labels that users of static MIG layouts select by.",
)
@click.option(
    "--keep-quotas",
    is_flag=True,
    help="Keep ResourceQuotas on nvidia.com/mig-* counting, with one of ours beside each.",
)
@click.option(
    "--autoscaling-hints",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help=f"Show node autoscalers what pods wait for, with at most N placeholder pods in {names.PLACEHOLDERS}; 0: off.",
)
@click.option(
    "--admission-check",
    is_flag=True,
    help=f"Answer Kueue's AdmissionChecks {names.PLACEMENT_CHECK}: admit a workload when its slices can be placed.",
)
@click.option(
    "--admission-hold",
    type=FiniteRange(1),
    default=HOLD_SECONDS,
    show_default=True,
    help="Seconds from its admission for which places are held for the pods of such a workload.",
)
@click.option("--rate", type=FiniteRange(1), default=1000, show_default=True, help="Maximum requests per second.")
@observed(Component.CONTROLLER)
def command(
    observing: Observing,
    kubeconfig: Path | None,
    namespace: str,
    identity: str | None,
    policy: str,
    patience: float,
    create_timeout: float,
    bind_timeout: float,
    node_timeout: float,
    taint_nodes: bool,
    static_mig_labels: bool,
    keep_quotas: bool,
    autoscaling_hints: int,
    admission_check: bool,
    admission_hold: float,
    rate: float,
) -> None:
    """Place the pods that wait for slices, and release the slices when their pods are gone."""
    limits = Limits(patience=patience, create=create_timeout, bind=bind_timeout, node=node_timeout)
    who = identity or f"{socket.gethostname()}-{os.getpid()}"
    clock, rng = SystemClock(), random.Random()

    async def lead_once(client: Client) -> None:
        election = Election(client, Key(namespace, LEASE), identity=who, clock=clock, rng=rng)
        controller = Controller(
            client,
            policies.named(policy),
            clock=clock,
            rng=rng,
            settings=Settings(
                limits,
                who,
                namespace,
                taint_nodes=taint_nodes,
                static_mig_labels=static_mig_labels,
                keep_quotas=keep_quotas,
                hints=autoscaling_hints,
                admission_check=admission_check,
                hold_seconds=admission_hold,
            ),
            leads=lambda: election.is_fresh,
            registry=observing.registry,
        )
        observing.health.stuck = lambda: "the lease was not renewed for too long" if election.stuck else ""
        observing.health.not_ready = lambda: _not_ready(election, controller)
        registries.read_from(
            observing.registry, lambda: [(LEADER, {(): election.is_leader}), (LEASE_AGE, {(): election.age})]
        )
        await election.run(controller.run)

    async def run() -> None:
        freeze_heap()
        sys.setswitchinterval(SWITCH_SECONDS)
        observing.health.not_ready = lambda: "not started yet"
        async with (
            await Client.connect(
                kubeconfig, clock=clock, rate=rate, burst=int(rate), observer=observing.calls
            ) as client,
            observing.served(client, clock),
        ):
            try:
                await run_until_signalled(lead_once(client))
            except* (Deposed, LeaseLost) as ended:
                for error in leaves(ended):
                    log.warning("%s", error)
                _restart()

    asyncio.run(run())
    log.info("ended")


def _not_ready(election: Election, controller: Controller) -> str:
    """A standby is ready once it knows who leads."""
    if not election.seen:
        return "the API server has not shown the lease yet"
    if election.is_leader and not controller.started:
        return "the objects of the cluster are not known yet"
    return ""


def _restart() -> NoReturn:
    """Become a new process in place of this one: the same command line, pid and output, and nothing else.

    Nothing that we know can be trusted any more, and what lives on in this process (timers, a thread that learns,
    caches that were taken out of garbage collection) can do harm. Exiting would be enough where something restarts us;
    but a Deployment backs off before it does, and a local cluster does not restart us at all. Sockets are closed with
    the process, the lease was released.
    """
    log.info("restarting")
    logging.shutdown()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  our own command line
