"""A file on a network that is changed while it is read: its attributes are cached until it is opened again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import FolderReader

SIZE = 3 << 20


@pytest.fixture
def cached_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS does with close-to-open: what is known of an open file is what its opening brought."""
    attributes: dict[int, os.stat_result] = {}
    closed, real_fstat = os.close, os.fstat

    def fstat(file: int) -> os.stat_result:
        return attributes.setdefault(file, real_fstat(file))

    def close(file: int) -> None:
        attributes.pop(file, None)
        closed(file)

    monkeypatch.setattr(os, "fstat", fstat)
    monkeypatch.setattr(os, "close", close)


def extent_of(file: Path) -> Extent:
    time = file.stat().st_mtime_ns // 1_000_000
    return Extent(path=file.name.encode(), offset=0, length=SIZE, size=SIZE, tag=f"mtime-ms:{time}")


@pytest.mark.usefixtures("cached_attributes")
@pytest.mark.failure_mode("file-rewritten-while-read")
def test_a_file_that_is_rewritten_while_it_is_read_gives_no_mixture(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"1" * SIZE)
    os.utime(file, (1000, 1000))
    extent, came = extent_of(file), bytearray()

    def write(data: memoryview) -> None:
        if not came:
            file.write_bytes(b"2" * SIZE)  # as long, and in place
        came.extend(data)

    with pytest.raises(SourceFailureError) as caught:
        FolderReader(str(tmp_path)).read(extent, write)
    assert caught.value.code == "Changed"
    assert {*bytes(came)} == {ord("1"), ord("2")}, "what was written is worth nothing"


@pytest.mark.usefixtures("cached_attributes")
def test_a_file_that_goes_while_it_is_read_is_missing(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    file = tmp_path / "a"
    file.write_bytes(b"1" * SIZE)
    extent = extent_of(file)
    with pytest.raises(SourceFailureError) as caught:
        FolderReader(str(tmp_path)).read(extent, lambda _: file.unlink(missing_ok=True))
    assert caught.value.code == "Missing"


@pytest.mark.usefixtures("cached_attributes")
def test_a_file_that_stays_as_it_is_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"1" * SIZE)
    came = bytearray()
    FolderReader(str(tmp_path)).read(extent_of(file), came.extend)
    assert came == b"1" * SIZE
