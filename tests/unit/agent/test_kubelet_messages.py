"""The kubelet's APIs: the numbers on the wire, and a plugin that a kubelet could talk to."""

import grpc
import grpc.aio
import pytest
from kubelets import device_lists

from instaslice.agent.kubelet import deviceplugin_pb2 as plugins
from instaslice.agent.kubelet import podresources_pb2 as pods
from instaslice.agent.kubelet import services


@pytest.mark.parametrize(
    "message, wire",
    [
        pytest.param(
            plugins.RegisterRequest(version="v1beta1", endpoint="a.sock", resource_name="g/m"),
            b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x03g/m",
            id="register",
        ),
        pytest.param(
            plugins.Device(ID="d", health="Healthy", topology={"nodes": [{"ID": 1}]}),
            b"\x0a\x01d\x12\x07Healthy\x1a\x04\x0a\x02\x08\x01",
            id="device",
        ),
        pytest.param(
            plugins.ContainerAllocateResponse(envs={"A": "b"}, cdi_devices=[{"name": "x"}]),
            b"\x0a\x06\x0a\x01A\x12\x01b\x2a\x03\x0a\x01x",
            id="allocate",
        ),
        pytest.param(
            pods.ContainerDevices(resource_name="r", device_ids=["a", "b"]), b"\x0a\x01r\x12\x01a\x12\x01b", id="held"
        ),
    ],
)
def test_messages_have_the_numbers_of_kubernetes(message, wire):
    assert message.SerializeToString(deterministic=True) == wire


def test_what_a_newer_kubelet_adds_is_passed_over():
    told = pods.PodResources.FromString(b"\x0a\x01p\x12\x01n\x20\x07")  # cpu_ids, which we leave out
    assert (told.name, told.namespace) == ("p", "n")


async def test_a_plugin_answers_over_its_socket(tmp_path):
    async def options(_question, _context):
        return plugins.DevicePluginOptions(pre_start_required=True)

    async def devices(_question, _context):
        for health in ("Healthy", "Unhealthy"):
            yield plugins.ListAndWatchResponse(devices=[plugins.Device(ID="slot-0", health=health)])

    async def allocate(_question, context):
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no slice 1g.5gb is free")

    server = grpc.aio.server()
    services.serve(server, {services.OPTIONS: options, services.LIST_AND_WATCH: devices, services.ALLOCATE: allocate})
    address = f"unix://{tmp_path}/plugin.sock"
    server.add_insecure_port(address)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            told = await services.OPTIONS.call(channel, plugins.Empty(), timeout=10)
            assert told.pre_start_required
            seen = [each.devices[0].health async for each in device_lists(channel)]
            assert seen == ["Healthy", "Unhealthy"]
            with pytest.raises(grpc.aio.AioRpcError, match=r"no slice 1g\.5gb is free"):
                await services.ALLOCATE.call(channel, plugins.AllocateRequest(), timeout=10)
            with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
                await services.LIST_PODS.call(channel, pods.ListPodResourcesRequest(), timeout=10)
    finally:
        await server.stop(None)
