"""A source that has far less than before: the version that is served stays, and says so, until that is believed."""

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.control.cache_registry import Cache, CachePool
from tdcs.control.dataset.mount.listing_gate import ListingGate
from tdcs.control.dataset.mount.source_versions import MountManifests
from tdcs.decide.source_loss import PLAIN_RULE, LossRule, SecondCount
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import Listed
from tdcs.model.kube_resources import DATASETS, EVENTS
from tdcs.model.listing_limit import ListingLimit, SourcesSize
from tdcs.model.manifest_format import totals_of

MB = 1_000_000
URI = "s3://pictures"
FILES = {f"{number:03d}": MB for number in range(50)}
HALF_AN_HOUR = 1800.0


class Story:
    """A Dataset that is loaded onto two nodes, and what its cache does with blocks after that."""

    def __init__(self, cluster: Cluster, engine: MemoryEngine) -> None:
        self.cluster = cluster
        self.engine = engine
        self.done = Counter[str]()
        engine.before = self._note

    async def _note(self, operation: Operation) -> None:
        if operation.name in {"put", "drop"}:
            self.done[operation.name] += 1

    async def has(self, files: dict[str, int], *, value: str) -> None:
        """The source has these files, and is looked at."""
        self.engine.sources[URI] = files
        await self.cluster.annotate("pictures", refresh=value)

    async def looked_at(self, value: str) -> None:
        """The source is looked at once more."""
        await self.cluster.annotate("pictures", refresh=value)
        await self.cluster.until(lambda: self.cluster.status().get("refreshed") == value)

    @property
    def version(self) -> str:
        return next(iter(self.engine.known_versions.values()))

    async def shrunk(self) -> str:
        """The Dataset says that its source has shrunk, and is served as before; gives the sentence."""
        await self.cluster.until(
            lambda: self.cluster.condition("SourceReachable").get("reason") == "SourceShrunk"
        )
        assert self.cluster.condition("Ready")["status"] == "True"
        assert self.cluster.status()["totalFiles"] == len(FILES)
        assert not self.done, "no block was dropped, and none was read again"
        return str(self.cluster.condition("SourceReachable")["message"])


class Clock:
    """The operator's clock; a test moves it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def story(clock: Clock) -> AsyncIterator[Story]:
    engine = MemoryEngine(sources={URI: dict(FILES)}, workers=dict.fromkeys("ab", 1000 * MB))
    async with Cluster(engine=engine, nodes={node: {} for node in "ab"}, clock=clock) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        placement = {"mode": "Replicate", "nodeCount": 2}
        await cluster.create_dataset(placement=placement, source={"checkInterval": "0s"})
        await cluster.until_state("Ready")
        yield Story(cluster, engine)


@pytest.mark.parametrize(
    ("files", "pattern"),
    [
        ({}, "the source is empty and had 50 files"),
        (dict(list(FILES.items())[:4]), r"the source has 4 files"),
        (dict.fromkeys(list(FILES)[:49], MB // 20), r"the source has 49 files \(2.3 MiB\)"),
    ],
    ids=["empty", "files", "bytes"],
)
@pytest.mark.failure_mode("source-lost-most-files")
async def test_a_source_that_has_lost_more_than_nine_tenths_costs_no_cached_byte(
    story: Story, files: dict[str, int], pattern: str
) -> None:
    await story.has(files, value="1")
    text = await story.shrunk()
    assert story.cluster.status()["state"] == "Degraded"
    assert re.search(pattern, text)
    assert f"{names.ANNOTATION_ACCEPT_LOSS}={story.version}" in text
    events = [
        event for event in story.cluster.server.store(EVENTS).values() if event["reason"] == "SourceShrunk"
    ]
    assert {event["type"] for event in events} == {"Warning"}

    await story.has(dict(FILES), value="2")
    await story.cluster.until(lambda: story.cluster.condition("SourceReachable").get("status") == "True")
    await story.cluster.until_state("Ready")
    assert not story.done


async def test_a_source_that_has_lost_nine_tenths_is_believed_at_once(story: Story) -> None:
    await story.has(dict(list(FILES.items())[:5]), value="1")
    await story.cluster.until(lambda: story.cluster.status()["totalFiles"] == 5)
    assert story.cluster.condition("SourceReachable")["status"] == "True"


async def test_a_file_that_is_replaced_by_a_shorter_one_is_no_loss(story: Story) -> None:
    await story.has(dict.fromkeys(FILES, MB // 100), value="1")
    await story.cluster.until(lambda: story.cluster.status()["totalBytes"] == 50 * (MB // 100))


async def test_a_dataset_may_ask_for_a_closer_look(story: Story) -> None:
    await story.cluster.change(DATASETS, "pictures", source={"lossPercent": 10})
    await story.has(dict(list(FILES.items())[:44]), value="1")
    await story.shrunk()


async def test_a_loss_that_somebody_accepts_is_taken_over_and_the_next_one_is_not(story: Story) -> None:
    few = dict(list(FILES.items())[:4])
    await story.has(few, value="1")
    await story.shrunk()
    await story.cluster.annotate("pictures", **{"accept-loss": "of-another-version"})
    await story.cluster.until(
        lambda: (
            "'of-another-version' names another version"
            in story.cluster.condition("SourceReachable")["message"]
        )
    )
    await story.shrunk()
    await story.cluster.annotate("pictures", **{"accept-loss": story.version})
    await story.cluster.until(lambda: story.cluster.status()["totalFiles"] == 4)
    await story.cluster.until_state("Ready")

    await story.has({}, value="2")
    await story.cluster.until(
        lambda: story.cluster.condition("SourceReachable").get("reason") == "SourceShrunk"
    )
    assert story.cluster.status()["totalFiles"] == 4


@pytest.mark.failure_mode("source-lost-most-files")
async def test_a_loss_is_believed_when_it_was_found_again_for_an_hour(story: Story, clock: Clock) -> None:
    await story.has(dict(list(FILES.items())[:4]), value="1")
    await story.shrunk()
    clock.ahead += HALF_AN_HOUR
    await story.cluster.annotate("pictures", refresh="2")
    await story.cluster.until(lambda: story.cluster.status().get("refreshed") == "2")
    await story.shrunk()
    clock.ahead += HALF_AN_HOUR + 1
    await story.cluster.annotate("pictures", refresh="3")
    await story.cluster.until(lambda: story.cluster.status()["totalFiles"] == 4)


@pytest.mark.failure_mode("source-lost-most-files")
async def test_an_empty_source_is_not_believed_for_a_day(story: Story, clock: Clock) -> None:
    await story.has({}, value="1")
    await story.shrunk()
    for value in ("2", "3", "4"):
        clock.ahead += 3600.0
        await story.looked_at(value)
    await story.shrunk()
    clock.ahead += 24 * 3600.0
    await story.cluster.annotate("pictures", refresh="5")
    await story.cluster.until(lambda: story.cluster.condition("Ready").get("reason") == "SourceEmpty")


async def test_a_source_that_lost_something_is_looked_at_again_by_itself(story: Story) -> None:
    """Nothing else would: its Dataset is never checked for changes."""
    await story.has({}, value="1")
    await story.shrunk()
    story.engine.sources[URI] = dict(FILES)
    await story.cluster.until(lambda: story.cluster.condition("SourceReachable").get("status") == "True")
    assert not story.done


@pytest.mark.failure_mode("source-lost-most-files")
async def test_a_bucket_of_which_another_node_finds_more_is_not_believed_however_long(
    story: Story, clock: Clock
) -> None:
    """The operator's way to the store may lead to another replica of it, or another store of the same name."""
    few = dict(list(FILES.items())[:4])
    agents = story.cluster.agents
    agents.finds = {node: dict(FILES) for node in "ab"}
    await story.has(few, value="1")
    text = await story.shrunk()
    assert re.search(r"But node [ab] finds 50 files \(47.7 MiB\) there", text)
    for number in range(2, 6):
        clock.ahead += 2 * HALF_AN_HOUR
        await story.looked_at(str(number))
        await story.shrunk()
    agents.finds = {}
    for number in range(6, 9):
        clock.ahead += HALF_AN_HOUR + 1
        await story.looked_at(str(number))
    await story.cluster.until(lambda: story.cluster.status()["totalFiles"] == 4)


async def test_a_bucket_that_no_other_node_can_count_is_not_believed_but_by_annotation(
    story: Story, clock: Clock
) -> None:
    agents = story.cluster.agents
    agents.refuses_counts = True
    await story.has(dict(list(FILES.items())[:4]), value="1")
    assert "No other node has counted it: the agent of" in await story.shrunk()
    for number in range(2, 6):
        clock.ahead += 2 * HALF_AN_HOUR
        await story.looked_at(str(number))
        await story.shrunk()
    await story.cluster.annotate("pictures", **{"accept-loss": story.version})
    await story.cluster.until(lambda: story.cluster.status()["totalFiles"] == 4)


async def test_a_dataset_whose_sources_may_lose_all_follows_at_once(story: Story) -> None:
    await story.cluster.change(DATASETS, "pictures", source={"lossPercent": 100})
    await story.has({}, value="1")
    await story.cluster.until(lambda: story.cluster.condition("Ready").get("reason") == "SourceEmpty")


async def test_a_loss_is_not_believed_by_a_new_operator_either(story: Story) -> None:
    await story.has({}, value="1")
    await story.shrunk()
    await story.cluster.stop()
    await story.cluster.start()
    await story.has({}, value="2")
    await story.cluster.until(lambda: story.cluster.status().get("refreshed") == "2")
    await story.shrunk()


async def test_a_listing_that_has_lost_what_was_counted_is_no_version(story: Story) -> None:
    """The cache's master may see less than whoever counts. What it forgets then is brought again."""
    engine = story.engine
    engine.sources[URI] = dict
    await story.cluster.annotate("pictures", refresh="1")
    await story.cluster.until(
        lambda: story.cluster.condition("SourceReachable").get("reason") == "SourceShrunk"
    )
    assert story.cluster.status()["totalFiles"] == len(FILES)
    engine.sources[URI] = dict(FILES)
    await story.cluster.until_state("Ready")
    assert story.cluster.status()["totalFiles"] == len(FILES)


async def test_a_loss_that_is_accepted_while_the_source_is_listed_is_taken_at_once(tmp_path: Path) -> None:
    """The listing has been compared by the rule before: the source is compared once more, without a pause."""
    versions = ShrinkingSource(tmp_path)
    await versions.look(PLAIN_RULE)
    versions.file_count = 1
    await versions.look(PLAIN_RULE)
    versions.now += HALF_AN_HOUR
    accepted = LossRule(accepted=frozenset({versions.listed.digest}))
    await versions.look(PLAIN_RULE, before_it_ends=lambda: versions.advance(accepted))
    assert versions.listed.digest == FIRST
    await versions.look(accepted)
    assert versions.listed.digest == SECOND


async def test_a_listing_that_counts_by_itself_tells_no_cache_of_a_loss_that_is_not_believed(
    tmp_path: Path,
) -> None:
    versions = ShrinkingSource(tmp_path, counted=False)
    await versions.look(PLAIN_RULE)
    versions.file_count = 1
    await versions.look(PLAIN_RULE)
    assert versions.listed.digest == FIRST
    accepted = LossRule(accepted=frozenset({versions.listed.digest}))
    await versions.look(accepted)
    assert versions.listed.digest == SECOND


async def test_a_source_that_has_lost_much_is_listed_again_from_its_first_page(tmp_path: Path) -> None:
    versions, folder = ShrinkingSource(tmp_path), ManifestFolder(tmp_path)
    await versions.look(PLAIN_RULE)
    for remaining, goes_on in ((1, True), (1, False)):
        versions.file_count = remaining
        os.close(folder.open_progress("/datasets/1f"))
        versions.now += HALF_AN_HOUR
        await versions.look(PLAIN_RULE)
        assert any(name.startswith(".listing-") for name in os.listdir(tmp_path)) is goes_on


FIRST, SECOND = "a" * 32, "b" * 32


class ShrinkingSource:
    """The versions of a mount whose source has fifty files, and then as many as `kept` says.

    Args:
        counted: whether the source is counted before it is listed.
    """

    def __init__(self, folder: Path, *, counted: bool = True) -> None:
        self.now = 0.0
        self.file_count = 50
        self._counted = counted
        self._manifests = MountManifests(
            path="/datasets/1f",
            caches=CachePool(make=self._no_cache, folder=ManifestFolder(folder)),
            published=lambda digest: None,
            lister=self,
            count=self._count,
            count_elsewhere=self._count_elsewhere,
            gate=ListingGate(stuck_seconds=10**9),
            pause=60.0,
            now=lambda: "",
            on_done=lambda: None,
            on_refused=lambda: None,
            clock=lambda: self.now,
        )

    async def look(self, rule: LossRule, *, before_it_ends: Callable[[], None] = lambda: None) -> None:
        """A pass, and the listing that it begins to its end."""
        self.advance(rule)
        for _ in range(10):
            await asyncio.sleep(0)  # the listing ends, and no pass has looked at it yet
        before_it_ends()
        self._manifests.view()
        assert not self._manifests.busy

    def advance(self, rule: LossRule) -> None:
        self._manifests.advance(
            due=True,
            changed=0,
            digest="",
            urls=(),
            unheard=False,
            requests={},
            namespaces=frozenset({"n"}),
            limit=lambda: ListingLimit(files=1000),
            rule=rule,
        )

    @property
    def listed(self) -> Listed:
        version = self._manifests.view().listed
        assert version is not None
        return version

    async def list(
        self,
        *,
        path: str,
        refresh: bool = False,
        resume: bool = False,
        limit: ListingLimit | None = None,
        **_: object,
    ) -> Listed:
        size = SourcesSize(files=self.file_count, bytes=self.file_count)
        digest = FIRST if self.file_count == 50 else SECOND
        return Listed(digest=digest, totals=totals_of(1000), size=size)

    async def _count(self, limit: ListingLimit) -> SourcesSize | None:
        return SourcesSize(files=self.file_count, bytes=self.file_count) if self._counted else None

    async def _count_elsewhere(self, before: SourcesSize) -> SecondCount | None:
        return None

    def _no_cache(self, cluster: str) -> Cache:
        raise AssertionError(cluster)
