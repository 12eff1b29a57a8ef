"""`instaslice controller`: finds room for waiting pods, has their slices made, lets them go. One of several leads."""

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
from instaslice.cli.numbers import Finite
from instaslice.cli.signals import run_until_signalled
from instaslice.controller.controller import Controller, Settings
from instaslice.controller.errors import Deposed
from instaslice.controller.orders import Limits
from instaslice.errors import leaves
from instaslice.kube.cache import freeze_heap
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.errors import LeaseLost
from instaslice.kube.lease import Election
from instaslice.kube.meta import Key
from instaslice.placement import policies

log = logging.getLogger(__name__)

LEASE = "instaslice-controller"
EXAMPLES = """\b
Examples:
  instaslice controller                            in a cluster, as one of two replicas
  instaslice controller --kubeconfig ~/.kube/config
  instaslice controller --policy first-fit --patience 60
  instaslice controller --taint-nodes --autoscaling-hints 5
"""


@click.command(epilog=EXAMPLES)
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--namespace", default=names.NAMESPACE, show_default=True, help="Where the Lease is.")
@click.option("--identity", help="Unique among the replicas.  [default: host name and process]")
@click.option(
    "--policy", type=click.Choice(policies.names()), default=policies.DEFAULT, show_default=True, help="Who goes where."
)
@click.option(
    "--patience",
    type=Finite(0),
    default=Limits.patience,
    show_default=True,
    help="Seconds that the first in line lets smaller pods pass; then room is kept for it.",
)
@click.option(
    "--create-timeout",
    type=Finite(1),
    default=Limits.create,
    show_default=True,
    help="Seconds after which a node whose agent does not answer is left alone.",
)
@click.option(
    "--bind-timeout",
    type=Finite(1),
    default=Limits.bind,
    show_default=True,
    help="Seconds after which a pod with slices that nobody binds fails and gives them back.",
)
@click.option(
    "--node-timeout",
    type=Finite(1),
    default=Limits.node,
    show_default=True,
    help="Seconds after which a node that is not ready is given up.",
)
@click.option(
    "--taint-nodes",
    is_flag=True,
    help=f"Keep the taint {names.MANAGED}:NoSchedule on the nodes whose GPUs are ours: pods without slices stay off.",
)
@click.option(
    "--autoscaling-hints",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help=f"Show node autoscalers what pods wait for, with at most N placeholder pods in {names.PLACEHOLDERS}; 0: off.",
)
@click.option("--rate", type=Finite(1), default=1000, show_default=True, help="Requests a second, at most.")
def command(
    kubeconfig: Path | None,
    namespace: str,
    identity: str | None,
    policy: str,
    patience: float,
    create_timeout: float,
    bind_timeout: float,
    node_timeout: float,
    taint_nodes: bool,
    autoscaling_hints: int,
    rate: float,
) -> None:
    """Place the pods that wait for slices, and take slices back when their pods are gone."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
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
            settings=Settings(limits, who, namespace, taint_nodes, autoscaling_hints),
            leads=lambda: election.is_fresh,
        )
        await election.run(controller.run)

    async def run() -> None:
        freeze_heap()
        async with await Client.connect(kubeconfig, clock=clock, rate=rate, burst=int(rate)) as client:
            try:
                await run_until_signalled(lead_once(client))
            except* (Deposed, LeaseLost) as ended:
                for error in leaves(ended):
                    log.warning("%s", error)
                _begin_again()

    asyncio.run(run())
    log.info("ended")


def _begin_again() -> NoReturn:
    """Become a new process in place of this one: the same command line, pid and output, and nothing else.

    Nothing that was known may be trusted any more, and what lives on in this process (timers, a thread that learns,
    caches that were taken out of garbage collection) can do harm. To exit would do as well where somebody starts us
    again; but a Deployment waits ever longer before it does, and a local cluster does not. Sockets are closed with the
    process, the lease was released.
    """
    log.info("starting anew")
    logging.shutdown()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  our own command line
