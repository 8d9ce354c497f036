"""Pieces that an agent reads from a source for readers: exactly what was listed, and nothing outside of the mount."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tdcs.node.agent.mount.peer_book import Patience
from tdcs.node.agent.mount.source_pieces import SourceFailureError
from tdcs.node.agent.mount.source_state import FolderReader, SourceState
from tdcs.node.agent.mount.transfer_limits import InFlight
from tdcs.node.agent.transfer.source_relay import IN_FLIGHT_BYTES, SourceRelay
from tdcs.node.wire import frames
from tdcs.node.wire.frames import FrameError, SourceWanted

MOUNT = "/datasets/a"


def wanted(path: bytes, *, offset: int = 0, length: int = 10, size: int = 20, tag: str = "") -> SourceWanted:
    return SourceWanted(mount=MOUNT, path=path, block=7, offset=offset, length=length, size=size, tag=tag)


@pytest.fixture
def source(tmp_path: Path) -> SourceState:
    """A folder with a file of twenty bytes."""
    (tmp_path / "file").write_bytes(bytes(range(20)))
    source = SourceState(path=MOUNT, patience=Patience(), lock=threading.RLock(), clock=time.monotonic)
    source.read_by(FolderReader(str(tmp_path)))
    return source


@pytest.fixture
def relay(source: SourceState) -> SourceRelay:
    """Of this source."""
    return SourceRelay(source={MOUNT: source}.get, stopped=threading.Event())


def test_a_piece_of_a_file_is_read(relay: SourceRelay) -> None:
    with relay.read(wanted(b"file", offset=5)) as piece:
        assert piece == bytes(range(5, 15))


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
        relay.read(asked).__enter__()
    assert caught.value.code == code


@pytest.mark.parametrize(
    "path", [b"../secret", b"a/../../secret", b"/etc/shadow", b"a//b", b"./a", b"", b"a\0b"]
)
def test_a_path_that_leads_out_of_the_mount_is_no_request(path: bytes) -> None:
    body = frames.source_request(wanted(path))[frames.REQUEST.size :]
    with pytest.raises(FrameError):
        frames.parse_source_wanted(body)


def test_pieces_that_are_too_large_or_negative_are_no_requests() -> None:
    for request in (
        wanted(b"a", length=frames.LARGEST_SOURCE + 1),
        wanted(b"a", length=-1),
        wanted(b"a", offset=-1),
    ):
        with pytest.raises(FrameError):
            frames.parse_source_wanted(frames.source_request(request)[frames.REQUEST.size :])
    with pytest.raises(FrameError):
        frames.parse_source_wanted(b"nonsense")


@pytest.mark.failure_mode("load-takes-source-bandwidth")
def test_a_read_on_demand_goes_ahead_of_a_load_that_has_used_up_the_rate(
    relay: SourceRelay, source: SourceState
) -> None:
    source.limit.set(1_000)
    source.limit.take(1_000_000)  # a quarter of an hour
    began = time.monotonic()
    with relay.read(wanted(b"file", offset=5)) as piece:
        assert piece == bytes(range(5, 15))
    assert time.monotonic() - began < 5


def test_a_read_whose_asker_is_gone_waits_no_more(relay: SourceRelay, source: SourceState) -> None:
    def gone() -> None:
        raise BrokenPipeError

    source.limit.set(1_000)
    source.limit.take(1_000_000, demand=True)
    with pytest.raises(BrokenPipeError):
        relay.read(wanted(b"file"), waiting=gone).__enter__()


def test_pieces_that_slow_readers_have_not_taken_count_as_held(source: SourceState, tmp_path: Path) -> None:
    piece = 4 << 20
    with (tmp_path / "large").open("wb") as large:
        large.truncate(IN_FLIGHT_BYTES * 2)
    relay = SourceRelay(source={MOUNT: source}.get, stopped=threading.Event())
    relay._in_flight = InFlight(IN_FLIGHT_BYTES, look_seconds=0.01)  # type: ignore[misc]

    def gone() -> None:
        raise BrokenPipeError

    requests = [
        wanted(b"large", offset=number * piece, length=piece, size=IN_FLIGHT_BYTES * 2) for number in range(9)
    ]
    with ExitStack() as slow:
        for request in requests[:8]:
            slow.enter_context(relay.read(request, waiting=gone))
        with pytest.raises(BrokenPipeError):  # it has to wait
            slow.enter_context(relay.read(requests[8], waiting=gone))
    with relay.read(requests[8], waiting=gone) as content:
        assert len(content) == piece


def test_a_piece_whose_asker_went_while_it_was_sent_is_kept_and_the_source_not_asked_again(
    source: SourceState,
) -> None:
    pieces: list[tuple[SourceWanted, bytes]] = []
    relay = SourceRelay(
        source={MOUNT: source}.get,
        stopped=threading.Event(),
        keep=lambda asked, piece: pieces.append((asked, bytes(piece))),
    )
    request = wanted(b"file", offset=5)
    with pytest.raises(BrokenPipeError), relay.read(request):
        raise BrokenPipeError
    assert pieces == [(request, bytes(range(5, 15)))]
