"""Which names in a tier's folders are ids of blocks."""

from pathlib import Path

from tdcs.node.agent.disk.tier import Disk, Place


def test_ids_of_all_lengths_are_found_and_longer_numbers_are_not(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.prepare()
    ids = [0, 17, 10**17, 10**18, 5_000_000_000_000_000_000, (1 << 63) - 1]
    strangers = [str(1 << 63), "9" * 19, "9" * 40, "17.part", "-5"]
    for name in [*map(str, ids), *strangers]:
        (disk.spool / name).touch()
    assert disk.ids_at(Place.SPOOL).tolist() == ids
