"""Web sources that TDCS lists: pages, lists, names in the Dataset, and repositories of the Hugging Face Hub."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.programs.web_server import COMMIT, MODIFIED, WebServer, git_id, web_server
from tests.unit.listing.conftest import MOUNT

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import ProcessLister
from tdcs.listing.one_listing import list_source
from tdcs.listing.result import access_of, source_of
from tdcs.listing.source_keys import SourceKeys
from tdcs.listing.web import web_requests
from tdcs.listing.web.file_names import NamesError, named_files, page_links
from tdcs.model.cache_engine import (
    NO_KEYS,
    Credentials,
    KeysRefusedError,
    LimitExceededError,
    Source,
    SourceError,
)
from tdcs.model.listing_limit import ListingLimit

FILES = {
    "data/one.jpg": b"1" * 10,
    "data/two words & more.jpg": b"22",
    "data/train/per%25cent.jpg": b"333",
    "data/train/deep/umläut-日本.jpg": b"4444",
    "data/empty": b"",
    "elsewhere/no.jpg": b"55555",
}
NAMES = {
    path.removeprefix("data/"): len(content) for path, content in FILES.items() if path.startswith("data/")
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_requests, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(web_requests, "_MOST_PAUSE", 0.01)


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server(WebServer(files=dict(FILES))) as running:
        yield running


def source(server: WebServer, path: str = "data", **options: str) -> Source:
    return Source(
        uri=f"{server.origin}/{path}", options={"endpoint": server.origin, **options}, credentials=NO_KEYS
    )


async def listed(of: Source, folder: Path, limit: ListingLimit | None = None) -> dict[str, tuple[int, str]]:
    """Length and tag of each file by its name."""
    manifests = ManifestFolder(folder)
    listing = await list_source(source=of, path=MOUNT, folder=manifests, limit=limit)
    manifest = manifests.open(listing.digest)
    return {
        manifest.file_path(number).decode(): (int(manifest.lengths[number]), manifest.tag(number))
        for number in range(len(manifest.lengths))
    }


def lengths(found: dict[str, tuple[int, str]]) -> dict[str, int]:
    return {name: length for name, (length, _) in found.items()}


async def test_an_index_page_and_those_of_its_folders_name_all_files(
    server: WebServer, tmp_path: Path
) -> None:
    files = await listed(source(server), tmp_path)
    assert lengths(files) == NAMES
    assert files["one.jpg"][1] == f'"{hashlib.md5(b"1" * 10).hexdigest()}"', "without W/"  # noqa: S324


@pytest.mark.parametrize(("head", "etags"), [(False, True), (True, False)])
async def test_servers_without_head_or_without_etags_are_listed(
    server: WebServer, tmp_path: Path, head: bool, etags: bool
) -> None:
    server.head, server.etags = head, etags
    files = await listed(source(server), tmp_path)
    assert lengths(files) == NAMES
    if not etags:
        assert files["one.jpg"][1].startswith("mtime-ms:"), MODIFIED


async def test_a_list_of_names_hashes_or_json_names_the_files(server: WebServer, tmp_path: Path) -> None:
    sums = {name: hashlib.sha256(server.files[f"data/{name}"]).hexdigest() for name in NAMES}
    lists = {
        "names.txt": "".join(f"{name}\r\n" for name in NAMES),
        "sums.txt": "".join(f"{digest} *./{name}\n" for name, digest in sums.items()),
        "files.json": json.dumps(
            [
                {"path": name, "size": NAMES[name], "sha256": digest, "label": 7}
                for name, digest in sums.items()
            ]
        ),
        "files.jsonl": "".join(json.dumps({"name": name, "size": NAMES[name]}) + "\n" for name in NAMES),
    }
    for index, text in lists.items():
        server.files[f"data/{index}"] = text.encode()
        server.asked.clear()
        files = await listed(source(server, index=index), tmp_path / index)
        assert lengths(files) == NAMES, index
        if "sum" in index or index == "files.json":
            assert {tag for _, tag in files.values()} == {f"sha256:{digest}" for digest in sums.values()}
        if index == "files.json":
            assert len(server.asked) == 1, "length and hash are known: no file is asked about"


async def test_files_that_the_dataset_names_are_listed_and_missing_ones_are_named(
    server: WebServer, tmp_path: Path
) -> None:
    manifests = ManifestFolder(tmp_path)
    of = source(server, "", files="data/one.jpg\nelsewhere/no.jpg\ndata/gone.jpg")
    listing = await list_source(source=of, path=MOUNT, folder=manifests)
    manifest = manifests.open(listing.digest)
    assert [manifest.file_path(file) for file in range(len(manifest.lengths))] == [
        b"data/one.jpg",
        b"elsewhere/no.jpg",
    ]
    assert [(skip.path, skip.reason) for skip in listing.skipped] == [
        (b"data/gone.jpg", "the server has no file of that name (404)")
    ]


async def test_include_and_exclude_spare_the_questions_too(server: WebServer, tmp_path: Path) -> None:
    files = await listed(source(server, include="*.jpg", exclude="train/"), tmp_path)
    assert set(files) == {"one.jpg", "two words & more.jpg"}
    assert not [
        path for method, path, _ in server.asked if method == "HEAD" and ("train" in path or "empty" in path)
    ]


async def test_the_limit_ends_a_listing(server: WebServer, tmp_path: Path) -> None:
    with pytest.raises(LimitExceededError, match="more than 2 files"):
        await listed(source(server), tmp_path, ListingLimit(files=2))


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("nowhere", {}, "not at the source any more"),
        ("data/one.jpg", {}, r"spec\.source\.options\.index|there is no|not at the source"),
        ("data", {"index": "outside.txt"}, "no path below the source"),
        ("data", {"index": "bad.json"}, "no list of files"),
    ],
)
async def test_what_names_no_files_is_refused_with_a_sentence(
    server: WebServer, tmp_path: Path, path: str, options: dict[str, str], words: str
) -> None:
    server.files["data/outside.txt"] = b"one.jpg\n../elsewhere/no.jpg\n"
    server.files["data/bad.json"] = b'[{"path": "one.jpg", "size": -1}]'
    with pytest.raises(SourceError, match=words):
        await listed(source(server, path, **options), tmp_path)


async def test_credentials_go_to_the_server_alone_and_are_asked_for(
    server: WebServer, tmp_path: Path
) -> None:
    server.credentials = "Bearer s3cr3t-token"
    with pytest.raises(KeysRefusedError, match="Name a Secret with token"):
        await listed(source(server), tmp_path)
    token = Credentials(access_key_id="", secret_access_key="", session_token="s3cr3t-token")
    keyed = Source(uri=f"{server.origin}/data", options={"endpoint": server.origin}, credentials=token)
    assert source_of(access_of(keyed)) == keyed, "as the listing's process gets it"
    with web_server(WebServer(files={"data/moved.jpg": b"x"})) as elsewhere:
        server.files["data/moved.jpg"] = b""
        server.redirects["/data/moved.jpg"] = f"{elsewhere.origin}/data/moved.jpg"
        with pytest.raises(SourceError, match="has no TLS and no rule"):
            await listed(keyed, tmp_path)
        assert not elsewhere.asked
        trusted = Source(
            uri=keyed.uri, options=keyed.options, credentials=token, redirects=(elsewhere.origin,)
        )
        assert lengths(await listed(trusted, tmp_path)) == NAMES | {"moved.jpg": 1}
        assert elsewhere.asked, "a rule names it"
        assert not any("Authorization" in headers for _, _, headers in elsewhere.asked)


async def test_a_source_says_whether_it_takes_the_credentials(server: WebServer) -> None:
    check = SourceKeys()
    assert await check(source(server), namespace="n")
    assert await check(source(server, files="data/one.jpg"), namespace="n")
    server.credentials = "Basic dXNlcjpwYXNz"
    user = Credentials(access_key_id="user", secret_access_key="pass")
    assert await check(Source(uri=f"{server.origin}/data", credentials=user), namespace="n")
    with pytest.raises(KeysRefusedError):
        await check(source(server), namespace="n")
    server.redirects["/data/"] = "/data/"
    assert not await check(Source(uri=f"{server.origin}/data", credentials=user), namespace="n"), "no word"


async def test_a_server_that_is_busy_is_asked_again(server: WebServer, tmp_path: Path) -> None:
    answer, failures = server.answer, iter([503, 429, 503])

    def busy(request: object) -> None:
        if len(server.asked) % 2 and (status := next(failures, None)):
            server.asked.append(("", "", {}))
            request.send_response(status)  # type: ignore[attr-defined]
            request.send_header("Content-Length", "0")  # type: ignore[attr-defined]
            request.end_headers()  # type: ignore[attr-defined]
        else:
            answer(request)  # type: ignore[arg-type]

    server.answer = busy  # type: ignore[method-assign]
    assert lengths(await listed(source(server), tmp_path)) == NAMES


async def test_a_repository_of_the_hub_is_listed_at_one_commit_by_its_pages(
    server: WebServer, tmp_path: Path
) -> None:
    server.files, server.large = {f"train/{number}.bin": b"x" * number for number in range(8)}, 7
    hub = Source(uri="hf://datasets/team/pictures", options={"endpoint": server.origin}, credentials=NO_KEYS)
    files = await listed(hub, tmp_path)
    assert lengths(files) == {path: len(content) for path, content in server.files.items()}
    assert files["train/3.bin"][1] == f'"{git_id(b"xxx")}"'
    assert files["train/7.bin"][1] == f'"{hashlib.sha256(b"x" * 7).hexdigest()}"'
    pages = [path for _, path, _ in server.asked if "/tree/" in path]
    assert len(pages) == 3
    assert all(f"/tree/{COMMIT}?recursive=true" in path for path in pages)

    below = Source(uri="hf://datasets/team/pictures/train", options=hub.options, credentials=NO_KEYS)
    assert set(await listed(below, tmp_path)) == {f"{number}.bin" for number in range(8)}
    missing = Source(uri="hf://datasets/team/other", options=hub.options, credentials=NO_KEYS)
    with pytest.raises(SourceError, match="not at the source"):
        await listed(missing, tmp_path)
    pinned = Source(uri=hub.uri, options={**hub.options, "revision": "v1.0"}, credentials=NO_KEYS)
    with pytest.raises(SourceError):
        await listed(pinned, tmp_path)


async def test_a_process_of_its_own_lists_a_web_source(server: WebServer, tmp_path: Path) -> None:
    of = source(server)
    lister = ProcessLister(folder=ManifestFolder(tmp_path), source_of=lambda _: of)
    listing = await asyncio.wait_for(lister.list(path=MOUNT), 60)
    assert listing.totals.files == len(NAMES)


def test_links_lead_nowhere_but_below_the_page() -> None:
    page = b"""<!DOCTYPE html><base href='http://evil'><a href="a.jpg">a</a><a href=a.jpg>again</a>
    <a href='./b%20c.jpg#part'>b</a><a href="/data/sub/abs.jpg">abs</a>
    <a href="https://host:8443/data/sub/full.jpg">f</a>
    <a href="https://other/data/sub/x">x</a><a href="../up.jpg">up</a><a href="%2e%2e/up2.jpg">up</a>
    <a href="/etc/passwd">p</a>
    <a href="deeper/">d</a><a href="?C=M">s</a><a href="c.jpg?download=1">q</a><a href="javascript:alert(1)">j</a>
    <a href="x%2f..%2f..%2fup3">u</a><a href="//other/data/sub/y">y</a><a href="http://[bad">z</a><a>none</a>"""
    links = page_links(page, base="/data/", folder=b"sub/", hosts={"host:8443"})
    assert sorted(links.files) == [b"sub/a.jpg", b"sub/abs.jpg", b"sub/b c.jpg", b"sub/full.jpg"]
    assert links.folders == [b"sub/deeper/"]


@pytest.mark.parametrize(
    "content",
    [
        b"/etc/passwd",
        b"a//b",
        b"..",
        b"a/../../b",
        b'["a", 5]',
        b'{"size": 5}',
        b"{",
        b'[{"path":"a","sha256":"xyz"}]',
        b"x" * 20_000,
    ],
)
def test_lists_with_names_that_lead_elsewhere_are_refused(content: bytes) -> None:
    with pytest.raises(NamesError):
        list(named_files(content))
