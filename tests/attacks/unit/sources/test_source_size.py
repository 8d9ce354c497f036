"""A Dataset of too many names, or bytes: it is refused before a cache learns them, and says which limit it met."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.unit.sources.listed_store import Store, listing, set_limits
from tests.support.twins.engine import MemoryEngine
from tests.support.twins.local_lister import LocalLister
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.decide.source_limits import listing_limit
from tdcs.listing import page_requests
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import Failed
from tdcs.listing.source_size import ListingPage, SourceSize
from tdcs.model.cache_engine import (
    EngineUnavailableError,
    KeysRefusedError,
    LimitExceededError,
    Source,
    SourceError,
)
from tdcs.model.file_folders import FolderCounter
from tdcs.model.kube_resources import DATASETS, SECRETS
from tdcs.model.listing_limit import ListingLimit, SourcesSize

MB = 1_000_000
PATH = "/datasets/1f"


def count_of(store: Store, **limit: int) -> SourcesSize:
    found = asyncio.run(SourceSize()(store.source, ListingLimit(**limit), path=PATH))  # type: ignore[arg-type]
    assert found is not None
    return found


check = count_of


@pytest.mark.threat("names-by-the-million")
def test_of_a_bucket_with_names_without_end_no_more_pages_are_asked_for_than_the_limit_takes() -> None:
    with Store(page=lambda number: (200, {}, listing(number))) as store:
        with pytest.raises(LimitExceededError, match="more than 2500 files"):
            check(store, files=2500)
        assert len(store.asked) == 3
        assert all("list-type=2" in path and "prefix=many%2F" in path for path in store.asked)
        with pytest.raises(LimitExceededError, match="more than 4999 bytes"):
            check(store, files=10**6, bytes=4999)
        assert len(store.asked) == 4


def test_a_bucket_within_its_limits_passes_and_its_last_page_is_the_last_that_is_asked_for() -> None:
    with Store(page=lambda number: (200, {}, listing(number, more=number < 2))) as store:
        check(store, files=3000, bytes=15_000)
        assert len(store.asked) == 3


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
    """What follows would be a cache that lists it without a limit."""
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
    busy = iter([False, True, False, True, False])

    def page(number: int) -> tuple[int, dict[str, str], bytes]:
        text = b"<Error><Code>SlowDown</Code></Error>"
        return (status, {}, text) if next(busy) else (200, {}, listing(number, more=number < 2))

    with Store(page=page) as store:
        assert count_of(store, files=5000).files == 3000
        assert len(store.asked) == 5


@pytest.mark.failure_mode("store-fails-during-listing")
def test_a_store_that_stays_busy_in_the_middle_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_requests, "_FIRST_PAUSE", 0.001)
    with Store(page=lambda number: (200, {}, listing(0)) if not number else (503, {}, b"")) as store:
        with pytest.raises(SourceError, match="busy"):
            check(store, files=5000)
        assert len(store.asked) == 9


@pytest.mark.failure_mode("store-fails-during-listing")
def test_a_page_that_is_cut_off_counts_only_when_it_comes_whole() -> None:
    """Also where no length was announced, so that the connection ends as it does after a whole one."""
    whole = listing(1, more=False)
    pages = iter([listing(0), whole[: len(whole) // 2], whole[: whole.rindex(b"<")], whole])
    with Store(page=lambda _: (200, {}, next(pages))) as store:
        assert count_of(store, files=5000) == SourcesSize(files=2000, bytes=10_000)


def test_a_page_that_says_that_there_are_more_and_names_none_is_not_the_last() -> None:
    text = listing(0, more=False).replace(b"<Contents>", b"<IsTruncated>true</IsTruncated><Contents>", 1)
    with (
        Store(page=lambda _: (200, {}, text)) as store,
        pytest.raises(SourceError, match="cut off"),
    ):
        check(store, files=5000)


def test_a_store_that_gives_pages_without_names_forever_has_no_listing() -> None:
    with Store(page=lambda number: (200, {}, listing(number, names=0))) as store:
        with pytest.raises(SourceError, match="100 pages without an object"):
            check(store, files=10)
        assert len(store.asked) == 100


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


@pytest.mark.threat("slow-counts")
async def test_a_store_that_never_ends_its_answer_is_given_up_when_the_time_of_a_page_is_over() -> None:
    with dripping() as (source, open_):
        async with asyncio.timeout(10):
            with pytest.raises(SourceError, match="takes too long"):
                await SourceSize(page_seconds=0.1)(source, ListingLimit(files=10), path=PATH)
        await until(lambda: not open_)


@pytest.mark.threat("slow-counts")
async def test_a_count_holds_no_thread_of_the_event_loop_and_ends_when_it_is_cancelled() -> None:
    class Closed(ThreadPoolExecutor):
        def submit(self, *_: object, **__: object) -> Any:
            raise AssertionError("a count is for no thread that others wait for")

    asyncio.get_running_loop().set_default_executor(Closed())
    with dripping() as (source, open_):
        count = asyncio.ensure_future(SourceSize()(source, ListingLimit(files=10), path=PATH))
        await until(lambda: bool(open_) or count.done())
        count.cancel()
        assert isinstance((await asyncio.gather(count, return_exceptions=True))[0], asyncio.CancelledError)
        await until(lambda: not open_)


async def test_a_count_ends_with_an_error_when_the_time_of_all_its_pages_is_over() -> None:
    over = threading.Event()

    def page(number: int) -> tuple[int, dict[str, str], bytes]:
        if number:
            over.wait(10)
        return 200, {}, listing(number, names=1)

    with Store(page=page) as store:
        try:
            with pytest.raises(SourceError, match=r"has named [01] of them in 1 s.*lists so slowly"):
                await SourceSize(seconds=0.5)(store.source, ListingLimit(files=50), path=PATH)
        finally:
            over.set()


async def test_so_many_sources_are_counted_at_once_and_the_others_wait_for_their_turn() -> None:
    with dripping() as (source, open_):
        check_size = SourceSize(at_once=2)
        counts = [
            asyncio.ensure_future(check_size(source, ListingLimit(files=10), path=PATH)) for _ in range(3)
        ]
        await until(lambda: len(open_) == 2)
        counts[0].cancel()
        await asyncio.wait([counts[0]])
        await until(lambda: len(open_) == 2 and not any(count.done() for count in counts[1:]))
        for count in counts:
            count.cancel()
        await asyncio.wait(counts)


@pytest.mark.threat("slow-counts")
async def test_the_slow_stores_of_one_namespace_keep_no_other_namespace_waiting() -> None:
    check_size, limit = SourceSize(), ListingLimit(files=3000)
    with dripping() as (source, open_), Store(page=lambda n: (200, {}, listing(n, more=n < 2))) as store:
        attacks = [
            asyncio.ensure_future(check_size(source, limit, path=PATH, namespace="attacker"))
            for _ in range(100)
        ]
        await until(lambda: len(open_) == 8)
        async with asyncio.timeout(20):
            found = await check_size(store.source, limit, path=PATH, namespace="victim")
        assert found == SourcesSize(files=3000, bytes=15_000)
        assert len(open_) == 8
        for attack in attacks:
            attack.cancel()
        await asyncio.wait(attacks)


def test_a_size_of_thousands_of_digits_is_no_size() -> None:
    text = b"<Size>" + b"9" * 5000 + b"</Size>" + b"<Size>7</Size>" * 2 + b"</ListBucketResult>"
    with Store(page=lambda _: (200, {}, text)) as store:
        check(store, files=2, bytes=14)
        with pytest.raises(LimitExceededError):
            check(store, files=1)


@pytest.mark.parametrize("length", [1, 7, 64])
def test_names_count_wherever_a_page_is_cut_as_it_comes(length: int) -> None:
    text, page = listing(0, names=40, size=123), ListingPage(FolderCounter())
    sizes = [size for at in range(0, len(text), length) for size in page.add(text[at : at + length]).sizes]
    assert sizes == [123] * 40
    assert page.token == "1"


def test_an_endpoint_that_is_away_is_not_counted() -> None:
    with Store(page=lambda number: (200, {}, listing(number))) as store:
        source = store.source
    with pytest.raises(
        SourceError, match=r"no connection with 127\.0\.0\.1.*spec\.source\.options\.endpoint"
    ):
        asyncio.run(SourceSize()(source, ListingLimit(files=1), path=PATH))


def test_a_folder_is_not_counted_here() -> None:
    assert asyncio.run(SourceSize()(Source(uri="file:///nfs"), ListingLimit(files=1), path=PATH)) is None


@pytest.mark.threat("names-by-the-million")
async def test_a_listing_ends_at_its_limit_and_writes_nothing(tmp_path: Path) -> None:
    engine = MemoryEngine(sources={"s3://many": {str(n): 5 for n in range(100)}}, workers={"a": MB})
    await engine.mount(path=PATH, source=Source(uri="s3://many"))
    lister = LocalLister(engine=engine, folder=ManifestFolder(tmp_path))
    assert (await lister.list(path=PATH, limit=ListingLimit(files=100, bytes=500))).totals.files == 100
    written = ManifestFolder(tmp_path).digests()
    for limit in (ListingLimit(files=99), ListingLimit(files=100, bytes=499)):
        with pytest.raises(LimitExceededError, match=r"spec\.limits"):
            await lister.list(path=PATH, limit=limit)
    assert ManifestFolder(tmp_path).digests() == written


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
    found = listing_limit(spec, cluster="c", others=0, namespaces=namespaces)
    assert (found.files, found.bytes) == (files, size)


async def test_a_source_that_grows_beyond_its_limit_is_read_as_it_was_and_says_so(many: MemoryEngine) -> None:
    async with Cluster(engine=many, nodes={"a": {}}) as cluster:
        await cluster.create_cache(limits={"filesPerDataset": 100})
        await cluster.create_keys()
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        many.sources["s3://pictures"] = {str(number): MB // 100 for number in range(101)}
        asked = {"metadata": {"annotations": {names.ANNOTATION_REFRESH: "1"}}}
        await cluster.server.merge(DATASETS, name="pictures", namespace="n", patch=asked)
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
