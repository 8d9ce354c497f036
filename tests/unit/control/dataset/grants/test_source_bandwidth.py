"""The bandwidth of a store is shared over its loads by what waiting jobs lose, and agents get their shares."""

import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster
from tests.unit.control.dataset.grants.test_cache_manager_stories import ends, job, on_disk

from tdcs.api.dataset_source import SourceSpec
from tdcs.control.dataset.bandwidth import SourceBandwidth, store_of, worth
from tdcs.decide.cache.load_order import Load
from tdcs.decide.cache.source_rate import Timing
from tdcs.decide.cache.source_shares import (
    STEPS,
    alongside_first,
    divided,
    divided_by_tenant,
    limiting_namespace,
)

MB = 1_000_000
RATE = 256 * MB
ONE, TWO, THREE = ("c", "/one"), ("c", "/two"), ("d", "/three")


def load(name: str, *, missing: float = 100 * MB, waiting: int = 0, reading: int = 0) -> Load:
    value = worth(waiting=waiting, reading=reading, missing=missing)
    return Load(name=name, missing_bytes=missing, worth=value, waiting_jobs=waiting)


def test_most_goes_to_the_load_of_which_jobs_wait_for_fewest_bytes_and_every_load_goes_on() -> None:
    rates = divided(
        {
            ONE: load("one", missing=900 * MB, waiting=2),
            TWO: load("two", waiting=1),
            THREE: load("three"),
        },
        capacity=RATE,
    )
    assert rates[TWO] > 0.9 * RATE
    assert 0.05 * RATE < rates[ONE] < 0.1 * RATE
    assert rates[THREE] == RATE // STEPS


def test_what_is_read_comes_before_what_is_only_there_for_later() -> None:
    rates = divided({ONE: load("one"), TWO: load("two", reading=1)}, capacity=RATE)
    assert rates[TWO] == RATE


@given(
    st.lists(
        st.tuples(st.integers(min_value=0, max_value=10**12), st.integers(min_value=0, max_value=9)),
        max_size=12,
    ),
    st.integers(min_value=1, max_value=10**11),
)
def test_the_loads_never_exceed_the_bandwidth_by_more_than_their_least_parts(
    loads: list[tuple[int, int]], capacity: int
) -> None:
    rates = divided(
        {
            ("c", str(number)): load(str(number), missing=missing, waiting=waiting)
            for number, (missing, waiting) in enumerate(loads)
        },
        capacity=capacity,
    )
    step = max(capacity // STEPS, 1)
    loading = [rate for rate, (missing, _) in zip(rates.values(), loads, strict=True) if missing]
    assert sum(loading) <= capacity + step * len(loading)
    assert all(rate >= step for rate in rates.values())


def test_a_change_of_one_load_wakes_the_other_loads_of_its_store_alone() -> None:
    changes: list[tuple[str, str]] = []
    shares = SourceBandwidth(on_change=lambda cluster, path: changes.append((cluster, path)))
    assert shares.share(place=ONE, store="s3", declared={"n": RATE}, load=load("one", waiting=1)) == RATE
    assert shares.share(place=THREE, store="nas", declared={"n": None}, load=load("three", waiting=1)) is None
    assert not changes
    # The least of a store counts, for all of its loads.
    assert (
        shares.share(place=TWO, store="s3", declared={"n": RATE // 2}, load=load("two")) == RATE // 2 // STEPS
    )
    assert changes == [ONE]
    shares.drop_mount(TWO)
    assert changes == [ONE, ONE]
    assert shares.share(place=ONE, store="s3", declared={"n": RATE}, load=load("one", missing=0)) == RATE


@pytest.mark.parametrize(
    ("readers", "tenant"),
    [
        (("a",), "a"),
        (("a", "b"), "b"),  # the lower limit would slow b
        (("a", "none"), None),
        (("none",), None),
    ],
)
def test_a_mount_of_several_namespaces_has_the_limit_that_slows_none_of_them(
    readers: tuple[str, ...], tenant: str | None
) -> None:
    assert limiting_namespace(readers, limits={"a": 1, "b": RATE}) == tenant


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(min_value=1, max_value=10**9), min_size=1),
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.integers(min_value=0, max_value=10**12),
            st.integers(min_value=0, max_value=9),
        ),
        max_size=12,
    ),
)
def test_no_namespace_gets_more_than_its_limit_and_all_together_no_more_than_the_highest(
    limits: dict[str, int], loads: list[tuple[str, int, int]]
) -> None:
    tenants: dict[str, dict[tuple[str, str], Load]] = {}
    for number, (namespace, missing, waiting) in enumerate(loads):
        if namespace in limits:
            place = ("c", str(number))
            tenants.setdefault(namespace, {})[place] = load(str(number), missing=missing, waiting=waiting)
    rates = divided_by_tenant(tenants, limits=limits)
    assert rates.keys() == {place for group in tenants.values() for place in group}
    sums = {
        namespace: sum(rates[place] for place, place_load in group.items() if place_load.missing_bytes > 0)
        for namespace, group in tenants.items()
    }
    highest = max((limits[namespace] for namespace in tenants), default=0)
    least_parts = len(loads) * max(highest // STEPS, 1)
    assert sum(sums.values()) <= highest + 2 * least_parts
    for namespace, total in sums.items():
        assert total <= limits[namespace] + len(tenants[namespace]) * max(limits[namespace] // STEPS, 1)


def test_of_a_measured_rate_the_first_load_has_no_limit_and_the_others_share_what_it_leaves() -> None:
    loads = {ONE: load("one"), TWO: load("two", waiting=1), THREE: load("three", reading=1)}
    rates = alongside_first(loads, first=TWO, ceiling=RATE / 2, capacity=RATE)
    assert TWO not in rates
    assert 0.45 * RATE < rates[THREE] <= RATE / 2
    assert rates[ONE] == RATE // STEPS


def test_a_store_without_a_declared_bandwidth_is_measured_and_then_shared() -> None:
    now, changes = 0.0, set[tuple[str, str]]()
    shares = SourceBandwidth(on_change=lambda cluster, path: changes.add((cluster, path)), clock=lambda: now)
    shares.timing = Timing(settle=2.0, window=4.0)

    def both(first_rate: float, two: float) -> tuple[int | None, int | None]:
        return (
            shares.share(place=ONE, store="s3", declared={"n": None}, load=load("one"), rate=first_rate),
            shares.share(place=TWO, store="s3", declared={"n": None}, load=load("two", waiting=1), rate=two),
        )

    while now < 6.0:
        assert both(RATE / 2, RATE / 2) == (None, None)
        assert not shares.measured()
        now += 1.0
    assert (
        shares.share(place=TWO, store="s3", declared={"n": None}, load=load("two", waiting=1), rate=RATE / 2)
        is None
    )
    assert shares.measured() == {"s3": RATE}
    assert changes == {ONE}
    first, second = both(RATE / 2, RATE / 2)
    assert second is None
    assert first is not None
    assert first < 0.4 * RATE
    for _ in range(20):  # the others give way, and the first one reads more
        now += 1.0
        before = first
        first, _ = both(first, RATE - first)
        assert first is not None
        assert first <= before
    assert first == RATE // STEPS
    # One alone has the store for itself, and one with a limit of its own holds nobody else back.
    assert shares.share(place=TWO, store="s3", declared={"n": None}, load=load("two", missing=0)) is None
    both(RATE, 0.0)
    assert both(RATE, 0.0)[0] is not None
    # What is declared counts before what was measured.
    assert shares.share(place=ONE, store="s3", declared={"n": 256}, load=load("one")) == 1
    assert not shares.measured()


def test_loads_of_a_store_that_gives_nothing_for_a_while_are_not_held_back_afterwards() -> None:
    now = 0.0
    shares = SourceBandwidth(on_change=lambda cluster, path: None, clock=lambda: now)
    while now < 60.0:
        for place, waiting in ((ONE, 0), (TWO, 1)):
            demand = load(str(place), waiting=waiting)
            assert shares.share(place=place, store="s3", declared={"n": None}, load=demand, rate=0.0) is None
        now += 1.0
    assert not shares.measured()


def test_a_store_is_an_endpoint_or_the_file_system() -> None:
    spec = {"uri": "s3://a/b", "options": {"endpoint": "http://store:9000"}}
    assert store_of(SourceSpec.model_validate(spec)) == "http://store:9000"
    assert store_of(SourceSpec.model_validate({"uri": "s3://a/b"})) == "s3"
    assert store_of(SourceSpec.model_validate({"uri": "file:///a"})) == "file"
    claim = SourceSpec.model_validate({"uri": "pvc://photos/train"})
    assert store_of(claim, namespace="team") == "pvc://team/photos", "and not the pace of Amazon S3"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    files = {f"{number:02}.bin": MB for number in range(40)}
    engine = MemoryEngine(
        sources={f"s3://{name}": files for name in ("one", "two", "three")},
        workers=dict.fromkeys("abcd", 100 * MB),
    )
    async with Cluster(engine=engine, nodes={name: {"zone": name} for name in "abcd"}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


async def test_agents_get_their_shares_and_the_load_that_a_job_waits_for_gets_most(
    cluster: Cluster,
) -> None:
    limit = {"bandwidth": 64 * MB}
    for name in ("one", "two"):
        await cluster.create_dataset(
            name,
            source={"uri": f"s3://{name}", **limit},
            placement={
                "mode": "Replicate",
                "nodeCount": 1,
                "nodeSelector": {"zone": "a" if name == "one" else "b"},
            },
        )

    def share(name: str) -> int:
        return int(cluster.status(name).get("sourceBandwidth", 0))

    await cluster.until(lambda: 0 < cluster.status("one").get("loadedRatio", 0) < 1)
    job(cluster, "train", "two")
    await cluster.until(lambda: share("two") > 0.9 * 64 * MB or cluster.status("two").get("loadedRatio") == 1)
    await cluster.until_state("Ready", "two")
    ends(cluster, "train")
    await cluster.until_state("Ready", "one")
    assert on_disk(cluster, "one") == on_disk(cluster, "two") == 40 * MB
    assert share("one") == share("two") == 64 * MB


async def test_what_the_own_limit_of_a_load_keeps_it_from_reading_is_for_the_others(cluster: Cluster) -> None:
    job(cluster, "train", "one")
    await cluster.create_dataset(
        "one",
        source={"uri": "s3://one", "bandwidth": 64 * MB},
        preload={"bandwidth": 2 * MB},
        placement={"mode": "Replicate", "nodeCount": 1, "nodeSelector": {"zone": "a"}},
    )
    await cluster.until(lambda: 0 < cluster.status("one").get("loadedRatio", 0) < 1)
    await cluster.create_dataset("two", source={"uri": "s3://two"})
    await cluster.until_state("Ready", "two")
    assert cluster.status("one")["loadedRatio"] < 1


async def test_a_store_that_declares_nothing_is_measured_and_what_is_waited_for_comes_first() -> None:
    """It takes seconds: what agents report is a mean over a second."""
    rate = 4 * MB
    files = {f"{number:02}.bin": MB // 2 for number in range(24)}
    engine = MemoryEngine(
        sources={f"s3://{name}": files for name in ("one", "two")},
        workers=dict.fromkeys("ab", 200 * MB),
        source_rate=rate,
    )
    async with Cluster(engine=engine, nodes={name: {"zone": name} for name in "ab"}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        bandwidth = cluster.mounts.bandwidth
        bandwidth.timing = Timing(settle=1.0, window=0.5)
        job(cluster, "train", "two")
        began = time.monotonic()
        for name, zone in (("one", "a"), ("two", "b")):
            await cluster.create_dataset(
                name,
                source={"uri": f"s3://{name}"},
                placement={"mode": "Replicate", "nodeCount": 1, "nodeSelector": {"zone": zone}},
            )
        await cluster.until(lambda: bool(cluster.cached_data.source_rates()))
        (measured,) = cluster.cached_data.source_rates().values()
        # On a machine with other work the store gives less than its rate, and that is what is measured.
        mean_rate = min(rate, engine.source_bytes_read / (time.monotonic() - began))
        assert 0.6 * mean_rate < measured < 1.4 * rate
        await cluster.until(lambda: "sourceBandwidth" in cluster.status("one"))
        await cluster.until_state("Ready", "two")
        assert cluster.status("one")["loadedRatio"] < 0.9
        await cluster.until_state("Ready", "one")
        await cluster.until(lambda: "sourceBandwidth" not in cluster.status("one"))
        assert engine.source_bytes_read == 24 * MB


async def test_datasets_of_one_source_that_are_there_hold_back_no_other_load() -> None:
    engine = MemoryEngine(sources={"s3://one": {"x": MB, "y": MB}}, workers={"a": 200 * MB})
    async with Cluster(engine=engine, nodes={"a": {}}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        for name in ("one", "same"):
            await cluster.create_dataset(name, source={"uri": "s3://one"})
        await cluster.create_preload(datasetRef={"name": "one"})
        for name in ("one", "same"):
            await cluster.until_state("Ready", name)
        stores = cluster.mounts.bandwidth._stores
        await cluster.until(lambda: not any(store.pending for store in stores.values()))
