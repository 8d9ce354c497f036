"""Alluxio's gRPC messages, made at run time from `alluxio.desc`.

Generated modules would be named after proto files called `grpc/…`, and so shadow the gRPC library itself.
"""

from __future__ import annotations

from functools import cache

from google.protobuf.message import Message

from tdcs.engine.descriptor_set import DescriptorSet


@cache
def _set() -> DescriptorSet:
    return DescriptorSet(package="tdcs.alluxio", file="alluxio.desc")


@cache
def method_types(service: str, method: str) -> tuple[type[Message], type[Message]]:
    """Request and response class of an RPC.

    Raises:
        KeyError: No such service or method.
    """
    return _set().method_types(service, method)
