"""What programs read through the remote-read client: every name, every byte, from wherever it is."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from pathlib import Path

import pytest
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import (
    HERE,
    Giver,
    ReaderNode,
    drop_page_cache,
    holder_of,
    shown_from_elsewhere,
    small_version,
    table_of,
)
from tests.support.programs.ipv6 import LOOPBACK, needs_ipv6
from tests.unit.node.csi.views.builders import refuse_block

from tdcs.model import slots
from tdcs.model.file_blocks import Cut

pytestmark = needs_fuse

MB = 1 << 20


def contents() -> dict[str, bytes]:
    """Small files, empty ones, large ones, and names that need care."""
    rng = random.Random(7)
    files = {f"train/n{number % 3}/{number:05d}.jpg": rng.randbytes(20_000 + number) for number in range(60)}
    files["large.bin"] = rng.randbytes(5 * MB + 17)
    files["zero"] = b""
    for name in ("x" * 255, "tab\there", "new\nline", "50%?.txt", "back\\slash", "ü-日本-\udcff", " . "):
        files[f"odd/{name}"] = rng.randbytes(1000)
    return files


def sums(root: Path) -> dict[str, str]:
    """Checksums of all files below a folder, by path."""
    sums_by_path = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            sums_by_path[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return sums_by_path


def wanted(files: dict[str, bytes]) -> dict[str, str]:
    """What `sums` has to be."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


LARGE_BLOCKS = pytest.mark.deep(
    "tests/processes/reader/test_reader_reads.py::test_every_file_of_a_version_is_read_as_it_is_at_its_source"
)


@pytest.mark.parametrize("block", [1 << 30, pytest.param(2 * MB + 5, marks=LARGE_BLOCKS), 8192])
def test_every_file_of_a_version_is_read_as_it_is_at_its_source(node: ReaderNode, block: int) -> None:
    files = contents()
    giver, root = shown_from_elsewhere(node, files, cut=Cut(block, block))
    node.start()

    assert sums(root) == wanted(files)
    drop_page_cache()
    assert sums(root) == wanted(files)
    assert node.metric("tdcs_reader_errors_total") == 0
    giver.process.kill()


@needs_ipv6
def test_every_file_is_read_from_an_agent_with_an_address_of_ipv6(node: ReaderNode) -> None:
    files = contents()
    giver, root = shown_from_elsewhere(node, files, cut=Cut(8192, 8192), host=LOOPBACK)
    assert giver.address.startswith("[::1]:")
    node.start()
    assert sums(root) == wanted(files)
    assert node.metric("tdcs_reader_errors_total") == 0
    giver.process.kill()


def test_attributes_are_those_of_plain_read_only_files(node: ReaderNode) -> None:
    files = contents()
    version = small_version(node.folder, files)
    root = node.register(version)
    node.start()

    status = os.stat(root / "large.bin")
    assert (status.st_size, stat.S_IMODE(status.st_mode), status.st_nlink) == (5 * MB + 17, 0o444, 1)
    assert int(status.st_mtime) == int((node.folder / "source/large.bin").stat().st_mtime)
    assert stat.S_IMODE(os.stat(root / "train").st_mode) == 0o555
    assert sorted(os.listdir(root)) == ["large.bin", "odd", "train", "zero"]
    with pytest.raises(FileNotFoundError):
        os.stat(root / "absent")
    with pytest.raises(NotADirectoryError):
        os.stat(root / "large.bin" / "below")
    with pytest.raises(OSError, match="Read-only"):
        (root / "new").write_bytes(b"")
    with pytest.raises(FileNotFoundError):
        os.stat(node.own.point / f"default.{'0' * 32}")


def test_blocks_on_the_node_are_read_from_its_disk_and_the_rest_from_their_holders(node: ReaderNode) -> None:
    files = contents()
    version = small_version(node.folder, files)
    manifest = version.manifest
    first, second = Giver(node.folder, "first"), Giver(node.folder, "second")
    of_slot = manifest.block_slots
    lower = [file for file in range(len(manifest)) for b in manifest.blocks_of(file) if of_slot[b] < 2048]
    upper = [file for file in range(len(manifest)) if file not in lower]
    first.put(manifest, node.folder / "source", only=lower)
    second.put(manifest, node.folder / "source", only=upper)
    file_here = manifest.file_at(b"train/n0/00000.jpg")
    assert file_here is not None
    block = int(manifest.block_ids[manifest.blocks_of(file_here).start])
    (node.tier / "agent/spool" / str(block)).write_bytes(files["train/n0/00000.jpg"])
    for giver in (first, second):
        giver.process.start()
    table = table_of(
        holder_of(first, slots=slots.prefix(2048)),
        holder_of(second, slots=slots.difference(slots.prefix(4096), slots.prefix(2048))),
        HERE,
    )
    root = node.register(version, tables=table)
    node.start()

    assert sums(root) == wanted(files)
    assert node.metric("tdcs_reader_read_bytes_total", origin="disk") == len(files["train/n0/00000.jpg"])
    assert node.metric("tdcs_reader_refused_total") == 0
    for giver in (first, second):
        giver.process.kill()


@pytest.mark.failure_mode("wrong-copy-read-natively")
def test_a_block_that_its_agent_has_refused_is_read_from_another_node(node: ReaderNode) -> None:
    files = {"one": os.urandom(20_000), "two": os.urandom(5 * MB)}
    version = small_version(node.folder, files, cut=Cut(2 * MB, 2 * MB))
    giver = Giver(node.folder, "giver")
    giver.put(version.manifest, node.folder / "source")
    giver.process.start()
    for block, length in zip(
        version.manifest.block_ids.tolist(), version.manifest.block_lengths.tolist(), strict=True
    ):
        (node.tier / "agent/spool" / str(block)).write_bytes(b"!" * length)
        refuse_block(node.tier, block, mount=version.manifest.path)
    root = node.register(version, tables=table_of(holder_of(giver), HERE))
    node.start()

    assert sums(root) == wanted(files)
    assert node.metric("tdcs_reader_read_bytes_total", origin="disk") == 0
    giver.process.kill()


def test_what_no_agent_holds_is_read_from_the_source_through_an_agent(node: ReaderNode) -> None:
    files = contents()
    version = small_version(node.folder, files, cut=Cut(2 * MB + 5, 2 * MB + 5))
    giver = Giver(node.folder, "giver", source=version.source)
    giver.process.start()
    root = node.register(version, tables=table_of(holder_of(giver, slots=bytes(512), reads_source=True)))
    node.start()

    assert sums(root) == wanted(files)
    assert node.metric("tdcs_reader_reads_total", origin="source") > 0
    assert not os.listdir(giver.tier / "agent/spool")  # it was not cached
    giver.process.kill()


def test_small_reads_at_random_places_of_a_large_file_fetch_little_more_than_they_ask_for(
    node: ReaderNode,
) -> None:
    content = random.Random(3).randbytes(64 * MB)
    giver, root = shown_from_elsewhere(node, {"large.bin": content})
    node.start()

    places = random.Random(4).sample(range(2, 63), 20)
    fd = os.open(root / "large.bin", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for place in places:
        assert os.pread(fd, 4096, place * MB) == content[place * MB : place * MB + 4096]
    os.close(fd)

    assert node.metric("tdcs_reader_read_bytes_total") <= 20 * 2 * 65536
    assert node.metric("tdcs_reader_ahead_total") == 0
    giver.process.kill()


def test_files_in_the_order_of_their_listing_are_fetched_before_they_are_asked_for(node: ReaderNode) -> None:
    files = {f"{number:04d}": os.urandom(5000) for number in range(200)}
    giver, root = shown_from_elsewhere(node, files)
    node.start()

    for name in sorted(files):
        assert (root / name).read_bytes() == files[name]

    assert node.metric("tdcs_reader_ahead_total") > 150
    giver.process.kill()


def test_a_table_of_holders_that_changes_under_open_files_is_followed(node: ReaderNode) -> None:
    files = {"large.bin": os.urandom(8 * MB)}
    version = small_version(node.folder, files)
    old, new = Giver(node.folder, "old"), Giver(node.folder, "new")
    for giver in (old, new):
        giver.put(version.manifest, node.folder / "source")
        giver.process.start()
    root = node.register(version, tables=table_of(holder_of(old)))
    node.start()

    with (root / "large.bin").open("rb", buffering=0) as opened:
        head = opened.read(100_000)
        old.process.kill()
        node.table(version, table_of(holder_of(new)))
        tail = b"".join(iter(lambda: opened.read(1 << 20), b""))

    assert head + tail == files["large.bin"]
    new.process.kill()


def test_ten_thousand_files_can_be_open_at_once(node: ReaderNode) -> None:
    """Each of more files than a process may usually have open, five times."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 10_500:
        pytest.skip(f"this machine allows {hard} open files")
    files = {f"d{number % 20}/{number:05d}": number.to_bytes(4, "little") * 25 for number in range(2_000)}
    giver, root = shown_from_elsewhere(node, files)
    node.start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (10_500, hard))
    opened: list[int] = []
    try:
        for _ in range(5):
            opened.extend(os.open(root / name, os.O_RDONLY) for name in files)
        assert [os.read(fd, 200) for fd in opened] == [*files.values()] * 5
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    giver.process.kill()
