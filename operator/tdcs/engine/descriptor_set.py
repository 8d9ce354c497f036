"""gRPC messages and services, made at run time from a compiled descriptor set that a package ships.

No generated Python module exists, so that no particular version of the protobuf runtime is baked in. Each set has a
pool of its own, so that its names clash with no others of the process.
"""

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message


class DescriptorSet:
    """The messages and services of one file."""

    def __init__(self, *, package: str, file: str) -> None:
        self._pool: Final = descriptor_pool.DescriptorPool()
        content = files(package).joinpath(file).read_bytes()
        for file_descriptor in descriptor_pb2.FileDescriptorSet.FromString(content).file:
            self._pool.AddSerializedFile(file_descriptor.SerializeToString())

    def message(self, name: str) -> type[Message]:
        """The class of a message, by its full name such as `csi.v1.ProbeResponse`; KeyError if there is none."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))

    def method_types(self, service: str, method: str) -> tuple[type[Message], type[Message]]:
        """Request and response class of an RPC; KeyError if there is no such service or method."""
        rpc = self._pool.FindServiceByName(service).methods_by_name[method]
        return message_factory.GetMessageClass(rpc.input_type), message_factory.GetMessageClass(
            rpc.output_type
        )

    def service(self, name: str, handlers: Mapping[str, Callable[..., Any]]) -> grpc.GenericRpcHandler:
        """A servable service: `handlers` has one coroutine for every method, an async generator for one that streams.

        Raises:
            ValueError: a method has no handler, or a handler no method: a server that lacks one would only fail when
                it is called.
        """
        methods = self._pool.FindServiceByName(name).methods_by_name
        if set(methods) != set(handlers):
            raise ValueError(
                f"service {name} has the methods {sorted(methods)}, handlers were given for {sorted(handlers)}"
            )
        served = {}
        for method, descriptor in methods.items():
            request_type, response_type = self.method_types(name, method)
            serve = (
                grpc.unary_stream_rpc_method_handler
                if descriptor.server_streaming
                else grpc.unary_unary_rpc_method_handler
            )
            served[method] = serve(
                handlers[method],
                request_deserializer=request_type.FromString,
                response_serializer=response_type.SerializeToString,
            )
        return grpc.method_handlers_generic_handler(name, served)
