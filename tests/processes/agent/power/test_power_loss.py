"""The power of the machine is cut at random moments while its disk is loaded: what is read afterwards is right.

`make power-cuts CUTS=200` looks further.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.power.load import Load, Sources, giver, sources
from tests.support.power.power_cuts import LoggedDisk, cuts, lacking, logged_disk

from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.disk.unclean_start import make_ready

CUTS = int(os.environ.get("TDCS_POWER_CUTS", "12"))
SEED = int(os.environ.get("TDCS_POWER_SEED", "1"))
LOAD_SECONDS = 2 + CUTS / 50
DROPS = 6
"""Blocks of each kind that come, go and come again at least."""

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking())


def loaded(work: Path, found: Sources) -> tuple[LoggedDisk, int]:
    """A disk that was loaded for a while, and the last moment at which its power may be cut: before it was closed."""
    with giver(work, found) as peer, logged_disk(work) as disk:
        tier = Disk(disk.folder / "tier")
        tier.prepare()
        make_ready(tier)
        load = Load(tier, found, peer=peer, seed=SEED)
        load.run(seconds=LOAD_SECONDS, drops=DROPS)
        until = disk.written()
        tier.close()
    assert min(load.dropped.values()) >= DROPS, (
        f"of each kind blocks came, went and came again: {load.dropped}"
    )
    return disk, until


@pytest.mark.failure_mode("node-power-lost-during-load")
def test_no_block_is_wrong_after_any_of_many_power_cuts(tmp_path: Path) -> None:
    inputs = sources(tmp_path, seed=SEED)
    disk, until = loaded(tmp_path, inputs)
    wrong, right, removed = list[str](), 0, 0
    kept_blocks, whole, parts = 0, 0, 0
    for number, folder in enumerate(cuts(disk, count=CUTS, seed=SEED, work=tmp_path, until=until)):
        tier = Disk(folder / "tier", boot="the next one")
        tier.prepare()
        blocks = {int(name): (tier.spool / name).read_bytes() for name in os.listdir(tier.spool)}
        extents = extents_on(tier)
        whole += len(os.listdir(tier.large.folders.whole))
        parts += len(os.listdir(tier.large.folders.parts))
        kept_blocks += len(extents)
        blocks |= extents
        right += sum(content == inputs.blocks[block] for block, content in blocks.items())
        wrong += [
            f"cut {number}: block {block} has {len(content)} bytes, and should have {len(inputs.blocks[block])}"
            for block, content in blocks.items()
            if content != inputs.blocks[block]
        ]
        removed += make_ready(tier).removed
    assert not wrong, f"seed {SEED}: {len(wrong)} of {len(wrong) + right} blocks are wrong: {wrong[:5]}"
    assert not removed, "what is right was removed when the store was made ready again"
    assert right > CUTS, f"seed {SEED}: hardly anything of what was there was kept: {right} blocks"
    assert kept_blocks > CUTS, f"seed {SEED}: hardly an extent of large files was kept: {kept_blocks}"
    assert whole, f"seed {SEED}: no large file was whole when the power was cut"
    assert parts, f"seed {SEED}: no large file was being filled when the power was cut"


def extents_on(tier: Disk) -> dict[int, bytes]:
    """What is in large files, as a reader of the node gets it: by what their tables say, and of whole files all."""
    extents = {}
    for block in tier.large.ids().tolist():
        opened = tier.large.open(block)
        assert opened is not None
        try:
            extents[block] = os.pread(opened.fd, opened.length, opened.base)
        finally:
            os.close(opened.fd)
    return extents
