"""What programs do with files next to reading them: of a file of the node, and of one that another node gives."""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
from pathlib import Path

import pytest
from tests.processes.csi.test_plugin_reader import ReadingNode, reading
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import drop_page_cache
from tests.unit.node.csi.views.builders import needs_overlays

__all__ = ["reading"]

pytestmark = [needs_fuse, needs_overlays]
NAMES = ("away", "here")


@pytest.fixture
def volume(reading: ReadingNode) -> Path:
    reading.start_plugin()
    return reading.publish() / "train"


def test_system_calls_of_programs_give_what_they_give_of_any_read_only_file(
    volume: Path, tmp_path: Path
) -> None:
    for name in NAMES:
        path, content = volume / name, name.encode()
        drop_page_cache()
        status = path.stat()
        assert status.st_size == len(content)
        opened = os.open(path, os.O_RDONLY)
        try:
            assert os.lseek(opened, 0, os.SEEK_DATA) == 0
            assert os.lseek(opened, 0, os.SEEK_HOLE) == len(content)
            os.lseek(opened, 0, os.SEEK_SET)
            drop_page_cache()
            with (tmp_path / "sent").open("wb") as sent:
                assert os.sendfile(sent.fileno(), opened, 0, 100) == len(content)
            assert (tmp_path / "sent").read_bytes() == content
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(opened, fcntl.LOCK_UN)
            fcntl.lockf(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
            drop_page_cache()
            with mmap.mmap(opened, 0, prot=mmap.PROT_READ) as mapped:
                assert bytes(mapped) == content
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_WILLNEED)
            assert os.preadv(opened, [bytearray(2), bytearray(9)], 1) == len(content) - 1
        finally:
            os.close(opened)
        assert os.listxattr(path) == []
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC):
            with pytest.raises(OSError, match="Read-only file system"):
                os.open(path, flags)


def test_reads_around_the_page_cache_give_the_bytes(volume: Path) -> None:
    for name in NAMES:
        drop_page_cache()
        opened = os.open(volume / name, os.O_RDONLY | os.O_DIRECT)
        try:
            buffer = mmap.mmap(-1, 8192)
            assert os.preadv(opened, [buffer], 0) == len(name)
            assert buffer[: len(name)] == name.encode()
            assert os.preadv(opened, [buffer], 4096) == 0
        finally:
            os.close(opened)


def test_copies_and_archives_have_the_bytes(volume: Path, tmp_path: Path) -> None:
    drop_page_cache()
    for name in NAMES:
        subprocess.run(["cp", "-a", "--sparse=auto", volume / name, tmp_path / name], check=True)
        assert (tmp_path / name).read_bytes() == name.encode()
    drop_page_cache()
    subprocess.run(["tar", "-cSf", tmp_path / "all.tar", "-C", volume, "."], check=True)
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "all.tar", "-C", tmp_path / "unpacked"], check=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "unpacked").iterdir()} == {
        name: name.encode() for name in NAMES
    }
