"""One device plugin: serves the device ids of one resource to the kubelet, on a socket beside its own."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from instaslice.agent.kubelet import deviceplugin_pb2 as plugins
from instaslice.agent.kubelet import services
from instaslice.agent.kubelet.device_ids import DeviceId
from instaslice.agent.kubelet.services import Context
from instaslice.api.names import GROUP
from instaslice.errors import InstasliceError

log = logging.getLogger(__name__)

VERSION: Final = "v1beta1"
KUBELET: Final = "kubelet.sock"
REGISTER_SECONDS: Final = 10.0
LONGEST_SOCKET: Final = 107
"""Bytes in the path of a Unix socket; Linux allows no more."""
HEALTH: Final = {True: "Healthy", False: "Unhealthy"}


class NoSlice(InstasliceError):
    """The kubelet asks for a slice that does not exist."""


Devices = Mapping[DeviceId, bool]
"""All device ids of a resource → whether they are healthy."""
Allocate = Callable[[Sequence[DeviceId]], Sequence[str]]
"""Device ids that a container gets → its CDI device names. Raises NoSlice."""


class DevicePlugin:
    """Serves one resource. Every stream begins with the full list and repeats it at each `publish`."""

    def __init__(
        self, folder: Path, resource: str, devices: Devices, allocate: Allocate, connection_changed: Callable[[], None]
    ) -> None:
        """`connection_changed` is called when a kubelet has read the list for the first time, and when it
        disconnects."""
        self.resource = resource
        self._folder = folder
        self._devices = devices
        self._allocate = allocate
        self._connection_changed = connection_changed
        self._streams: dict[asyncio.Event, bool] = {}
        """What wakes each, and whether its first list was sent."""
        self._server: grpc.aio.Server | None = None

    @property
    def socket(self) -> Path:
        return self._folder / f"{GROUP}-{self.resource.rpartition('/')[2]}.sock"

    @property
    def socket_removed(self) -> bool:
        """Whether its socket was removed, which a kubelet does when it starts."""
        return self._server is not None and not self.socket.exists()

    @property
    def connected(self) -> bool:
        """Whether a kubelet has read the list and still listens."""
        return any(self._streams.values())

    def publish(self, devices: Devices) -> None:
        """Send a new list; nothing where nothing has changed."""
        if devices == self._devices:
            return
        self._devices = devices
        for stream in self._streams:
            stream.set()

    async def start(self) -> None:
        """Serve, then register. Raises grpc.aio.AioRpcError where the kubelet does not answer, OSError or RuntimeError
        where the socket cannot be opened."""
        if len(os.fsencode(self.socket)) > LONGEST_SOCKET:
            raise OSError(f"{self.socket} is too long a path for a socket; give the kubelet's folder a shorter one")
        self.socket.unlink(missing_ok=True)  # left by a process that was killed
        server = self._server = grpc.aio.server()
        methods: Mapping[services.Method[Any, Any], services.Served] = {
            services.OPTIONS: self._options,
            services.LIST_AND_WATCH: self._list_and_watch,
            services.ALLOCATE: self._serve_allocate,
        }
        services.serve(server, methods)
        server.add_insecure_port(f"unix:{self.socket}")
        await server.start()
        request = plugins.RegisterRequest(version=VERSION, endpoint=self.socket.name, resource_name=self.resource)
        async with grpc.aio.insecure_channel(f"unix:{self._folder / KUBELET}") as channel:
            await services.REGISTER.call(channel, request, timeout=REGISTER_SECONDS)

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    # Called by the kubelet ------------------------------------------------------------------------------------------

    async def _options(self, _request: plugins.Empty, _context: Context) -> plugins.DevicePluginOptions:
        return plugins.DevicePluginOptions()

    async def _list_and_watch(
        self, _request: plugins.Empty, _context: Context
    ) -> AsyncIterator[plugins.ListAndWatchResponse]:
        changed = asyncio.Event()
        self._streams[changed] = False
        try:
            while True:
                changed.clear()
                devices = [plugins.Device(ID=each, health=HEALTH[healthy]) for each, healthy in self._devices.items()]
                yield plugins.ListAndWatchResponse(devices=devices)
                if not self._streams[changed]:
                    self._streams[changed] = True
                    self._connection_changed()
                await changed.wait()
        finally:
            if self._streams.pop(changed):
                self._connection_changed()

    async def _serve_allocate(self, request: plugins.AllocateRequest, context: Context) -> plugins.AllocateResponse:
        response = plugins.AllocateResponse()
        try:
            for container in request.container_requests:
                devices = self._allocate([DeviceId(each) for each in container.devices_ids])
                response.container_responses.add(cdi_devices=[plugins.CDIDevice(name=name) for name in devices])
        except NoSlice as error:
            log.warning("%s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return response
