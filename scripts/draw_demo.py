"""Write docs/demo.svg: the demo's terminal, drawn from a real run while one pod waits and smaller ones pass it."""

import asyncio
import io
import re
import time
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from instaslice.cli import demo
from instaslice.cli.terminal import timeline
from instaslice.cli.terminal.cluster_watch import ClusterWatch
from instaslice.kube.client import Client
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster

TARGET = Path(__file__).parents[1] / "docs" / "demo.svg"
WIDTH = 100
# No fonts from the network: opening the file loads nothing.
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas"
TEMPLATE = re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code", FONTS)


async def draw(cluster: Cluster) -> str:
    began = time.monotonic()
    async with await Client.connect(cluster.kubeconfig) as client:
        watch = ClusterWatch(client, demo.NAMESPACE, lambda: time.monotonic() - began)
        notes: list[str] = []
        async with asyncio.timeout(demo.TIMEOUT), watch.running():
            pods = asyncio.create_task(demo.run_pods(client, watch, notes.append))
            await watch.until({pod.key for pod in demo.SMALL}, timeline.RUNNING)
            console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
            console.print(Text("$ make demo\n", style="bold"), demo.picture(watch, notes, WIDTH))
            pods.cancel()
    assert watch.timelines.pods[demo.WHALE.key].waits, "whale was to wait"
    return console.export_svg(title="InstaSlice", code_format=TEMPLATE, unique_id="demo")


if __name__ == "__main__":
    cluster = Cluster("picture")
    try:
        cluster.up(demo.CLUSTER, Source(), say=print)
        TARGET.write_text("\n".join(line.rstrip() for line in asyncio.run(draw(cluster)).splitlines()) + "\n")
        print(TARGET)
    finally:
        cluster.down()
