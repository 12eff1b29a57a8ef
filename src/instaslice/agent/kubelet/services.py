"""The methods of the kubelet's APIs, to call and to serve, over gRPC on a unix socket.

Instead of generated stubs, which have no types: a method is its path and its two messages.
"""

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
    """One method: who serves it, what it is called, what goes in and what comes out; `stream`: again and again."""

    service: str
    name: str
    question: type[Q]
    answer: type[A]
    stream: bool = False

    async def call(self, channel: grpc.aio.Channel, question: Q, *, timeout: float) -> A:
        """Ask once. Raises grpc.aio.AioRpcError."""
        ask = channel.unary_unary(
            f"/{self.service}/{self.name}",
            request_serializer=self.question.SerializeToString,
            response_deserializer=self.answer.FromString,
        )
        answer: A = await ask(question, timeout=timeout)
        return answer

    def watch(self, channel: grpc.aio.Channel, question: Q) -> AsyncIterator[A]:
        """Every answer as it comes. Raises grpc.aio.AioRpcError when the other side ends."""
        ask = channel.unary_stream(
            f"/{self.service}/{self.name}",
            request_serializer=self.question.SerializeToString,
            response_deserializer=self.answer.FromString,
        )
        return aiter(ask(question))


REGISTER = Method("v1beta1.Registration", "Register", plugins.RegisterRequest, plugins.Empty)
"""Served by the kubelet."""

_PLUGIN = "v1beta1.DevicePlugin"
OPTIONS = Method(_PLUGIN, "GetDevicePluginOptions", plugins.Empty, plugins.DevicePluginOptions)
LIST_AND_WATCH = Method(_PLUGIN, "ListAndWatch", plugins.Empty, plugins.ListAndWatchResponse, stream=True)
PREFERRED = Method(
    _PLUGIN, "GetPreferredAllocation", plugins.PreferredAllocationRequest, plugins.PreferredAllocationResponse
)
ALLOCATE = Method(_PLUGIN, "Allocate", plugins.AllocateRequest, plugins.AllocateResponse)
PRE_START = Method(_PLUGIN, "PreStartContainer", plugins.PreStartContainerRequest, plugins.PreStartContainerResponse)

_PODS = "v1.PodResourcesLister"
LIST_PODS = Method(_PODS, "List", pods.ListPodResourcesRequest, pods.ListPodResourcesResponse)
GET_POD = Method(_PODS, "Get", pods.GetPodResourcesRequest, pods.GetPodResourcesResponse)
ALLOCATABLE = Method(
    _PODS, "GetAllocatableResources", pods.AllocatableResourcesRequest, pods.AllocatableResourcesResponse
)

Served = Callable[[Any, Context], Awaitable[Message]] | Callable[[Any, Context], AsyncIterator[Message]]
"""What answers: a coroutine function, or for a method that streams an async generator."""


def serve(server: grpc.aio.Server, methods: Mapping[Method[Any, Any], Served]) -> None:
    """Have a server answer these; what is not among them is refused as unimplemented."""
    services: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for method, answer in methods.items():
        make = grpc.unary_stream_rpc_method_handler if method.stream else grpc.unary_unary_rpc_method_handler
        services.setdefault(method.service, {})[method.name] = make(
            answer,
            request_deserializer=method.question.FromString,
            response_serializer=method.answer.SerializeToString,
        )
    for service, handlers in services.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
