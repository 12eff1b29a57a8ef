"""What has changed between two states of a fleet, one line for each thing that did: for logs and pipes.

Pure.
"""

from collections.abc import Iterator

from instaslice.controller.fleet_status import FleetStatus


def changes(before: FleetStatus | None, now: FleetStatus) -> Iterator[str]:
    """Without a state before, everything there is."""
    old, new = (_facts(each) if each else {} for each in (before, now))
    for thing, text in new.items():
        if old.get(thing) != text:
            yield f"{thing}: {text}"
    for thing in old:
        if thing not in new:
            yield f"{thing}: {'no longer waits' if thing.startswith('pod ') else 'gone'}"


def _facts(status: FleetStatus) -> dict[str, str]:
    """Thing → what is said of it, without ages, which change all the time."""
    facts: dict[str, str] = {}
    for node in status.nodes:
        facts[f"node {node.name}"] = node.out_of_use or "in use"
        for gpu in node.gpus:
            where = f"GPU {gpu.index if gpu.index is not None else gpu.uuid} of {node.name}"
            fits = gpu.largest_fit or "nothing"
            facts[where] = gpu.out_of_use or f"{gpu.free_gb:.0f} GB free, fits {fits}"
            for slot in gpu.slots:
                what = f"slice {slot.profile} at {slot.start} of {where}"
                pod = f" for pod {slot.pod}" if slot.pod else ""
                facts[what] = f"{slot.state}{pod}{f': {slot.reason}' if slot.reason else ''}"
    for each in status.waiting:
        position = f", position {each.position}" if each.position is not None else ""
        facts[f"pod {each.pod}"] = f"{each.stage}{position}: {each.message}"
    facts |= {f"left out: {each}": "cannot be read" for each in status.left_out}
    facts |= {f"missing: {kind}": why for kind, why in status.missing.items()}
    return facts
