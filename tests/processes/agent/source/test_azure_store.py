"""A container of Azure, on a server of its Blob API: what is listed of it, and what agents read."""

from __future__ import annotations

import base64
import gzip
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.dataplane.listed_source import extents_of, files_of, listed, read
from tests.support.programs.azure_store import ACCOUNT, KEY, AzureStore, azure_store, shared_access

from tdcs.model.cache_engine import NO_KEYS, Credentials, KeysRefusedError, Source, SourceError
from tdcs.node.agent.mount.source_pieces import SourceFailureError

NAMES = (
    *("one two", "per%20cent", "100%", "plus+sign", "a&b<c>'\"", "umläut-日本-🐈", "what?#;="),
    *("deep/er/x", "deep-/y", "dots..in", "~", "e\u0301", "\u00e9", "$dollar(1)!*,:@"),
)
LARGE = random.Random(3).randbytes(300_000)
ACCOUNT_KEY = Credentials(access_key_id="", secret_access_key=KEY)


def signed(**fields: str) -> Credentials:
    return Credentials(access_key_id="", secret_access_key="", session_token=shared_access(**fields))


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureStore]:
    with azure_store(tmp_path_factory.mktemp("azure")) as running:
        yield running


@pytest.fixture
def container(store: AzureStore, request: pytest.FixtureRequest) -> str:
    name = f"c{abs(hash(request.node.name)):x}"
    store.make_container(name)
    return name


def source_of(
    store: AzureStore, container: str, credentials: Credentials = ACCOUNT_KEY, prefix: str = "data"
) -> Source:
    uri = f"az://{ACCOUNT}/{container}/{prefix}".rstrip("/")
    return Source(uri=uri, options={"endpoint": store.endpoint}, credentials=credentials)


@pytest.mark.parametrize("credentials", [ACCOUNT_KEY, signed()], ids=["key", "shared access"])
async def test_names_of_every_kind_are_listed_and_read(
    store: AzureStore, container: str, tmp_path: Path, credentials: Credentials
) -> None:
    for name in NAMES:
        store.put(container, f"data/{name}", name.encode())
    store.put(container, "data/large", LARGE)
    store.put(container, "data/empty", b"")
    store.put(container, "data/folder", b"", headers={"x-ms-meta-hdi_isfolder": "true"})
    store.put(container, "data/folder/below", b"x")
    store.put(container, "database", b"not below the prefix")
    source = source_of(store, container, credentials)

    manifest = await listed(source, tmp_path)

    sizes = {name: len(name.encode()) for name in NAMES}
    assert files_of(manifest) == sizes | {"large": len(LARGE), "empty": 0, "folder/below": 1}
    for name in NAMES:
        assert read(source, extents_of(manifest, name, piece=1 << 20)) == name.encode()
    assert read(source, extents_of(manifest, "large", piece=70_000)) == LARGE
    assert read(source, extents_of(manifest, "empty", piece=1 << 20)) == b""


async def test_many_blobs_are_listed_page_by_page(
    store: AzureStore, container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs.listing.page_requests.PAGE", 23)
    for number in range(120):
        store.put(container, f"{number % 7}/{number:05}", b"%d" % number)

    manifest = await listed(source_of(store, container, prefix=""), tmp_path)

    assert files_of(manifest) == {f"{number % 7}/{number:05}": len(str(number)) for number in range(120)}


async def test_a_public_container_is_read_without_keys_and_a_private_one_is_not(
    store: AzureStore, container: str, tmp_path: Path
) -> None:
    store.make_container("public", public=True)
    for name in ("public", container):
        store.put(name, "data/large", LARGE)
    public = source_of(store, "public", NO_KEYS)

    manifest = await listed(public, tmp_path)

    assert read(public, extents_of(manifest, "large", piece=100_000)) == LARGE
    private = source_of(store, container, NO_KEYS)
    with pytest.raises(KeysRefusedError, match="accountKey or sasToken"):
        await listed(private, tmp_path)
    with pytest.raises(SourceFailureError, match="accountKey or sasToken") as refused:
        read(private, extents_of(manifest, "large", piece=100_000))
    assert (refused.value.code, refused.value.common) == ("Denied", True)


async def test_a_blob_that_was_replaced_or_removed_since_is_refused(
    store: AzureStore, container: str, tmp_path: Path
) -> None:
    for name in ("same", "replaced", "removed"):
        store.put(container, f"data/{name}", LARGE)
    source = source_of(store, container)
    before = await listed(source, tmp_path)
    store.put(container, "data/replaced", LARGE)  # equal bytes, and another ETag
    store.delete(container, "data/removed")

    assert read(source, extents_of(before, "same", piece=100_000)) == LARGE
    for name in ("replaced", "removed"):  # either is the answer to a condition on a blob that is not there
        with pytest.raises(SourceFailureError) as refused:
            read(source, extents_of(before, name, piece=100_000)[1:])
        assert refused.value.code in ("Changed", "Missing")

    after = await listed(source, tmp_path)
    assert read(source, extents_of(after, "replaced", piece=100_000)) == LARGE
    assert before.file_id(before.file_at(b"same") or 0) == after.file_id(after.file_at(b"same") or 0)


async def test_a_blob_that_is_stored_packed_is_read_as_it_is_stored(
    store: AzureStore, container: str, tmp_path: Path
) -> None:
    packed = gzip.compress(b"a text that is stored packed " * 5000 + LARGE)
    store.put(container, "data/text.json", packed, headers={"x-ms-blob-content-encoding": "gzip"})
    source = source_of(store, container)

    manifest = await listed(source, tmp_path)

    assert files_of(manifest) == {"text.json": len(packed)}
    assert read(source, extents_of(manifest, "text.json", piece=50_000)) == packed
    assert read(source, extents_of(manifest, "text.json", piece=1 << 20)) == packed


async def test_a_blob_in_the_tier_archive_is_named_so(
    store: AzureStore, container: str, tmp_path: Path
) -> None:
    store.put(container, "data/a", b"a")
    store.set_tier(container, "data/a", "Archive")
    source = source_of(store, container)

    manifest = await listed(source, tmp_path)

    with pytest.raises(SourceFailureError) as refused:
        read(source, extents_of(manifest, "a", piece=9))
    assert "BlobArchived" in str(refused.value)
    assert "set its tier to Hot" in str(refused.value)


async def test_what_the_server_refuses_is_said_in_its_words(
    store: AzureStore, container: str, tmp_path: Path
) -> None:
    store.put(container, "data/a", b"a")
    wrong = base64.b64encode(b"another key").decode()
    refusals = {
        "there is no such container": source_of(store, "nobody-has-this"),
        "AuthorizationFailure": source_of(
            store, container, Credentials(access_key_id="", secret_access_key=wrong)
        ),
        "AuthorizationPermissionMismatch": source_of(store, container, signed(permissions="w")),
        "AuthorizationFailure ": source_of(store, container, signed(expiry="2020-01-01T00:00:00Z")),
    }
    for message, source in refusals.items():
        with pytest.raises(SourceError) as refused:
            await listed(source, tmp_path)
        text = str(refused.value)
        assert message.strip() in text, text
        assert source.credentials is not None
        assert not any(secret in text for secret in source.credentials.secrets), text
    manifest = await listed(source_of(store, container), tmp_path)
    with pytest.raises(SourceFailureError) as denied:
        read(source_of(store, container, signed(permissions="l")), extents_of(manifest, "a", piece=9))
    assert (denied.value.code, denied.value.common) == ("Denied", True)
    assert "AuthorizationPermissionMismatch" in str(denied.value)


async def test_the_account_may_stand_in_the_hosts_name(
    store: AzureStore, container: str, tmp_path: Path
) -> None:
    store.put(container, "data/large", LARGE)
    source = source_of(store, container)
    port = store.endpoint.rpartition(":")[2]
    by_name = replace(
        source, options={"endpoint": f"http://{ACCOUNT}.blob.localhost:{port}"}, address="127.0.0.1"
    )

    manifest = await listed(by_name, tmp_path)

    assert read(by_name, extents_of(manifest, "large", piece=100_000)) == LARGE
