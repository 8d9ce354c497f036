"""A Dataset of too many names, or bytes: it is refused before a cache learns them, and says which limit it met."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.unit.sources.listed_store import (
    PATH,
    Store,
    listed,
    listing,
    set_limits,
    size_of,
)
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.decide.source_limits import listing_limit
from tdcs.listing import bucket_listing, page_requests
from tdcs.listing.bucket_listing import BucketListing
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import Failed
from tdcs.model.cache_engine import (
    EngineUnavailableError,
    KeysRefusedError,
    LimitExceededError,
    Source,
    SourceError,
)
from tdcs.model.kube_resources import DATASETS, SECRETS
from tdcs.model.listing_limit import ListingLimit, SourcesSize
from tdcs.model.manifest_builder import ManifestBuilder

MB = 1_000_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_requests, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(page_requests, "_MOST_PAUSE", 0.01)


def check(store: Store, **limit: int) -> SourcesSize:
    return size_of(store, ListingLimit(**limit))  # type: ignore[arg-type]


@pytest.mark.threat("names-by-the-million")
def test_of_a_bucket_with_names_without_end_no_more_pages_are_asked_for_than_the_limit_takes() -> None:
    with Store(page=lambda number: (200, {}, listing(number))) as store:
        with pytest.raises(LimitExceededError, match="more than 2500 files"):
            check(store, files=2500)
        assert store.pages == 3
        assert all("list-type=2" in path and "prefix=many%2F" in path for path in store.asked)
        with pytest.raises(LimitExceededError, match="more than 4999 bytes"):
            check(store, files=10**6, bytes=4999)
        assert store.pages == 4


def test_a_bucket_within_its_limits_passes_and_its_last_page_is_the_last_that_is_asked_for() -> None:
    with Store(page=lambda number: (200, {}, listing(number, more=number < 2))) as store:
        assert check(store, files=3000, bytes=15_000) == SourcesSize(files=3000, bytes=15_000)
        assert store.pages == 3


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (301, b"", "another host.*spec.source.options.endpoint"),
        (307, b"", "another host.*spec.source.options.endpoint"),
        (403, b"", "refused the credentials.*secretRef"),
        (403, b"<Code>RequestTimeTooSkewed</Code>", "clocks.*NTP"),
        (404, b"<Code>NoSuchBucket</Code>", "no such bucket"),
        (404, b"", "no object store"),
        (400, b"<Code>NotImplemented</Code>", "no listing.*NotImplemented.*ListObjectsV2"),
    ],
)
def test_a_store_that_gives_no_listing_is_no_empty_one_and_no_redirection_is_followed(
    status: int, text: bytes, said: str
) -> None:
    with (
        Store(page=lambda number: (200, {}, listing(number))) as elsewhere,
        Store(page=lambda _: (status, {"Location": elsewhere.source.options["endpoint"]}, text)) as store,
    ):
        with pytest.raises(SourceError, match=said) as caught:
            check(store, files=10)
        assert isinstance(caught.value, KeysRefusedError) == ("credentials" in said)
        assert (len(store.asked), len(elsewhere.asked)) == (1, 0)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
@pytest.mark.failure_mode("store-fails-during-listing")
def test_a_page_that_a_busy_store_does_not_give_is_asked_for_again(status: int) -> None:
    """With the pages before it the count would end, as if that were all."""
    requests = Counter[int]()

    def page(number: int) -> tuple[int, dict[str, str], bytes]:
        requests[number] += 1
        text = b"<Error><Code>SlowDown</Code></Error>"
        busy = number > 0 and requests[number] == 1
        return (status, {}, text) if busy else (200, {}, listing(number, more=number < 2))

    with Store(page=page) as store:
        assert check(store, files=5000).files == 3000
        assert (requests[1], requests[2]) == (2, 2)


@pytest.mark.failure_mode("store-fails-during-listing")
def test_a_store_that_stays_busy_in_the_middle_is_not_counted() -> None:
    with Store(page=lambda number: (200, {}, listing(0)) if not number else (503, {}, b"")) as store:
        with pytest.raises(SourceError, match="busy"):
            check(store, files=5000)
        assert store.pages == 1 + 20


@pytest.mark.failure_mode("store-fails-during-listing")
def test_a_page_that_is_cut_off_counts_only_when_it_comes_whole() -> None:
    """Also where no length was announced, so that the connection ends as it does after a whole one."""
    whole = listing(1, more=False)
    pages = iter([whole[: len(whole) // 2], whole[: whole.rindex(b"<")], whole])
    with Store(page=lambda number: (200, {}, next(pages) if number else listing(0))) as store:
        assert check(store, files=5000) == SourcesSize(files=2000, bytes=10_000)


def test_a_page_that_says_that_there_are_more_and_names_none_is_not_the_last() -> None:
    text = listing(0, more=False).replace(b"<Contents>", b"<IsTruncated>true</IsTruncated><Contents>", 1)
    with (
        Store(page=lambda _: (200, {}, text)) as store,
        pytest.raises(SourceError, match="not the last names no next one"),
    ):
        check(store, files=5000)


def test_a_store_that_gives_pages_without_names_forever_has_no_listing() -> None:
    with Store(page=lambda number: (200, {}, listing(number, names=0))) as store:
        with pytest.raises(SourceError, match="100 pages without an object"):
            check(store, files=10)
        assert store.pages == 101


def test_a_page_without_end_is_read_no_further_than_a_page_can_be() -> None:
    """Takes as long as 16 MiB take on loopback, twice."""
    text = b"<Size>1</Size>" + b"x" * (24 << 20)
    with (
        Store(page=lambda _: (200, {}, text)) as store,
        pytest.raises(SourceError, match="more than 16777216 bytes"),
    ):
        check(store, files=10)


@contextmanager
def dripping() -> Iterator[tuple[Source, list[socket.socket]]]:
    """A store that never ends its headers: a byte every 10 ms. Gives its source, and the connections that it has."""
    open_: list[socket.socket] = []
    server = socket.create_server(("127.0.0.1", 0))

    def drip(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not ended.wait(0.01):
                connection.sendall(b"x")
        open_.remove(connection)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while not ended.is_set():
                connection, _ = server.accept()
                open_.append(connection)
                threading.Thread(target=drip, args=(connection,), daemon=True).start()

    ended = threading.Event()
    threading.Thread(target=serve, daemon=True).start()
    options = {"endpoint": f"http://localhost:{server.getsockname()[1]}", "pathStyle": "true"}
    try:
        yield Source(uri="s3://bucket/slow", options=options), open_
    finally:
        ended.set()
        server.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - of threads
            await asyncio.sleep(0.005)


def listing_of(source: Source) -> BucketListing:
    def builder() -> ManifestBuilder:
        return ManifestBuilder(path=PATH, source=source.uri)

    return BucketListing(source=source, path=PATH, limit=ListingLimit(files=10), builder=builder)


@pytest.mark.threat("slow-counts")
async def test_a_store_that_never_ends_its_answer_is_given_up_when_the_time_of_a_page_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bucket_listing, "_PAGE_SECONDS", 0.1)
    with dripping() as (source, open_):
        async with asyncio.timeout(10):
            with pytest.raises(SourceError, match="takes too long"):
                await listing_of(source).run()
        await until(lambda: not open_)


@pytest.mark.threat("slow-counts")
async def test_a_listing_waits_in_no_thread_and_ends_when_it_is_cancelled() -> None:
    class Closed(ThreadPoolExecutor):
        def submit(self, *_: object, **__: object) -> Any:
            raise AssertionError("a listing is for no thread that others wait for")

    asyncio.get_running_loop().set_default_executor(Closed())
    with dripping() as (source, open_):
        run = asyncio.ensure_future(listing_of(source).run())
        await until(lambda: bool(open_) or run.done())
        run.cancel()
        assert isinstance((await asyncio.gather(run, return_exceptions=True))[0], asyncio.CancelledError)
        await until(lambda: not open_)


def test_a_size_of_thousands_of_digits_is_no_size() -> None:
    text = b"<ListBucketResult><Contents><Key>many/a</Key><Size>%s</Size></Contents></ListBucketResult>"
    with (
        Store(page=lambda _: (200, {}, text % (b"9" * 5000))) as store,
        pytest.raises(SourceError, match="1 objects has 1 names and 0 lengths"),
    ):
        check(store, files=1)


def test_an_endpoint_that_is_away_is_not_counted() -> None:
    with Store(page=lambda number: (200, {}, listing(number))) as store:
        source = store.source
    with pytest.raises(
        SourceError, match=r"no connection with 127\.0\.0\.1.*spec\.source\.options\.endpoint"
    ):
        asyncio.run(listing_of(source).run())


@pytest.mark.threat("names-by-the-million")
async def test_a_listing_ends_at_its_limit_and_writes_nothing(tmp_path: Path) -> None:
    folder = ManifestFolder(tmp_path)
    with Store(page=lambda number: (200, {}, listing(number, names=100, more=False))) as store:
        for limit in (ListingLimit(files=99), ListingLimit(files=100, bytes=499)):
            with pytest.raises(LimitExceededError, match=r"spec\.limits"):
                await listed(store, folder, limit)
        assert not folder.digests()
        page_listing = await listed(store, folder, ListingLimit(files=100, bytes=500))
        assert page_listing.size == SourcesSize(files=100, bytes=500)


@pytest.fixture
def many() -> MemoryEngine:
    files = {str(number): MB // 100 for number in range(100)}
    sources = {"s3://pictures": files, "s3://others": dict(list(files.items())[:60]), "s3://more": files}
    return MemoryEngine(sources=sources, workers={"a": 100 * MB})


async def test_a_dataset_beyond_a_limit_names_it_with_the_remedy_and_a_higher_one_lets_it_in(
    many: MemoryEngine,
) -> None:
    async with Cluster(engine=many, nodes={"a": {}}) as cluster:
        await cluster.create_cache(limits={"filesPerDataset": 99})
        await cluster.create_keys()
        await cluster.create_dataset()
        await cluster.until(lambda: cluster.condition("Ready").get("reason") == "LimitExceeded")
        text = cluster.condition("Ready")["message"]
        assert "spec.limits.filesPerDataset of CacheCluster default" in text
        assert re.search(r"more than 99 files.*Name a folder with less.*higher limit", text)
        # One of the limit's size is served next to it.
        await cluster.create_dataset("others", source={"uri": "s3://others"})
        await cluster.until_state("Ready", "others")
        await set_limits(cluster, filesPerDataset=100, bytesPerDataset="999999")
        await cluster.until(lambda: "bytesPerDataset" in cluster.condition("Ready")["message"])
        # All sources together: 60 files of the other one leave 99 of 159.
        await set_limits(cluster, filesPerDataset=None, bytesPerDataset=None, files=159)
        await cluster.until(lambda: "what spec.limits.files" in cluster.condition("Ready")["message"])
        await set_limits(cluster, files=160)
        await cluster.until_state("Ready")


async def test_a_namespace_has_its_own_share_of_files_and_bytes_and_fills_no_others(
    many: MemoryEngine,
) -> None:
    async with Cluster(engine=many, nodes={"a": {}}) as cluster:
        await cluster.create_cache(limits={"filesPerNamespace": 100})
        await cluster.create_keys()
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        await cluster.create_dataset("others", source={"uri": "s3://others"})
        await cluster.until(lambda: cluster.condition("Ready", "others").get("reason") == "LimitExceeded")
        text = cluster.condition("Ready", "others")["message"]
        assert "what spec.limits.filesPerNamespace of CacheCluster default leaves" in text
        # Another namespace has all of its own.
        cluster.server.store(SECRETS)["m", "keys"] = cluster.server.store(SECRETS)["n", "keys"]
        source = {"uri": "s3://others", "secretRef": {"name": "keys"}}
        obj = {"apiVersion": names.API_VERSION, "kind": "Dataset", "spec": {"source": source}}
        await cluster.server.create(DATASETS, obj={**obj, "metadata": {"name": "theirs", "namespace": "m"}})

        def theirs() -> bool:
            status = cluster.server.store(DATASETS)["m", "theirs"].get("status") or {}
            return status.get("state") == "Ready"

        await cluster.until(theirs)
        await set_limits(cluster, filesPerNamespace=None, bytesPerNamespace="1500000")
        await cluster.create_dataset("more", source={"uri": "s3://more"})
        await cluster.until(
            lambda: "bytesPerNamespace" in cluster.condition("Ready", "more").get("message", "")
        )


@pytest.mark.parametrize(
    ("limits", "namespaces", "files", "size"),
    [
        ({"filesPerNamespace": 100}, [SourcesSize(files=60)], 40, None),
        ({"filesPerNamespace": 100}, [SourcesSize(files=60), SourcesSize(files=10)], 90, None),
        ({"filesPerNamespace": 100}, [SourcesSize(files=160)], 0, None),
        ({"filesPerNamespace": 100, "filesPerDataset": 30}, [SourcesSize(files=60)], 30, None),
        ({"bytesPerNamespace": "1000", "files": 7}, [SourcesSize(bytes=400)], 7, 600),
        (
            {"bytesPerNamespace": "1000", "bytesPerDataset": "500", "files": 7},
            [SourcesSize(bytes=400)],
            7,
            500,
        ),
    ],
)
def test_the_least_that_any_limit_leaves_counts(
    limits: dict[str, object], namespaces: list[SourcesSize], files: int, size: int | None
) -> None:
    spec = CacheClusterSpec.model_validate({"limits": limits})
    limit = listing_limit(spec, cluster="c", others=0, namespaces=namespaces)
    assert (limit.files, limit.bytes) == (files, size)


async def test_a_source_that_grows_beyond_its_limit_is_read_as_it_was_and_says_so(many: MemoryEngine) -> None:
    async with Cluster(engine=many, nodes={"a": {}}) as cluster:
        await cluster.create_cache(limits={"filesPerDataset": 100})
        await cluster.create_keys()
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        many.sources["s3://pictures"] = {str(number): MB // 100 for number in range(101)}
        patch = {"metadata": {"annotations": {names.ANNOTATION_REFRESH: "1"}}}
        await cluster.server.merge(DATASETS, name="pictures", namespace="n", patch=patch)
        await cluster.until(lambda: cluster.condition("SourceReachable").get("reason") == "LimitExceeded")
        assert cluster.status()["totalFiles"] == 100
        assert cluster.condition("Ready")["status"] == "True"


@pytest.mark.threat("names-by-the-million")
@pytest.mark.parametrize("heap", [[], ["-Xmx3g"]])
@pytest.mark.parametrize("engine", ["Alluxio", "Native"])
def test_where_nothing_is_set_ten_million_files_are_the_limit_whatever_alluxio_has_room_for(
    engine: str, heap: list[str]
) -> None:
    spec = CacheClusterSpec.model_validate({"engine": engine, "master": {"jvmOptions": heap}})
    assert listing_limit(spec, cluster="c", others=0).files == 10_000_000
    assert listing_limit(spec, cluster="c", others=10_000_001).files == 0


def test_a_limit_crosses_to_the_listing_process_and_its_error_back() -> None:
    error = LimitExceededError(attempted="a", reason="r", remedy="m")
    assert type(Failed.of(error).error()) is LimitExceededError
    assert not isinstance(error, EngineUnavailableError)
