"""Sources that refuse, change, hang or go away: each file says why, all others are brought, and it is tried again."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.support.dataplane.agents import (
    MOUNT,
    Version,
    fill,
    folder_version,
    make_version,
    running_agent,
)
from tests.support.waiting import eventually_async

from tdcs.model.agent_state import SourceAccess
from tdcs.model.file_blocks import WHOLE_BLOCKS, Cut
from tdcs.node.agent.mount.source_pieces import Extent, Write
from tdcs.node.agent.mount.source_state import FolderReader

SECRET = "very-secret-key-9c1f"


class Bucket:
    """An S3 server of one bucket, as far as GET goes: its answers can be spoiled."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.status: dict[str, int] = {}
        self.etags: dict[str, str] = {}
        self.all_status = 0
        self.throttled_share = 0.0
        self.random = random.Random(1)
        self.refuse_after: tuple[int, int] | None = None
        self.hangs = threading.Event()
        self.hangs.set()
        self.stuck: set[str] = set()
        self.released = threading.Event()
        self.requests: list[str] = []
        self.sent = 0
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                bucket.answer(self)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def access(self) -> SourceAccess:
        return SourceAccess(
            uri="s3://bucket/data",
            options={"endpoint": self.endpoint},
            access_key_id="an-account",
            secret_access_key=SECRET,
        )

    def etag(self, name: str) -> str:
        return self.etags.get(name, f'"{name}-1"')

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name = unquote(request.path.partition("?")[0]).removeprefix("/bucket/data/")
        self.requests.append(name)
        self.hangs.wait()
        if name in self.stuck:
            self.released.wait()
        status = self.all_status or self.status.get(name, 200)
        if self.random.random() < self.throttled_share:
            status = 503
        content = self.files.get(name, b"")
        if status == 200 and name not in self.files:
            status = 404
        if self.refuse_after and name == "large" and self.requests.count(name) > self.refuse_after[0]:
            status = self.refuse_after[1]
        if status == 200 and request.headers.get("If-Match") not in (None, self.etag(name)):
            status = 412
        if status == 200 and (byte_range := request.headers.get("Range")):
            begin, _, end = byte_range.removeprefix("bytes=").partition("-")
            body = content[int(begin) : int(end) + 1]
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {begin}-{end}/{len(content)}")
        else:
            body = content if status == 200 else b"<Error><Code>Spoiled</Code></Error>"
            request.send_response(status)
        request.send_header("ETag", self.etag(name))
        request.send_header("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
        self.sent += len(body) if status == 200 else 0

    def close(self) -> None:
        self.hangs.set()
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    bucket = Bucket({f"{number:03}": os.urandom(2_000) for number in range(300)})
    yield bucket
    bucket.close()


def version_of(bucket: Bucket, tmp_path: Path, *, cut: Cut = WHOLE_BLOCKS) -> Version:
    files = [
        (name.encode(), len(content), bucket.etag(name).encode()) for name, content in bucket.files.items()
    ]
    return make_version(files, folder=tmp_path / "manifests", source=bucket.access, cut=cut)


@pytest.mark.parametrize(
    ("status", "code"), [(404, "Missing"), (412, "Changed"), (403, "Denied"), (400, "Denied")]
)
async def test_200_files_that_are_refused_hold_up_no_other_file(
    bucket: Bucket, tmp_path: Path, status: int, code: str
) -> None:
    version = version_of(bucket, tmp_path)
    refused = sorted(bucket.files)[:200]
    bucket.status = dict.fromkeys(refused, status)
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(lambda: agent.mount().held_bytes == 100 * 2_000, deadline=60)
        await eventually_async(lambda: agent.mount().failed_count == 200, deadline=60)

        state = agent.mount()
        assert {failure.code for failure in state.failed} == {code}
        assert len(state.failed) == 50, "the list is bounded"
        assert {failure.path for failure in state.failed} <= set(refused)
        assert all(SECRET not in failure.reason for failure in state.failed)
        (part,) = state.parts
        assert part.held_bytes + part.failed_bytes == part.wanted_bytes
        bucket.status = {}
        if status != 403:  # a source that refuses everything is asked seldom
            await agent.holds(version, deadline=60)
            assert agent.mount().failed_count == 0


async def test_each_byte_is_asked_for_once_and_the_etag_pins_it(bucket: Bucket, tmp_path: Path) -> None:
    bucket.files["large"] = os.urandom(9_000_000)
    version = version_of(bucket, tmp_path)
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        assert agent.content(version) == bucket.files
        assert bucket.sent == version.bytes
        assert len(bucket.requests) == 300 + 3, (
            "one request for each small file, one for each piece of a large one"
        )


async def test_a_file_of_several_blocks_is_put_together_rightly(bucket: Bucket, tmp_path: Path) -> None:
    bucket.files = {"parts": os.urandom(5_000_123), "one": b"1"}
    version = version_of(bucket, tmp_path, cut=Cut(1 << 20, 1 << 20))
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        assert agent.content(version) == bucket.files


@pytest.mark.failure_mode("source-fails-during-load", "file-replaced-before-load")
async def test_a_file_that_changes_in_the_middle_of_a_load_is_never_kept_half(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.files = {"large": os.urandom(20_000_000), "small": b"s"}
    version = version_of(bucket, tmp_path)
    bucket.hangs.clear()
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(lambda: len(bucket.requests) >= 3, deadline=20)
        bucket.etags["large"] = '"another"'
        bucket.hangs.set()
        await eventually_async(
            lambda: [failure.code for failure in agent.mount().failed] == ["Changed"], deadline=20
        )
        assert agent.content(version) == {"small": b"s"}
        # It is tried again now and then: what it has begun goes each time.
        await eventually_async(lambda: not list(agent.disk.partial.iterdir()), deadline=20)


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "Denied"), (404, "Missing"), (412, "Changed"), (500, "Unreadable"), (503, "SourceAway")],
)
@pytest.mark.failure_mode("source-fails-during-load")
async def test_a_file_that_is_refused_in_the_middle_of_a_load_comes_whole_or_not_at_all(
    bucket: Bucket, tmp_path: Path, status: int, code: str
) -> None:
    bucket.files = {"large": os.urandom(20_000_000), "small": b"s"}
    version = version_of(bucket, tmp_path)
    bucket.refuse_after = (2, status)  # the first pieces of the large file come
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(
            lambda: code in {failure.code for failure in agent.mount().failed}, deadline=20
        )
        assert set(agent.content(version)) <= {"small"}
        await eventually_async(lambda: not list(agent.disk.partial.iterdir()), deadline=20)
        bucket.refuse_after = None
        await agent.holds(version, deadline=30)
        assert agent.content(version) == bucket.files


async def test_a_source_that_is_away_fails_no_file_and_is_asked_seldom(
    bucket: Bucket, tmp_path: Path
) -> None:
    version = version_of(bucket, tmp_path)
    bucket.all_status = 503
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(
            lambda: [failure.code for failure in agent.mount().failed] == ["SourceAway"], deadline=40
        )
        (part,) = agent.mount().parts
        assert (part.held_bytes, part.failed_bytes) == (0, 0)
        assert agent.mount().busy
        assert len(bucket.requests) < 100, "not one request for each file"
        bucket.all_status = 0
        await agent.holds(version, deadline=30)
        assert agent.mount().failed_count == 0


@pytest.mark.parametrize("status", [429, 503, 504])
@pytest.mark.failure_mode("store-throttles")
async def test_one_file_that_always_asks_for_patience_is_named_and_never_failed(
    bucket: Bucket, tmp_path: Path, status: int
) -> None:
    version = version_of(bucket, tmp_path)
    bucket.status = {"150": status}
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(
            lambda: (
                [(failure.path, failure.code) for failure in agent.mount().failed] == [("150", "SourceAway")]
            ),
            deadline=60,
        )
        (part,) = agent.mount().parts
        assert (part.held_bytes, part.failed_bytes) == (version.bytes - 2_000, 0)
        assert (agent.mount().failed_count, agent.mount().source_away, agent.mount().busy) == (0, False, True)
        bucket.status = {}
        await agent.holds(version, deadline=40)
        assert not agent.mount().failed


@pytest.mark.failure_mode("store-throttles")
async def test_a_store_that_throttles_gives_all_files_and_fails_none(bucket: Bucket, tmp_path: Path) -> None:
    bucket.files["large"] = os.urandom(40_000_000)
    version = version_of(bucket, tmp_path)
    bucket.throttled_share = 0.2
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version, deadline=60)
        assert agent.content(version) == bucket.files
        assert not agent.mount().failed


async def test_one_file_that_always_gives_an_error_fails_alone_and_never_the_source(
    bucket: Bucket, tmp_path: Path
) -> None:
    version = version_of(bucket, tmp_path)
    bucket.status = {"150": 500}
    codes = set[str]()
    async with running_agent(tmp_path / "one") as agent:

        def done() -> bool:
            state = agent.mount()
            codes.update(failure.code for failure in state.failed)
            return bool(state.parts) and state.parts[0].failed_bytes + state.held_bytes == version.bytes

        agent.give(version.assignment(), manifests=version)
        await eventually_async(done, deadline=30)
        (failure,) = agent.mount().failed
        assert (failure.path, agent.mount().held_bytes) == ("150", version.bytes - 2_000)
        assert codes == {"Unreadable"}
        bucket.status = {}
        await agent.holds(version, deadline=30)


@pytest.mark.failure_mode("source-hangs-for-files")
async def test_a_source_that_hangs_for_some_files_holds_up_no_other_and_no_answer(
    bucket: Bucket, tmp_path: Path
) -> None:
    version = version_of(bucket, tmp_path)
    bucket.stuck = set(sorted(bucket.files)[:8])
    other_files = {name: content for name, content in bucket.files.items() if name not in bucket.stuck}
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(lambda: agent.content(version) == other_files, deadline=20)
        await eventually_async(lambda: agent.mount().held_bytes == 2_000 * len(other_files), deadline=20)
        assert agent.mount().busy
        assert agent.mount().failed_count == 0, "slow is not failed"
        bucket.released.set()
        await agent.holds(version, deadline=20)
        assert agent.content(version) == bucket.files


async def test_new_credentials_are_tried_at_once(bucket: Bucket, tmp_path: Path) -> None:
    version = version_of(bucket, tmp_path)
    bucket.all_status = 403
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(lambda: agent.mount().source_away, deadline=30)
        bucket.all_status = 0
        access = SourceAccess(
            uri=version.source.uri,
            options=dict(version.source.options),
            access_key_id="another-account",
            secret_access_key="another-key",
        )
        agent.give(version.assignment(version=2, source=access))
        await agent.holds(version, deadline=10)


async def test_the_share_of_the_bandwidth_is_kept(bucket: Bucket, tmp_path: Path) -> None:
    version = version_of(bucket, tmp_path)  # 600,000 bytes
    async with running_agent(tmp_path / "one") as agent:
        began = time.monotonic()
        agent.give(version.assignment(bandwidth=300_000), manifests=version)
        await agent.holds(version, deadline=30)
        took = time.monotonic() - began
        assert took > 1.7, "600,000 bytes at 300,000 a second"


async def test_files_of_a_folder_that_cannot_be_read_are_named_with_their_reasons(tmp_path: Path) -> None:
    source = fill(tmp_path / "source", dict.fromkeys(("changed", "gone", "good", "longer"), b"x" * 1000))
    version = folder_version(source, store=tmp_path / "manifests")
    os.utime(source / "changed", ns=(1, 1))
    (source / "gone").unlink()
    times = (source / "longer").stat()
    (source / "longer").write_bytes(b"y" * 1001)
    os.utime(source / "longer", ns=(times.st_atime_ns, times.st_mtime_ns))
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(lambda: agent.mount().failed_count == 3, deadline=10)
        codes = {failure.path: failure.code for failure in agent.mount().failed}
        assert codes == {"changed": "Changed", "gone": "Missing", "longer": "Changed"}
        assert agent.content(version) == {"good": b"x" * 1000}


@pytest.mark.failure_mode("shared-folder-unmounted-on-node")
async def test_an_empty_mount_point_is_no_folder_without_files(tmp_path: Path) -> None:
    source = fill(tmp_path / "source", {"a": b"x", "b": b"y"})
    version = folder_version(source, store=tmp_path / "manifests")
    source.rename(tmp_path / "elsewhere")
    source.mkdir()
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(lambda: agent.mount().source_away, deadline=20)
        assert agent.mount().failed_count == 0
        assert "is mounted there" in agent.mount().failed[0].reason
        source.rmdir()
        (tmp_path / "elsewhere").rename(source)
        await agent.holds(version, deadline=40)


async def test_a_folder_that_is_not_mounted_yet_is_waited_for(tmp_path: Path) -> None:
    source = fill(tmp_path / "source", {"a": b"x"})
    version = folder_version(source, store=tmp_path / "manifests")
    source.rename(tmp_path / "elsewhere")
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(
            lambda: [failure.code for failure in agent.mount().failed] == ["SourceAway"], deadline=10
        )
        (tmp_path / "elsewhere").rename(source)
        await agent.holds(version, deadline=20)


async def test_a_large_block_half_way_is_given_back_when_its_source_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = folder_version(
        fill(tmp_path / "source", {"large": os.urandom(20_000_000)}), store=tmp_path / "manifests"
    )
    go = threading.Event()
    read = FolderReader.read

    def slow(self: FolderReader, extent: Extent, write: Write) -> None:
        go.wait(10)
        read(self, extent, write)

    monkeypatch.setattr(FolderReader, "read", slow)
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        mount = agent.agent.mounts[MOUNT]
        await eventually_async(lambda: mount.source.pieces_waiting > 0, deadline=20)
        agent.give(version.assignment(version=2, parts=(), source=None))
        go.set()
        ledger = mount.ledger
        assert ledger is not None
        await eventually_async(lambda: not ledger.blocks_in_work, deadline=10)
        assert (mount.source.pieces_waiting, agent.agent.room._reserved) == (0, 0)
        assert not list(agent.disk.partial.iterdir())
        agent.agent.drop_mounts([MOUNT])
        await eventually_async(lambda: MOUNT not in agent.agent.state.mounts, deadline=10)
