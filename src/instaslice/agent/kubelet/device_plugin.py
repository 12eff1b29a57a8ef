"""One device plugin: what the kubelet is told of one resource, over a socket beside its own."""

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
    """The kubelet asks for a slice that is not there."""


Devices = Mapping[DeviceId, bool]
"""All seats of a resource → whether they are well."""
Allocate = Callable[[Sequence[DeviceId]], Sequence[str]]
"""Seats that a container gets → names of its devices for the runtime. Raises NoSlice."""


class DevicePlugin:
    """Serves one resource. Every stream begins with the full list and repeats it whole at each `show`."""

    def __init__(
        self, folder: Path, resource: str, devices: Devices, allocate: Allocate, listened: Callable[[], None]
    ) -> None:
        """`listened` is called when a kubelet has been told for the first time what there is, and when it is gone."""
        self.resource = resource
        self._folder = folder
        self._devices = devices
        self._allocate = allocate
        self._listened = listened
        self._streams: dict[asyncio.Event, bool] = {}
        """What wakes each, and whether it has told its first list."""
        self._server: grpc.aio.Server | None = None

    @property
    def socket(self) -> Path:
        return self._folder / f"{GROUP}-{self.resource.rpartition('/')[2]}.sock"

    @property
    def lost(self) -> bool:
        """Whether its socket was taken away, as a kubelet does that starts."""
        return self._server is not None and not self.socket.exists()

    @property
    def heard(self) -> bool:
        """Whether a kubelet listens and knows what there is."""
        return any(self._streams.values())

    def show(self, devices: Devices) -> None:
        """What there is from now on; no news if nothing changed."""
        if devices == self._devices:
            return
        self._devices = devices
        for stream in self._streams:
            stream.set()

    async def start(self) -> None:
        """Serve, then tell the kubelet. Raises grpc.aio.AioRpcError where it does not answer, OSError, RuntimeError
        where the socket cannot be had."""
        if len(os.fsencode(self.socket)) > LONGEST_SOCKET:
            raise OSError(f"{self.socket} is too long a path for a socket; give the kubelet's folder a shorter one")
        self.socket.unlink(missing_ok=True)  # of a process that was killed
        server = self._server = grpc.aio.server()
        answers: Mapping[services.Method[Any, Any], services.Served] = {
            services.OPTIONS: self._options,
            services.LIST_AND_WATCH: self._list_and_watch,
            services.ALLOCATE: self._answer,
        }
        services.serve(server, answers)
        server.add_insecure_port(f"unix:{self.socket}")
        await server.start()
        request = plugins.RegisterRequest(version=VERSION, endpoint=self.socket.name, resource_name=self.resource)
        async with grpc.aio.insecure_channel(f"unix:{self._folder / KUBELET}") as channel:
            await services.REGISTER.call(channel, request, timeout=REGISTER_SECONDS)

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    # What the kubelet asks ------------------------------------------------------------------------------------------

    async def _options(self, _question: plugins.Empty, _context: Context) -> plugins.DevicePluginOptions:
        return plugins.DevicePluginOptions()

    async def _list_and_watch(
        self, _question: plugins.Empty, _context: Context
    ) -> AsyncIterator[plugins.ListAndWatchResponse]:
        changed = asyncio.Event()
        self._streams[changed] = False
        try:
            while True:
                changed.clear()
                told = [plugins.Device(ID=seat, health=HEALTH[well]) for seat, well in self._devices.items()]
                yield plugins.ListAndWatchResponse(devices=told)
                if not self._streams[changed]:
                    self._streams[changed] = True
                    self._listened()
                await changed.wait()
        finally:
            if self._streams.pop(changed):
                self._listened()

    async def _answer(self, question: plugins.AllocateRequest, context: Context) -> plugins.AllocateResponse:
        answer = plugins.AllocateResponse()
        try:
            for container in question.container_requests:
                devices = self._allocate([DeviceId(each) for each in container.devices_ids])
                answer.container_responses.add(cdi_devices=[plugins.CDIDevice(name=name) for name in devices])
        except NoSlice as error:
            log.warning("%s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return answer
