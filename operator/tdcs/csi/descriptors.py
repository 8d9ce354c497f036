"""Messages and services of the two gRPC interfaces, made at run time from the shipped descriptor set.

The descriptor set `csi.desc` is compiled from the files in `proto/`; no generated Python module exists, so
that no particular version of the protobuf runtime is baked in.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

DESCRIPTOR_FILE: Final = "csi.desc"

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
else:  # generic for the type checker alone
    Context = grpc.aio.ServicerContext

Handler = Callable[[Any, Context], Awaitable[Message]]
"""One RPC: takes the request message and the call's context, returns the response message."""


def _load_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    content = files(__package__).joinpath(DESCRIPTOR_FILE).read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.Add(file)
    return pool


_POOL: Final = _load_pool()


def message(*, name: str) -> type[Message]:
    """The class of a message, by its full name such as `csi.v1.ProbeResponse`; KeyError if there is none."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


def service(*, name: str, handlers: Mapping[str, Handler]) -> grpc.GenericRpcHandler:
    """A servable service: `handlers` has one coroutine for every method of the service `name`.

    Raises ValueError if a method has no handler, or a handler no method: a plugin that lacks one would only
    fail when kubelet calls it.
    """
    methods = _POOL.FindServiceByName(name).methods_by_name
    if set(methods) != set(handlers):
        raise ValueError(
            f"service {name} has the methods {sorted(methods)}, handlers were given for {sorted(handlers)}"
        )
    return grpc.method_handlers_generic_handler(
        name,
        {
            method: grpc.unary_unary_rpc_method_handler(
                handlers[method],
                request_deserializer=message_factory.GetMessageClass(descriptor.input_type).FromString,
                response_serializer=message_factory.GetMessageClass(descriptor.output_type).SerializeToString,
            )
            for method, descriptor in methods.items()
        },
    )
