"""What a first listing has so far is loaded before it has ended, and nothing but loading follows from it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import Cluster

from tdcs.control.dataset.mount.orphaned_mounts import remove_unused
from tdcs.control.dataset.mount.shared_mount import Place
from tdcs.model.cache_engine import EngineError, EngineUnavailableError, LimitExceededError, SourceError
from tdcs.model.kube_resources import DATASETS

MB = 1_000_000
PAGE = 5
FILES = 20


class Pages:
    """Holds the pages of every listing back behind the first one, and counts the blocks that come from the source."""

    def __init__(self, cluster: Cluster) -> None:
        self.open = asyncio.Event()
        self.pages_before = 1
        self.listings = self.held = self.from_source = 0
        self.failure: EngineError | None = None
        self._lister = cluster.memory.lister
        self._lister.tells_early, self._lister.between_pages = True, self._hold
        cluster.engine.before = self._count

    def tell_early(self) -> None:
        self._lister.tells_early = True

    def hold_no_other(self) -> None:
        """Hold the listings that have begun, and let others go on."""
        self._lister.between_pages = self._go_on

    async def _go_on(self) -> None:
        """Nothing holds the page."""

    async def _hold(self) -> None:
        self.pages_before -= 1
        if self.pages_before > 0:
            return
        self.held += not self.open.is_set()
        await self.open.wait()
        self._lister.tells_early = not self.open.is_set()  # the others come at once, but when it was cut off
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def cut_off(self) -> None:
        """End the listing that is held back, as when its process is killed."""
        self.failure = EngineUnavailableError(
            attempted="list", reason="the process was killed", remedy="", retryable=True
        )
        held, self.open = self.open, asyncio.Event()
        held.set()

    async def _count(self, operation: Operation) -> None:
        if operation.name == "files":
            self.listings += 1
        if operation.name == "put" and operation.length:
            self.from_source += 1


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr("tests.support.twins.engine._PAGE", PAGE)
    # Nodes wait for each other however busy the machine is, so that the source is asked once for each file.
    monkeypatch.setattr("tests.support.twins.agent_work.PEER_PATIENCE", 600.0)
    sources = {
        f"s3://{bucket}": {f"{number:03d}.jpg": MB for number in range(FILES)}
        for bucket in ("pictures", "others")
    }
    engine = MemoryEngine(sources=sources, workers=dict.fromkeys("ab", 30 * MB))
    async with Cluster(engine=engine, nodes={"a": {}, "b": {}}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


@pytest.fixture
def pages(cluster: Cluster) -> Pages:
    return Pages(cluster)


async def first_page(cluster: Cluster) -> None:
    """Until the files of the first page are on both nodes."""
    await cluster.until(lambda: cluster.held() == dict.fromkeys("ab", PAGE * MB))


async def looked_at(cluster: Cluster, pages: Pages) -> None:
    """Until a page is held back, and passes have been made since then."""
    await cluster.until(lambda: pages.held)
    passes = cluster.passes
    await cluster.annotate("pictures", looked="1")
    await cluster.until(lambda: cluster.passes >= passes + 2)


async def test_the_first_page_is_loaded_while_others_are_held_back_and_the_dataset_is_not_ready(
    cluster: Cluster, pages: Pages
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    status = cluster.status()
    assert status["state"] == "Mounting"
    assert not any(map(status.get, ("totalFiles", "totalBytes", "cachedBytes", "loadedBytes", "claimName")))
    assert not cluster.observer.view("default").versions
    pages.open.set()
    await cluster.until_state("Ready")
    assert cluster.held() == dict.fromkeys("ab", FILES * MB)
    assert pages.from_source == FILES


async def test_an_operator_that_is_killed_goes_on_with_what_was_loaded(
    cluster: Cluster, pages: Pages
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    await cluster.stop()
    await cluster.start()
    await cluster.until(lambda: pages.listings == 2)
    pages.open.set()
    await cluster.until_state("Ready")
    assert pages.from_source == FILES


@pytest.mark.parametrize("killed", ["operator", "lister"])
async def test_a_listing_that_begins_again_drops_nothing_of_what_the_last_one_had(
    cluster: Cluster, pages: Pages, killed: str
) -> None:
    pages.pages_before = 3
    await cluster.create_dataset(placement={"nodeCount": 2})
    loaded = dict.fromkeys("ab", 3 * PAGE * MB)
    await cluster.until(lambda: cluster.held() == loaded)
    pages.pages_before, pages.held = 1, 0  # the next one stops behind its first page
    if killed == "operator":
        await cluster.stop()
        await cluster.start()
    else:
        pages.cut_off()
    await cluster.until(lambda: pages.listings == 2)
    await looked_at(cluster, pages)
    assert cluster.held() == loaded
    pages.open.set()
    await cluster.until_state("Ready")


async def test_files_that_the_source_lost_before_the_listing_ended_are_dropped(
    cluster: Cluster, pages: Pages
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    files = cluster.engine.sources["s3://pictures"]
    assert isinstance(files, dict)
    del files["000.jpg"], files["001.jpg"]
    pages.cut_off()
    await cluster.until(lambda: pages.listings == 2)
    pages.open.set()
    await cluster.until_state("Ready")
    assert cluster.status()["totalFiles"] == FILES - 2
    await cluster.until(lambda: cluster.held() == dict.fromkeys("ab", (FILES - 2) * MB))


async def test_manifests_of_first_pages_are_removed_in_the_end(
    cluster: Cluster, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs.control.dataset.mount.orphaned_mounts.UNUSED_SECONDS", 0.0)
    folder = cluster.memory.folder
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    (first,) = folder.digests()
    pages.open.set()
    await cluster.until_state("Ready")
    (version,) = cluster.observer.view("default").versions.values()
    assert version != first
    await remove_unused(cluster.mounts)
    assert folder.digests() == {version}


@pytest.mark.parametrize("error", [EngineUnavailableError, SourceError])
async def test_a_listing_that_is_cut_off_keeps_what_was_loaded(
    cluster: Cluster, pages: Pages, error: type[EngineError]
) -> None:
    pages.failure = error(attempted="list", reason="the connection was closed", remedy="", retryable=True)
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    pages.open.set()
    await cluster.until_state("Ready")
    assert pages.listings == 2
    assert pages.from_source == FILES


@pytest.mark.parametrize("error", [SourceError, LimitExceededError])
async def test_nothing_stays_of_a_source_that_is_refused_in_the_end(
    cluster: Cluster, pages: Pages, error: type[EngineError]
) -> None:
    pages.failure = error(attempted="list", reason="it has too much", remedy="Name a folder with less")
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    pages.open.set()
    await cluster.until(lambda: pages.failure is None)
    pages.open.clear()
    await cluster.until(lambda: not cluster.held())
    assert cluster.condition("Mounted")["status"] == "False"
    pages.tell_early()
    await cluster.until(lambda: pages.listings >= 2)
    await looked_at(cluster, pages)
    assert not cluster.held()  # before the second listing has ended
    pages.open.set()
    await cluster.until_state("Ready")
    assert pages.from_source == PAGE + FILES  # what was dropped is read again


@pytest.mark.parametrize("agents_restart", [False, True])
async def test_nothing_stays_of_a_source_that_is_refused_after_the_operator_was_killed(
    cluster: Cluster, pages: Pages, agents_restart: bool
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    await cluster.stop()
    for node in "ab" if agents_restart else "":
        cluster.agents.restart(node)
    pages.failure = SourceError(attempted="list", reason="it has too much", remedy="Name a folder with less")
    pages.open.set()
    await cluster.start()
    await cluster.until(lambda: pages.failure is None)
    pages.open.clear()
    await cluster.until(lambda: not cluster.held())


@pytest.mark.parametrize("restart", [False, True], ids=["one operator", "operator restarts"])
@pytest.mark.parametrize(
    "preload", [{"enabled": False}, {"paths": ["1"]}], ids=["not preloaded", "a selection of paths"]
)
async def test_agents_drop_what_was_loaded_early_when_nobody_wants_all_of_it_any_more(
    cluster: Cluster, pages: Pages, preload: dict[str, object], restart: bool
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    if restart:
        await cluster.stop()
    await cluster.change(DATASETS, "pictures", preload=preload)
    if restart:
        await cluster.start()
    await cluster.until(lambda: not cluster.held())
    assert pages.held


async def test_a_refused_source_gives_its_room_and_bandwidth_to_others(
    cluster: Cluster, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[Place] = []
    monkeypatch.setattr(cluster.mounts.bandwidth, "drop_mount", given_back.append)
    pages.failure = SourceError(attempted="list", reason="it has too much", remedy="Name a folder with less")
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    (mount,) = cluster.mounts
    assert mount.path in cluster.mounts.manager.paths("default")
    pages.open.set()
    await cluster.until(lambda: pages.failure is None)
    pages.open.clear()
    await cluster.until(lambda: not cluster.held())
    assert mount.path not in cluster.mounts.manager.paths("default")
    assert mount.place in given_back


@pytest.mark.parametrize("restart", [False, True], ids=["one operator", "operator restarts"])
async def test_what_is_loaded_early_keeps_no_node_from_leaving(
    cluster: Cluster, pages: Pages, restart: bool
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    if restart:
        await cluster.stop()
        await cluster.start()
        await looked_at(cluster, pages)
    last_holders = cluster.cached_data.last_holders("default", leaving=frozenset("a"), only_needed=False)
    assert last_holders == (frozenset(), True)


async def test_nothing_stays_of_a_dataset_that_is_deleted_meanwhile(cluster: Cluster, pages: Pages) -> None:
    await cluster.create_dataset(placement={"nodeCount": 2})
    await first_page(cluster)
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: not cluster.held() and not cluster.engine.state.mounts)


async def test_idle_data_does_not_leave_for_a_source_that_is_listed_in_part(
    cluster: Cluster, pages: Pages
) -> None:
    pages.open.set()
    await cluster.create_dataset("others", source={"uri": "s3://others"}, placement={"nodeCount": 2})
    await cluster.until_state("Ready", "others")
    pages.open.clear()
    await cluster.set_capacity((FILES + PAGE - 1) * MB, "a", "b")
    await cluster.create_dataset(placement={"nodeCount": 2})
    await looked_at(cluster, pages)
    assert cluster.status("others")["state"] == "Ready"
    assert all(size >= FILES * MB for size in cluster.held().values())


@pytest.mark.parametrize("restart", [False, True], ids=["one operator", "operator restarts"])
async def test_what_is_loaded_early_leaves_for_a_dataset_that_wants_its_room(
    cluster: Cluster, pages: Pages, restart: bool
) -> None:
    await cluster.set_capacity((FILES + PAGE - 1) * MB, "a", "b")
    pages.pages_before = 2
    await cluster.create_dataset(placement={"nodeCount": 2})
    await cluster.until(lambda: cluster.held() == dict.fromkeys("ab", 2 * PAGE * MB))
    if restart:
        pages.pages_before, pages.held = 1, 0
        await cluster.stop()
        await cluster.start()
    await looked_at(cluster, pages)
    pages.hold_no_other()
    whole_on_each = {"mode": "Replicate", "nodeCount": 2}
    await cluster.create_dataset("others", source={"uri": "s3://others"}, placement=whole_on_each)
    await cluster.until_state("Ready", "others")
    assert cluster.status()["state"] == "Mounting"
    assert cluster.status("others")["cachedBytes"] == FILES * MB


@pytest.mark.parametrize(
    "preload", [{"enabled": False}, {"paths": ["1"]}], ids=["not preloaded", "a selection of paths"]
)
async def test_only_a_dataset_that_is_loaded_whole_is_loaded_early(
    cluster: Cluster, pages: Pages, preload: dict[str, object]
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 2}, preload=preload)
    await looked_at(cluster, pages)
    assert not cluster.held()


async def test_a_source_that_is_listed_again_is_served_as_it_was_until_the_end(
    cluster: Cluster, pages: Pages
) -> None:
    pages.open.set()
    await cluster.create_dataset(placement={"nodeCount": 2})
    await cluster.until_state("Ready")
    before = cluster.observer.view("default").versions
    pages.open.clear()
    cluster.engine.sources["s3://pictures"]["new.jpg"] = MB  # type: ignore[index]
    await cluster.annotate("pictures", refresh="1")
    await looked_at(cluster, pages)
    assert cluster.observer.view("default").versions == before
    assert cluster.held() == dict.fromkeys("ab", FILES * MB)


async def test_two_datasets_of_one_source_load_it_once(cluster: Cluster, pages: Pages) -> None:
    await cluster.create_dataset(placement={"nodeCount": 2})
    await cluster.create_dataset("again", placement={"nodeCount": 2})
    await first_page(cluster)
    pages.open.set()
    await cluster.until_state("Ready")
    await cluster.until_state("Ready", "again")
    assert pages.from_source == FILES


async def test_another_operator_places_the_dataset_where_the_last_one_had_loaded_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.support.twins.engine._PAGE", PAGE)
    monkeypatch.setattr("tests.support.twins.agent_work.PEER_PATIENCE", 600.0)
    files = {f"{number:03d}.jpg": MB for number in range(FILES)}
    engine = MemoryEngine(sources={"s3://pictures": files}, workers=dict.fromkeys("abcdefgh", 30 * MB))
    async with Cluster(engine=engine, nodes={name: {} for name in "abcdefgh"}) as cluster:
        pages = Pages(cluster)
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset(placement={"nodeCount": 2})
        await cluster.until(lambda: sorted(filter(None, cluster.held().values())) == [PAGE * MB, PAGE * MB])
        nodes = {node for node, size in cluster.held().items() if size}
        await cluster.stop()
        for node in engine.state.workers.keys() - nodes:
            engine.state.workers[node].capacity = 300 * MB
        await cluster.start()
        pages.open.set()
        await cluster.until_state("Ready")
        assert {node for node, size in cluster.held().items() if size} == nodes
        assert pages.from_source == FILES
