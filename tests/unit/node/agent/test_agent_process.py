"""What an agent does at its start about the disk that it is given."""

import os
from pathlib import Path

import pytest
import xxhash

from tdcs.model.block_identity import BlockIdentity
from tdcs.node.agent.agent_process import NoMasterError, ProcessSettings, UnpreparedDiskError, prepare, run
from tdcs.node.agent.disk.own_ids import enter_own_ids, has_own_ids
from tdcs.node.agent.disk.tier import Disk


def test_a_disk_is_made_ready_and_its_blocks_stay_when_it_is_again(tmp_path: Path) -> None:
    assert prepare(tmp_path) == 0
    disk = Disk(tmp_path)
    assert has_own_ids(disk)
    _keep(disk, 17, b"spooled")
    disk.close()
    assert prepare(tmp_path) == 0
    assert (disk.spool / "17").read_bytes() == b"spooled"


def test_blocks_under_alluxios_ids_that_say_nothing_go(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.lent.mkdir()
    (disk.lent / "16777216").write_bytes(b"what nobody knows")
    assert prepare(tmp_path) == 1
    assert not list(disk.lent.iterdir())


def test_alluxios_names_of_blocks_go_and_what_it_has_of_others_stays(tmp_path: Path) -> None:
    prepare(tmp_path)
    disk = Disk(tmp_path)
    _keep(disk, 17, b"exported")
    disk.lent.mkdir()
    disk.lend(17, worker_file=str(disk.lent / "1"))
    (disk.lent / "2").write_bytes(b"of an Alluxio client")
    disk.close()
    assert prepare(tmp_path) == 0
    assert os.listdir(disk.lent) == ["2"]
    assert (disk.spool / "17").read_bytes() == b"exported"


@pytest.mark.parametrize("noted", ["0a1b2c3d-journal", ""])
async def test_a_disk_that_was_not_made_ready_is_not_served(tmp_path: Path, noted: str) -> None:
    disk = Disk(tmp_path)
    if noted:
        enter_own_ids(disk)
        disk.epoch.write_text(noted)
    with pytest.raises(UnpreparedDiskError, match="tdcs agent prepare"):
        await run(_settings(tmp_path))


@pytest.mark.parametrize("given", [{"worker": "127.0.0.1:29999"}, {"master": "127.0.0.1:19998"}])
async def test_an_agent_is_given_worker_and_master_or_neither(tmp_path: Path, given: dict[str, str]) -> None:
    enter_own_ids(Disk(tmp_path))
    with pytest.raises(NoMasterError, match="both, or neither"):
        await run(_settings(tmp_path, **given))


def _keep(disk: Disk, block: int, content: bytes) -> None:
    """Have a block on the disk as an agent leaves it."""
    with disk.create(block) as partial:
        partial.write(memoryview(content), offset=0)
        disk.keep(
            partial,
            block=block,
            identity=BlockIdentity(b"m" * 16, block.to_bytes(16, "little"), 0),
            length=len(content),
            content_hash=xxhash.xxh3_64_intdigest(content),
        )


def _settings(tier: Path, *, worker: str = "", master: str = "") -> ProcessSettings:
    return ProcessSettings(tier=tier, trust=None, node="one", capacity_bytes=1, worker=worker, master=master)
