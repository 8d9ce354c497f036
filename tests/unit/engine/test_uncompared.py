"""What a worker has read while the master was away, so that nobody compared it, does not stay."""

from collections.abc import Sequence

import grpc
import pytest

from tdcs.engine.alluxio import engine as module
from tdcs.engine.alluxio.engine import AlluxioEngine
from tdcs.engine.alluxio.placements import Place
from tdcs.engine.alluxio.rpc import RpcFailureError
from tdcs.engine.protocol import Block, EngineError, PutFailure, WorkerInfo

INFO = WorkerInfo(name="a", address="a:1", capacity_bytes=100, used_bytes=0, live=True)


async def test_what_could_not_be_compared_goes_and_what_lay_there_before_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removed: list[int] = []

    class Reader:
        def __init__(self, **_: object) -> None: ...

        async def load(self, blocks: Sequence[Block]) -> tuple[list[PutFailure], list[int]]:
            return [PutFailure(block_id=3, reason="broken", retryable=True)], [1]

    class Worker:
        async def remove(self, block_id: int) -> None:
            removed.append(block_id)

    async def away(*_: object, **__: object) -> list[int]:
        raise RpcFailureError(code=grpc.StatusCode.UNAVAILABLE, text="away")

    monkeypatch.setattr(module, "SourceReader", Reader)
    monkeypatch.setattr(module, "outdated_blocks", away)
    engine = AlluxioEngine(master="master:1")
    monkeypatch.setattr(engine, "_worker", lambda _: Worker())

    async def place(*, place: Place, blocks: Sequence[Block], **_: object) -> list[PutFailure]:
        return (await place(INFO, list(blocks)))[0]

    monkeypatch.setattr(engine._placements, "place", place)
    blocks = [
        Block(id=number, length=1, offset=0, source_path=f"s3://b/{number}", mount_id=1)
        for number in (1, 2, 3, 4)
    ]

    with pytest.raises(EngineError):
        await engine.put(worker="a", blocks=blocks)
    assert removed == [2, 4]
