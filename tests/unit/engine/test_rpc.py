"""Which failures of a call mean that a process is away, so that the call is made again."""

import grpc
import pytest

from tdcs.alluxio.rpc import RpcFailureError

CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "text", "starting"),
    [
        (CODE.UNAVAILABLE, "failed to connect to all addresses", True),
        (CODE.UNIMPLEMENTED, "Method not found: alluxio.grpc.block.BlockMasterClientService", True),
        (CODE.UNIMPLEMENTED, "not supported by this file system", False),
        (CODE.INTERNAL, "the master is in safe mode", True),
        (CODE.CANCELLED, "Stream removed (RST_STREAM (Received RST_STREAM with error code 8))", True),
        (CODE.CANCELLED, "the client has cancelled the load", False),
        (CODE.NOT_FOUND, "no such path", False),
    ],
)
def test_a_process_that_ends_or_starts_is_told_from_one_that_refuses(
    code: grpc.StatusCode, text: str, starting: bool
) -> None:
    assert RpcFailureError(code=code, text=text).starting is starting
