"""Messages and services of the two gRPC interfaces, made at run time from the shipped descriptor set.

The descriptor set `csi.desc` is compiled from the files in `proto/`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message

from tdcs.engine.descriptor_set import DescriptorSet

DESCRIPTOR_FILE: Final = "csi.desc"

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
else:  # generic for the type checker alone
    Context = grpc.aio.ServicerContext

Handler = Callable[[Any, Context], Awaitable[Message]]
"""One RPC: takes the request message and the call's context, returns the response message."""


_SET: Final = DescriptorSet(package=__package__, file=DESCRIPTOR_FILE)


def message(*, name: str) -> type[Message]:
    """The class of a message, by its full name such as `csi.v1.ProbeResponse`; KeyError if there is none."""
    return _SET.message(name)


def service(*, name: str, handlers: Mapping[str, Handler]) -> grpc.GenericRpcHandler:
    return _SET.service(name, handlers)
