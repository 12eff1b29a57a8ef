"""The gRPC methods of the kubelet's APIs that we call or serve. Generated stubs would have no types."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from instaslice.agent.kubelet import deviceplugin_pb2 as plugins
from instaslice.agent.kubelet import podresources_pb2 as pods

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class Method(Generic[Q, A]):
    """One method: its service, its name, its request and its response; with `stream` one response after another."""

    service: str
    name: str
    request: type[Q]
    response: type[A]
    stream: bool = False

    async def call(self, channel: grpc.aio.Channel, request: Q, *, timeout: float) -> A:
        """Call it once. Raises grpc.aio.AioRpcError."""
        method = channel.unary_unary(
            f"/{self.service}/{self.name}",
            request_serializer=self.request.SerializeToString,
            response_deserializer=self.response.FromString,
        )
        answer: A = await method(request, timeout=timeout)
        return answer


REGISTER = Method("v1beta1.Registration", "Register", plugins.RegisterRequest, plugins.Empty)
"""Served by the kubelet."""

_PLUGIN = "v1beta1.DevicePlugin"
OPTIONS = Method(_PLUGIN, "GetDevicePluginOptions", plugins.Empty, plugins.DevicePluginOptions)
LIST_AND_WATCH = Method(_PLUGIN, "ListAndWatch", plugins.Empty, plugins.ListAndWatchResponse, stream=True)
ALLOCATE = Method(_PLUGIN, "Allocate", plugins.AllocateRequest, plugins.AllocateResponse)

_PODS = "v1.PodResourcesLister"
LIST_PODS = Method(_PODS, "List", pods.ListPodResourcesRequest, pods.ListPodResourcesResponse)

Served = Callable[[Any, Context], Awaitable[Message]] | Callable[[Any, Context], AsyncIterator[Message]]
"""The implementation: a coroutine function, or an async generator for a method that streams."""


def serve(server: grpc.aio.Server, methods: Mapping[Method[Any, Any], Served]) -> None:
    """Have a server implement these methods; it answers UNIMPLEMENTED to all others."""
    services: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for method, answer in methods.items():
        make = grpc.unary_stream_rpc_method_handler if method.stream else grpc.unary_unary_rpc_method_handler
        services.setdefault(method.service, {})[method.name] = make(
            answer,
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )
    for service, handlers in services.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
