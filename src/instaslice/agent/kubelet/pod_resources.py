"""Which container holds which device id, from the kubelet.

Its PodResources API lists containers and sidecars. It leaves out init containers, although they hold devices: those are
read from the kubelet's own checkpoint, which is no API, and only where the API knows no holder.
"""

from collections.abc import Mapping
from pathlib import Path

import grpc.aio
import msgspec

from instaslice.agent.kubelet import podresources_pb2 as pods
from instaslice.agent.kubelet.device_ids import DeviceHolder, DeviceId
from instaslice.agent.kubelet.services import LIST_PODS
from instaslice.api import names

TIMEOUT = 10.0
CHECKPOINT = "kubelet_internal_checkpoint"

Holders = dict[DeviceId, list[DeviceHolder]]


class _Entry(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str]] = msgspec.field(name="DeviceIDs")


class _Data(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_Entry] | None = None


class _Checkpoint(msgspec.Struct, rename="pascal"):
    data: _Data


async def from_pod_resources(socket: Path) -> Holders:
    """Raises grpc.aio.AioRpcError where the kubelet does not answer."""
    # A new channel each time: one that is kept backs off longer and longer from a kubelet that was away.
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        answer = await LIST_PODS.call(channel, pods.ListPodResourcesRequest(), timeout=TIMEOUT)
    found: Holders = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                if devices.resource_name.startswith(names.RESOURCE):
                    for each in devices.device_ids:
                        holder = DeviceHolder(container.name, namespace=pod.namespace, pod=pod.name)
                        found.setdefault(DeviceId(each), []).append(holder)
    return found


def from_checkpoint(folder: Path) -> Mapping[DeviceId, list[DeviceHolder]]:
    """Every holder in the kubelet's checkpoint. Empty where there is none; raises msgspec.DecodeError where another
    version of the kubelet has written another format."""
    try:
        checkpoint = msgspec.json.decode((folder / CHECKPOINT).read_bytes(), type=_Checkpoint)
    except FileNotFoundError:
        return {}
    found: Holders = {}
    for entry in checkpoint.data.pod_device_entries or ():
        if entry.resource_name.startswith(names.RESOURCE):
            for ids in entry.device_ids.values():
                for each in ids:
                    found.setdefault(DeviceId(each), []).append(DeviceHolder(entry.container_name, uid=entry.pod_uid))
    return found
