"""Pods and data together: what holds for any batch, and a few batches whose optimum is plain."""

from collections import Counter

from hypothesis import given, settings
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


@settings(deadline=None)
@given(batch=batches())
def test_no_gpu_and_no_byte_is_given_twice_and_the_local_bytes_are_those_of_the_plan(
    batch: tuple[list[Site], list[PodNeed], dict[str, float]],
) -> None:
    sites, pods, sizes = batch
    found = plan(sites=sites, pods=pods, sizes=sizes)
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
    assert plan(sites=sites, pods=pods, sizes=sizes) == found


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
