"""The kubelet's side of device plugins, played: for tests of who asks when, and where no real one can run."""

import asyncio

import grpc.aio

from instaslice.agent.kubelet import deviceplugin_pb2 as plugins
from instaslice.agent.kubelet import podresources_pb2 as pods
from instaslice.agent.kubelet import services
from instaslice.agent.kubelet.paths import NodePaths


def device_lists(channel):
    """Every list that a device plugin sends, as it comes."""
    method = services.LIST_AND_WATCH
    stream = channel.unary_stream(
        f"/{method.service}/{method.name}",
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
    return aiter(stream(plugins.Empty()))


RESOURCE = "gpu.das.com/mig-1g.5gb"


class Kubelet:
    """Registers plugins, and says which pod holds each device id."""

    def __init__(self, root):
        self.paths = NodePaths(root / "kubelet", root / "cdi", root / "state")
        self.registered = {}
        self.held = {}
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        """Set when an answer who holds what is made up, and waited for before it is given."""
        self.answers.set()
        self._server = None

    async def start(self):
        for folder in (self.paths.plugins, self.paths.pod_resources.parent):
            folder.mkdir(parents=True, exist_ok=True)
            for each in folder.glob("*.sock"):
                each.unlink()
        self.registered.clear()
        self._server = grpc.aio.server()
        services.serve(self._server, {services.REGISTER: self._register, services.LIST_PODS: self._list})
        for socket in (self.paths.plugins / "kubelet.sock", self.paths.pod_resources):
            self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def stop(self):
        await self._server.stop(None)

    async def _register(self, question, _context):
        self.registered[question.resource_name] = question.endpoint
        return plugins.Empty()

    async def _list(self, _question, _context):
        answer = pods.ListPodResourcesResponse()
        for seat, pod in self.held.items():
            main = answer.pod_resources.add(name=pod, namespace="team").containers.add(name="main")
            main.devices.add(resource_name=RESOURCE, device_ids=[seat])
        self.asked.set()
        await self.answers.wait()
        return answer

    def channel(self, resource=RESOURCE):
        return grpc.aio.insecure_channel(f"unix:{self.paths.plugins / self.registered[resource]}")

    async def admit(self, pod, *seats):
        async with self.channel() as channel:
            question = plugins.AllocateRequest(container_requests=[{"devices_ids": seats}])
            answer = await services.ALLOCATE.call(channel, question, timeout=10)
        self.held.update(dict.fromkeys(seats, pod))
        return [each.name for each in answer.container_responses[0].cdi_devices]


class Listener(Kubelet):
    """Also listens to what registers, and tells how many of each resource there are."""

    def __init__(self, root, advertise):
        super().__init__(root)
        self._advertise = advertise
        self._streams = set()

    async def stop(self):
        for each in self._streams:
            each.cancel()
        await super().stop()

    async def _register(self, question, context):
        answer = await super()._register(question, context)
        stream = asyncio.create_task(self._listen(question.resource_name))
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)
        return answer

    async def _listen(self, resource):
        async with self.channel(resource) as channel:
            try:
                async for told in device_lists(channel):
                    await self._advertise(resource, sum(each.health == "Healthy" for each in told.devices))
            except grpc.aio.AioRpcError:
                return  # the plugin was stopped, and registers again when it is back
