"""What is asked of the source about files that were just read, and what follows from the answers."""

from typing import Any, cast

import pytest

from tdcs.engine.alluxio.master import Master, MountEntry
from tdcs.engine.alluxio.outdated import outdated_blocks
from tdcs.engine.protocol import Block


class ScriptedMaster:
    """A mount at /data, and the blocks that its files have by now."""

    def __init__(self, now: dict[str, frozenset[int]], *, others: int = 0) -> None:
        self.now = now
        self.others = others
        self.asked: list[str] = []
        self.listed: list[str] = []

    async def mount_table(self) -> dict[str, MountEntry]:
        return {"/data": MountEntry(uri="s3://b/in", properties={})}

    async def children(self, *, path: str) -> int:
        return len(self._in(path)) + self.others

    async def current_blocks(self, *, path: str) -> frozenset[int]:
        self.asked.append(path)
        return self.now.get(path, frozenset())

    async def current_blocks_in(self, *, path: str) -> dict[str, frozenset[int]]:
        self.listed.append(path)
        return self._in(path)

    def _in(self, folder: str) -> dict[str, frozenset[int]]:
        return {path: ids for path, ids in self.now.items() if path.rpartition("/")[0] == folder}


def block(number: int, name: str) -> Block:
    return Block(id=number, length=1, offset=0, source_path=f"s3://b/in/{name}", mount_id=1)


def world(count: int, **others: Any) -> tuple[list[Block], ScriptedMaster]:
    """Files 0 to count-1 of folder x; of them 3 has changed and 5 is gone."""
    now = {f"/data/x/{number}": frozenset({number}) for number in range(count)}
    now["/data/x/3"] = frozenset({1003})
    del now["/data/x/5"]
    return [block(number, f"x/{number}") for number in range(count)], ScriptedMaster(now, **others)


async def outdated(blocks: list[Block], master: ScriptedMaster) -> list[int]:
    return await outdated_blocks(blocks, master=cast(Master, master))


@pytest.mark.parametrize("count", [10, 40])
async def test_what_changed_and_what_is_gone_is_told_whichever_way_is_taken(count: int) -> None:
    blocks, master = world(count)

    assert await outdated(blocks, master) == [3, 5]


async def test_many_files_of_a_folder_are_asked_for_by_one_listing() -> None:
    blocks, master = world(40, others=200)
    few = [block(900, "y/a"), block(901, "y/b")]
    master.now |= {"/data/y/a": frozenset({900}), "/data/y/b": frozenset()}

    assert await outdated([*blocks, *few], master) == [3, 5, 901]
    assert master.listed == ["/data/x"]
    assert sorted(master.asked) == ["/data/y/a", "/data/y/b"]


async def test_some_files_of_a_large_folder_are_asked_for_one_by_one() -> None:
    blocks, master = world(40, others=1000)

    assert await outdated(blocks, master) == [3, 5]
    assert (len(master.asked), master.listed) == (40, [])


async def test_what_is_mounted_no_more_is_not_told() -> None:
    _, master = world(10)

    stray = Block(id=7, length=1, offset=0, source_path="s3://other/7", mount_id=2)
    assert await outdated([stray], master) == []
    assert master.asked == []
