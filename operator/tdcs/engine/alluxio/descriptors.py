"""Alluxio's gRPC messages, made at run time from `alluxio.desc`.

Generated modules would be named after proto files called `grpc/…`, and so shadow the gRPC library itself. A
private descriptor pool has no such clash, and keeps Alluxio's names out of the process-wide one.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    data = resources.files("tdcs.engine.alluxio").joinpath("alluxio.desc").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@cache
def message_class(name: str) -> type[Message]:
    """The class of a message by its full name, such as `alluxio.grpc.file.MountPRequest`.

    Raises:
        KeyError: The descriptor set has no such message.
    """
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


@cache
def method_types(service: str, method: str) -> tuple[type[Message], type[Message]]:
    """Request and response class of an RPC.

    Raises:
        KeyError: No such service or method.
    """
    found = _pool().FindServiceByName(service).methods_by_name[method]
    return message_class(found.input_type.full_name), message_class(found.output_type.full_name)
