"""The throughput model: bounds, hit ratios against a brute-force cache, and the published formula."""

import math
import random
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.place.reading_speed import (
    Bottleneck,
    estimate,
    limited,
    lru_hit_ratio,
    no_evict_hit_ratio,
    page_cache_hit_ratio,
)

rates = st.floats(min_value=1.0, max_value=1e12)
shares = st.floats(min_value=0.0, max_value=1.0)


@pytest.mark.parametrize(
    ("limits", "rate", "bottleneck"),
    [
        ({"remote": 100.0}, 10.0, Bottleneck.COMPUTE),
        ({"remote": 2.0}, 2.0, Bottleneck.REMOTE),
        ({"remote": 2.0, "hit": 0.5}, 4.0, Bottleneck.REMOTE),
        ({"remote": 1.0, "hit": 1.0}, 10.0, Bottleneck.COMPUTE),
        ({"cache": 4.0, "hit": 0.5}, 8.0, Bottleneck.CACHE),
        ({"nic": 3.0, "hit": 1.0, "local": 0.5}, 6.0, Bottleneck.NETWORK),
        ({"nic": 3.0, "hit": 1.0, "local": 1.0}, 10.0, Bottleneck.COMPUTE),
        ({"cpu": 4.0}, 4.0, Bottleneck.CPU),
        ({"cpu": 4.0, "remote": 3.0}, 3.0, Bottleneck.REMOTE),
        ({"cpu": 4.0, "hit": 1.0, "local": 1.0, "page": 0.5}, 8.0, Bottleneck.CPU),
        ({"cpu": 4.0, "hit": 1.0, "local": 1.0, "page": 1.0}, 10.0, Bottleneck.COMPUTE),
    ],
)
def test_the_slowest_resource_sets_the_rate(
    limits: dict[str, float], rate: float, bottleneck: Bottleneck
) -> None:
    prediction = estimate(compute=10.0, **limits)
    assert prediction.rate == pytest.approx(rate)
    assert prediction.bottleneck is bottleneck


@given(compute=rates, cache=rates, nic=rates, remote=rates, hit=shares, local=shares)
def test_no_resource_is_asked_for_more_than_it_has(
    compute: float, cache: float, nic: float, remote: float, hit: float, local: float
) -> None:
    rate = estimate(compute=compute, cache=cache, nic=nic, remote=remote, hit=hit, local=local).rate
    slack = 1 + 1e-9
    assert 0 < rate <= compute
    assert rate * hit <= cache * slack + 1e-3
    assert rate * (1 - hit * local) <= nic * slack + 1e-3
    assert rate * (1 - hit) <= remote * slack + 1e-3


@given(remote=rates, more=st.floats(min_value=1.0, max_value=10.0), hit=shares, better=shares)
def test_more_bandwidth_or_more_hits_never_slow_a_job(
    remote: float, more: float, hit: float, better: float
) -> None:
    rate = estimate(compute=1e9, remote=remote, hit=hit).rate
    assert estimate(compute=1e9, remote=remote * more, hit=hit).rate >= rate
    assert estimate(compute=1e9, remote=remote, hit=max(hit, better)).rate >= rate


def test_a_resource_that_carries_nothing_does_not_limit() -> None:
    assert limited(ceiling=5.0, share=0.0, part=0.0) == 5.0


@pytest.mark.parametrize(
    ("fraction", "hits"), [(0.2, 0.02), (0.5, 0.15), (0.8, 0.48), (0.9, 0.67), (0.95, 0.80), (0.83, 0.53)]
)
def test_lru_hits_are_those_of_the_closed_form(fraction: float, hits: float) -> None:
    assert lru_hit_ratio(fraction=fraction) == pytest.approx(hits, abs=0.01)


@pytest.mark.parametrize(("fraction", "readers"), [(0.5, 1), (0.8, 1), (0.5, 2), (0.7, 4), (0.3, 4)])
def test_lru_hits_agree_with_a_cache_that_is_really_run(fraction: float, readers: int) -> None:
    items, epochs = 3000, 30
    draw = random.Random(7)
    cache: OrderedDict[int, None] = OrderedDict()
    hits = reads = 0
    for epoch in range(epochs):
        order = draw.sample(range(items), items // readers)
        for item in order:
            hit = item in cache
            cache[item] = None
            cache.move_to_end(item)
            if len(cache) > fraction * items:
                cache.popitem(last=False)
            if epoch >= epochs // 2:
                hits, reads = hits + hit, reads + 1
    assert lru_hit_ratio(fraction=fraction, share=1 / readers) == pytest.approx(hits / reads, abs=0.015)


@given(fraction=shares, more=shares, nodes=st.integers(min_value=1, max_value=64))
def test_lru_hits_are_between_zero_and_a_stable_cache_and_grow_with_the_cache(
    fraction: float, more: float, nodes: int
) -> None:
    hits = lru_hit_ratio(fraction=fraction, share=1 / nodes)
    assert -1e-9 <= hits <= no_evict_hit_ratio(fraction=fraction) + 1e-6
    assert lru_hit_ratio(fraction=max(fraction, more), share=1 / nodes) >= hits - 1e-6


def test_page_caches_see_more_every_epoch_until_they_are_full() -> None:
    hits = [page_cache_hit_ratio(epoch=epoch, nodes=4, fraction=2.0) for epoch in range(1, 40)]
    assert hits[:3] == [0.0, pytest.approx(0.25), pytest.approx(1 - 0.75**2)]
    assert hits == sorted(hits)
    assert hits[-1] == pytest.approx(1.0, abs=1e-4)
    small = page_cache_hit_ratio(epoch=39, nodes=4, fraction=0.5)
    assert 0.3 < small < 0.5
    assert page_cache_hit_ratio(epoch=2, nodes=1, fraction=1.0) == 1.0
    assert math.isclose(page_cache_hit_ratio(epoch=9, nodes=1, fraction=0.5), lru_hit_ratio(fraction=0.5))


def test_a_dataset_that_lacks_only_rounding_is_cached_whole() -> None:
    assert no_evict_hit_ratio(fraction=0.1 + 0.2 + 0.7 - 1e-12) == 1.0
    assert no_evict_hit_ratio(fraction=0.999) == 0.999
    assert no_evict_hit_ratio(fraction=-1.0) == 0.0
