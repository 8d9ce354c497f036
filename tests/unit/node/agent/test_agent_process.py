"""What an agent does at its start about the kind of cache that its disk is of."""

from pathlib import Path

import pytest
import xxhash

from tdcs.api import names
from tdcs.model.block_identity import BlockIdentity
from tdcs.node.agent import agent_process
from tdcs.node.agent.agent_process import NoEpochError, NoMasterError, ProcessSettings, prepare, run
from tdcs.node.agent.disk.epoch import enter_epoch, read_epoch
from tdcs.node.agent.disk.tier import Disk

JOURNAL = "0a1b2c3d-journal"


async def test_without_a_master_ids_are_own_ones_and_nobody_is_waited_for(tmp_path: Path) -> None:
    assert await prepare(tier=tmp_path, master="") == 0
    assert read_epoch(Disk(tmp_path)) == names.OWN_BLOCK_IDS


async def test_blocks_of_a_masters_ids_that_say_nothing_go_when_ids_become_own_ones(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    enter_epoch(disk, journal=JOURNAL)
    disk.blocks.mkdir()
    (disk.blocks / "16777216").write_bytes(b"what nobody knows")
    assert await prepare(tier=tmp_path, master="") == 1
    assert not list(disk.blocks.iterdir())


@pytest.mark.parametrize("journal", [JOURNAL, ""])
async def test_a_disk_of_another_kind_of_cache_is_not_served(tmp_path: Path, journal: str) -> None:
    disk = Disk(tmp_path)
    if journal:
        enter_epoch(disk, journal=journal)
    with pytest.raises(NoEpochError, match="tdcs agent prepare"):
        await run(_settings(tmp_path))


@pytest.mark.parametrize("given", [{"worker": "127.0.0.1:29999"}, {"master": "127.0.0.1:19998"}])
async def test_an_agent_is_given_worker_and_master_or_neither(tmp_path: Path, given: dict[str, str]) -> None:
    enter_epoch(Disk(tmp_path), journal=JOURNAL)
    with pytest.raises(NoMasterError, match="both, or neither"):
        await run(_settings(tmp_path, **given))


async def test_a_master_that_is_away_is_not_waited_for_on_a_disk_whose_journal_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_process, "_MASTER_SECONDS", 0.0)
    monkeypatch.setattr(agent_process, "_CALL_PATIENCE", 0.0)
    disk = Disk(tmp_path)
    enter_epoch(disk, journal=JOURNAL)
    disk.blocks.mkdir()
    for block, content in ((17, b"spooled"), (18, b"registered"), (19, b"lent to the worker")):
        with disk.create(block) as partial:
            partial.write(memoryview(content), offset=0)
            identity = BlockIdentity(b"m" * 16, block.to_bytes(16, "little"), 0)
            disk.keep(
                partial,
                block=block,
                identity=identity,
                length=len(content),
                content_hash=xxhash.xxh3_64_intdigest(content),
            )
    for block in (18, 19):
        disk.lend(block, worker_file=str(disk.blocks / str(block)))
    disk.unspool(18)
    (disk.blocks / "20").write_bytes(b"what nobody knows")
    disk.close()

    assert await prepare(tier=tmp_path, master="127.0.0.1:1") == 2, "what is unknown, and a second name"
    assert read_epoch(disk) == JOURNAL
    assert not disk.registered_ids().size, (
        "the worker registers nothing under ids of a journal that may be gone"
    )
    assert disk.spooled().tolist() == [17, 18, 19]
    assert (disk.spool / "18").read_bytes() == b"registered"


def _settings(tier: Path, *, worker: str = "", master: str = "") -> ProcessSettings:
    return ProcessSettings(tier=tier, trust=None, node="one", capacity_bytes=1, worker=worker, master=master)
