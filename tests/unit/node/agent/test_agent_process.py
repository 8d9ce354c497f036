"""What an agent does at its start about the kind of cache that its disk is of."""

from pathlib import Path

import pytest

from tdcs.api import names
from tdcs.node.agent.agent_process import NoEpochError, ProcessSettings, prepare, run
from tdcs.node.agent.disk.epoch import enter_epoch, read_epoch
from tdcs.node.agent.disk.tier import Disk


async def test_without_a_master_ids_are_own_ones_and_nobody_is_waited_for(tmp_path: Path) -> None:
    assert await prepare(tier=tmp_path, master="") == 0
    assert read_epoch(Disk(tmp_path)) == names.OWN_BLOCK_IDS


async def test_blocks_of_a_masters_ids_that_say_nothing_go_when_ids_become_own_ones(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    enter_epoch(disk, journal="0a1b2c3d-journal")
    disk.blocks.mkdir()
    (disk.blocks / "16777216").write_bytes(b"what nobody knows")
    assert await prepare(tier=tmp_path, master="") == 1
    assert not list(disk.blocks.iterdir())


@pytest.mark.parametrize(
    ("journal", "worker"), [("0a1b2c3d-journal", ""), (names.OWN_BLOCK_IDS, "127.0.0.1:29999"), ("", "")]
)
async def test_a_disk_of_another_kind_of_cache_is_not_served(
    tmp_path: Path, journal: str, worker: str
) -> None:
    disk = Disk(tmp_path)
    if journal:
        enter_epoch(disk, journal=journal)
    with pytest.raises(NoEpochError, match="tdcs agent prepare"):
        await run(ProcessSettings(tier=tmp_path, trust=None, node="one", capacity_bytes=1, worker=worker))
