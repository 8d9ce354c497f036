"""The service of a claim's pod: bytes as they were listed, for who shows the token, of one folder and no other."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from tests.support.dataplane.agents import fill
from yarl import URL

from tdcs.engine.tls_failures import pinned
from tdcs.listing.folder_listing import pages_of
from tdcs.model.agent_state import FolderLimit, FolderPage
from tdcs.node.claim import claim_server
from tdcs.node.claim.claim_files import is_unchanged
from tdcs.node.claim.claim_server import ClaimServer
from tdcs.trust.certificates import KeyPair, make_own_certificate

TOKEN = {"Authorization": "Bearer right"}
CONTENT = bytes(range(256)) * 20_000


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    fill(tmp_path / "volume", {"data/a b%.bin": CONTENT, "data/empty": b"", "sibling.txt": b"secret"})
    return tmp_path / "volume"


@pytest.fixture
async def origin(volume: Path) -> AsyncIterator[str]:
    server = ClaimServer(folder=str(volume / "data"), token="right")
    runner = web.AppRunner(server.application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def get(url: str, **headers: str) -> tuple[int, bytes, Any]:
    async with (
        aiohttp.ClientSession(headers=TOKEN) as session,
        session.get(URL(url, encoded=True), headers=headers) as answer,
    ):
        return answer.status, await answer.read(), answer.headers


async def listing(origin: str, **limit: Any) -> list[FolderPage]:
    folder_limit = FolderLimit(**{"folder": "", "files": 1000, "seconds": 60.0, **limit})
    async with (
        aiohttp.ClientSession(headers=TOKEN) as session,
        session.post(f"{origin}/v1/list", data=msgspec.msgpack.encode(folder_limit)) as answer,
    ):
        assert answer.status == 200
        return [page async for page in pages_of(answer)]


async def test_files_come_whole_and_in_ranges_with_their_etag(origin: str) -> None:
    status, content, headers = await get(f"{origin}/files/a%20b%25.bin")
    assert (status, content) == (200, CONTENT)
    status, part, more = await get(f"{origin}/files/a%20b%25.bin", Range="bytes=1048570-2097160")
    assert (status, part) == (206, CONTENT[1048570:2097161])
    assert more["Content-Range"] == f"bytes 1048570-2097160/{len(CONTENT)}"
    assert more["ETag"] == headers["ETag"]
    assert (await get(f"{origin}/files/empty"))[:2] == (200, b"")
    assert (await get(f"{origin}/files/empty", Range="bytes=0-0"))[0] == 416


@pytest.mark.parametrize("shown", ["", "Bearer wrong", "Bearer rightx", "right", "Bearer rïght"])
async def test_nobody_is_answered_without_the_token(origin: str, shown: str) -> None:
    async with aiohttp.ClientSession() as session:
        for method, path in (
            ("GET", "/files/empty"),
            ("POST", "/v1/list"),
            ("POST", "/v1/count"),
            ("GET", "/x"),
        ):
            async with session.request(method, f"{origin}{path}", headers={"Authorization": shown}) as answer:
                assert answer.status == 401
        async with session.get(f"{origin}/healthz") as answer:
            assert answer.status == 200, "the kubelet shows none"


@pytest.mark.parametrize(
    "path",
    [
        "../sibling.txt",
        "%2E%2E/sibling.txt",
        "x/../../sibling.txt",
        "..%2Fsibling.txt",
        "%2Fetc%2Fpasswd",
        "//etc/passwd",
    ],
)
async def test_no_path_leads_out_of_the_folder(origin: str, path: str) -> None:
    status, content, _ = await get(f"{origin}/files/{path}")
    assert status == 404
    assert b"secret" not in content


async def test_links_lead_to_files_of_the_folder_alone(origin: str, volume: Path) -> None:
    folder = volume / "data"
    (folder / "in").symlink_to("a b%.bin")
    (folder / "out").symlink_to("../sibling.txt")
    (folder / "absolute").symlink_to(volume / "sibling.txt")
    (folder / "folder").symlink_to("..")
    (folder / "proc").symlink_to("/proc/self/environ")
    assert (await get(f"{origin}/files/in"))[:2] == (200, CONTENT)
    for name in ("out", "absolute", "folder/sibling.txt", "proc"):
        status, content, _ = await get(f"{origin}/files/{name}")
        assert status == 403
        assert b"leads out of the folder" in content
    pages = await listing(origin)
    assert {path for page in pages for path, _, _ in page.files} == {b"a b%.bin", b"empty", b"in"}
    assert {path for page in pages for path in page.left_out} == {b"out", b"absolute", b"folder", b"proc"}


async def test_a_pipe_holds_nobody_up(origin: str, volume: Path) -> None:
    os.mkfifo(volume / "data" / "pipe")
    assert (await get(f"{origin}/files/pipe"))[0] == 404


async def test_another_folder_than_its_own_is_never_listed(origin: str, volume: Path) -> None:
    for folder in ("/", "/etc", str(volume)):
        pages = await listing(origin, folder=folder)
        assert {path for page in pages for path, _, _ in page.files} == {b"a b%.bin", b"empty"}


async def test_folders_that_are_left_out_are_not_looked_into(origin: str, volume: Path) -> None:
    fill(volume / "data", {"lost+found/x": b"1", "train/lost+found/y": b"1", "train/z": b"1"})
    pages = await listing(origin, exclude=("lost+found/",))
    assert {path for page in pages for path, _, _ in page.files} == {b"a b%.bin", b"empty", b"train/z"}
    end = pages[-1].end
    assert end is not None
    assert end.files == 3


async def test_a_folder_that_is_not_there_is_a_failure_and_no_empty_one(origin: str, volume: Path) -> None:
    (volume / "data").rename(volume / "old")
    end = (await listing(origin, required=True))[-1].end
    assert end is not None
    assert end.refused
    assert "No such file" in end.failure


@pytest.mark.failure_mode("claim-file-changes")
async def test_a_file_that_changes_while_it_is_sent_does_not_come_whole(
    origin: str, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed_meanwhile(folder: bytes, path: bytes, file: Any) -> bool:
        (volume / "data" / "a b%.bin").write_bytes(b"other")
        return is_unchanged(folder, path, file)

    monkeypatch.setattr(claim_server, "is_unchanged", changed_meanwhile)
    with pytest.raises(aiohttp.ClientError):
        await get(f"{origin}/files/a%20b%25.bin")


async def test_names_of_any_bytes_are_served(origin: str, volume: Path) -> None:
    name = b"caf\xe9\n#?%2F"
    (volume / "data" / os.fsdecode(name)).write_bytes(b"strange")
    assert (await get(f"{origin}/files/caf%E9%0A%23%3F%252F"))[:2] == (200, b"strange")


def test_a_certificate_that_no_authority_signed_is_taken_alone(tmp_path: Path) -> None:
    until = datetime.now(UTC) + timedelta(days=1)
    right, wrong = (make_own_certificate(name="x", host="x.tdcs.io", until=until) for _ in range(2))

    def shake_hands(shown: KeyPair, expected: KeyPair) -> None:
        (tmp_path / "pem").write_bytes(shown.certificate + shown.key)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(tmp_path / "pem")
        a, b, c, d = ssl.MemoryBIO(), ssl.MemoryBIO(), ssl.MemoryBIO(), ssl.MemoryBIO()
        server_side = server.wrap_bio(a, b, server_side=True)
        client_side = pinned(expected.certificate.decode()).wrap_bio(c, d, server_hostname="10.0.0.7")
        for _ in range(4):
            for side, out, into in ((client_side, d, a), (server_side, b, c)):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
                into.write(out.read())
        assert client_side.version() == "TLSv1.3"

    shake_hands(right, right)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(wrong, right)
