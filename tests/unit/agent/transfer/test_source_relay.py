"""Pieces that an agent reads from a source for readers: exactly what was listed, and nothing outside of the mount."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tdcs.agent.disk.room import Room
from tdcs.agent.mount.mount import MountWork
from tdcs.agent.peers import frames
from tdcs.agent.peers.frames import FrameError, SourceWanted
from tdcs.agent.source.folder import FolderReader
from tdcs.agent.source.reader import SourceFailureError
from tdcs.agent.transfer.source_relay import SourceRelay

MOUNT = "/datasets/a"


def wanted(path: bytes, *, offset: int = 0, length: int = 10, size: int = 20, tag: str = "") -> SourceWanted:
    return SourceWanted(mount=MOUNT, path=path, block=7, offset=offset, length=length, size=size, tag=tag)


@pytest.fixture
def relay(tmp_path: Path) -> SourceRelay:
    """One over a folder with a file of twenty bytes."""
    (tmp_path / "file").write_bytes(bytes(range(20)))
    mount = MountWork(path=MOUNT, lock=threading.RLock(), room=Room(capacity=1 << 30, free=lambda: 1 << 30))
    mount.source = FolderReader(str(tmp_path))
    return SourceRelay(mount={MOUNT: mount}.get, stopped=threading.Event())


def test_a_piece_of_a_file_is_read(relay: SourceRelay) -> None:
    assert relay.read(wanted(b"file", offset=5)) == bytes(range(5, 15))


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (wanted(b"file", size=21), "Changed"),
        (wanted(b"file", tag="mtime-ms:1"), "Changed"),
        (wanted(b"absent"), "Missing"),
        (SourceWanted(mount="/x", path=b"file", block=7, offset=0, length=1, size=20, tag=""), "SourceAway"),
    ],
)
def test_another_version_and_an_unknown_mount_are_refused_by_their_code(
    relay: SourceRelay, asked: SourceWanted, code: str
) -> None:
    with pytest.raises(SourceFailureError) as caught:
        relay.read(asked)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "path", [b"../secret", b"a/../../secret", b"/etc/shadow", b"a//b", b"./a", b"", b"a\0b"]
)
def test_a_path_that_leads_out_of_the_mount_is_no_request(path: bytes) -> None:
    body = frames.source_request(wanted(path))[frames.REQUEST.size :]
    with pytest.raises(FrameError):
        frames.parse_source_wanted(body)


def test_pieces_that_are_too_large_or_negative_are_no_requests() -> None:
    for asked in (
        wanted(b"a", length=frames.LARGEST_SOURCE + 1),
        wanted(b"a", length=-1),
        wanted(b"a", offset=-1),
    ):
        with pytest.raises(FrameError):
            frames.parse_source_wanted(frames.source_request(asked)[frames.REQUEST.size :])
    with pytest.raises(FrameError):
        frames.parse_source_wanted(b"nonsense")
