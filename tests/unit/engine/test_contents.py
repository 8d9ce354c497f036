"""What travels to several workers is read once."""

import asyncio

import grpc
import pytest

from tdcs.engine.alluxio.contents import Contents
from tdcs.engine.alluxio.rpc import RpcFailureError


class Giver:
    """Blocks whose content is their number; each read waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reads: list[int] = []
        self.go = asyncio.Event()
        self.go.set()
        self.broken = False

    async def read(self, number: int) -> bytes:
        self.reads.append(number)
        await self.go.wait()
        if self.broken:
            raise RpcFailureError(code=grpc.StatusCode.UNAVAILABLE, text="away")
        return bytes([number])


async def read(contents: Contents, giver: Giver, number: int) -> bytes:
    return await contents.get(block_id=number, length=1, read=lambda: giver.read(number))


async def test_two_receivers_at_once_and_one_a_moment_later_share_one_read() -> None:
    contents, giver = Contents(), Giver()
    giver.go.clear()
    both = asyncio.gather(read(contents, giver, 1), read(contents, giver, 1))
    await asyncio.sleep(0)
    giver.go.set()
    assert list(await both) == [b"\1", b"\1"]
    assert await read(contents, giver, 1) == b"\1"
    assert giver.reads == [1]


async def test_the_oldest_contents_go_when_there_are_too_many() -> None:
    contents, giver = Contents(budget=3), Giver()
    for number in (1, 2, 3, 4, 2, 1):
        await read(contents, giver, number)
    assert giver.reads == [1, 2, 3, 4, 1]


async def test_what_was_dropped_is_read_anew() -> None:
    contents, giver = Contents(), Giver()
    await read(contents, giver, 1)
    contents.forget([1, 7])
    await read(contents, giver, 1)
    assert giver.reads == [1, 1]


async def test_a_failure_is_told_and_not_kept() -> None:
    contents, giver = Contents(), Giver()
    giver.broken = True
    with pytest.raises(RpcFailureError):
        await read(contents, giver, 1)
    giver.broken = False
    assert await read(contents, giver, 1) == b"\1"


async def test_the_end_of_one_receiver_does_not_take_the_content_from_another() -> None:
    contents, giver = Contents(), Giver()
    giver.go.clear()
    first = asyncio.create_task(read(contents, giver, 1))
    await asyncio.sleep(0)
    second = asyncio.create_task(read(contents, giver, 1))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    giver.go.set()
    assert await second == b"\1"
