"""Pods and data together: what holds for any batch, and a few batches whose optimum is plain."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tdcs.policy.colocation import PodNeed, Site, plan


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Site], list[PodNeed], dict[str, float]]:
    sites = [
        Site(name=f"n{i}", gpus=draw(st.integers(0, 8)), cache_bytes=draw(st.integers(0, 500)))
        for i in range(draw(st.integers(1, 6)))
    ]
    sizes = {f"d{i}": float(draw(st.integers(1, 300))) for i in range(draw(st.integers(1, 4)))}
    pods = [
        PodNeed(name=f"p{i}", gpus=draw(st.integers(1, 8)), dataset=draw(st.sampled_from(sorted(sizes))))
        for i in range(draw(st.integers(0, 8)))
    ]
    return sites, pods, sizes


@given(batch=batches())
def test_no_gpu_and_no_byte_is_given_twice_and_the_local_bytes_are_those_of_the_plan(
    batch: tuple[list[Site], list[PodNeed], dict[str, float]],
) -> None:
    sites, pods, sizes = batch
    found = plan(sites=sites, pods=pods, sizes=sizes, effort=200)
    by_name = {pod.name: pod for pod in pods}
    used: Counter[str] = Counter()
    local = 0.0
    for name, node in found.nodes.items():
        used[node] += by_name[name].gpus
        local += found.cached[node].get(by_name[name].dataset, 0.0)
    for site in sites:
        assert used[site.name] <= site.gpus
        assert sum(found.cached[site.name].values()) <= site.cache_bytes + 1e-6
        assert all(held <= sizes[name] for name, held in found.cached[site.name].items())
    assert abs(local - found.local_bytes) < 1e-6
    assert plan(sites=sites, pods=pods, sizes=sizes, effort=200) == found


def test_pods_of_one_dataset_stand_together_when_the_caches_are_small() -> None:
    sites = [Site(name=name, gpus=2, cache_bytes=100) for name in ("n1", "n2")]
    pods = [PodNeed(name=f"{dataset}{i}", gpus=1, dataset=dataset) for i in range(2) for dataset in "ab"]
    found = plan(sites=sites, pods=pods, sizes={"a": 100.0, "b": 100.0})
    assert found.local_bytes == 400
    assert found.nodes["a0"] == found.nodes["a1"] != found.nodes["b0"] == found.nodes["b1"]


def test_a_pod_goes_where_there_is_cache() -> None:
    sites = [Site(name="bare", gpus=8, cache_bytes=0), Site(name="rich", gpus=8, cache_bytes=500)]
    found = plan(sites=sites, pods=[PodNeed(name="p", gpus=4, dataset="a")], sizes={"a": 300.0})
    assert found.nodes == {"p": "rich"}
    assert found.local_bytes == 300


@given(batch=batches())
def test_a_longer_search_never_ends_with_less_and_no_plan_has_more_than_all(
    batch: tuple[list[Site], list[PodNeed], dict[str, float]],
) -> None:
    sites, pods, sizes = batch
    greedy = plan(sites=sites, pods=pods, sizes=sizes, effort=0)
    searched = plan(sites=sites, pods=pods, sizes=sizes, effort=200)
    assert greedy.local_bytes <= searched.local_bytes + 1e-6
    assert searched.local_bytes <= sum(sizes[pod.dataset] for pod in pods) + 1e-6


def test_the_search_leaves_a_local_optimum_that_no_single_exchange_leaves() -> None:
    """Two large pods of different datasets stand on each other's best nodes, with small ones beside them."""
    sites = [
        Site(name="n0", gpus=4, cache_bytes=249),
        Site(name="n1", gpus=3, cache_bytes=188),
        Site(name="n2", gpus=4, cache_bytes=370),
        Site(name="n3", gpus=2, cache_bytes=401),
        Site(name="n4", gpus=6, cache_bytes=326),
    ]
    pods = [
        PodNeed(name=f"p{i}", gpus=gpus, dataset=dataset)
        for i, (gpus, dataset) in enumerate(
            [(2, "b"), (2, "b"), (4, "a"), (1, "a"), (1, "a"), (2, "a"), (2, "a"), (4, "b"), (1, "b")]
        )
    ]
    sizes = {"a": 438.0, "b": 195.0}
    assert plan(sites=sites, pods=pods, sizes=sizes, effort=0).local_bytes < 2557
    assert plan(sites=sites, pods=pods, sizes=sizes).local_bytes == 802 + 740 + 390 + 249 + 376
