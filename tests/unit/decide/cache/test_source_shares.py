"""Bandwidth limit of each load of a store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.cache.load_order import Load
from tdcs.decide.cache.source_shares import (
    STEPS,
    Place,
    alongside_first,
    divided,
    divided_by_tenant,
    limiting_namespace,
    tenant_limits,
)

CAPACITY = STEPS * 1000


def loads_of(missing: dict[str, float]) -> dict[Place, Load]:
    return {("cache", name): Load(name=name, missing_bytes=size, worth=1.0) for name, size in missing.items()}


MISSING = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0, 1, 1e12]), min_size=1)


def test_without_a_limit_no_load_has_one() -> None:
    assert divided(loads_of({"a": 1}), capacity=None) == {}


def test_a_load_that_lacks_nothing_may_read_as_fast_as_the_source_and_takes_from_nobody() -> None:
    rates = divided(loads_of({"a": 0, "b": 1e12}), capacity=CAPACITY)
    assert rates == {("cache", "a"): CAPACITY, ("cache", "b"): CAPACITY}


@given(missing=MISSING, capacity=st.integers(STEPS * 100, STEPS * 10_000))
def test_loads_together_take_no_more_than_the_bandwidth_and_each_gets_some(
    missing: dict[str, float], capacity: int
) -> None:
    loads = loads_of(missing)
    rates = divided(loads, capacity=capacity)
    step = capacity // STEPS
    assert all(rates[place] >= step for place in loads)
    reading = [rates[place] for place, load in loads.items() if load.missing_bytes > 0]
    assert sum(reading) <= capacity + step * len(loads)


@pytest.mark.parametrize("capacity", [0, 1, STEPS - 1])
def test_a_bandwidth_below_a_step_for_each_stops_no_load(capacity: int) -> None:
    assert set(divided(loads_of({"a": 1e12, "b": 1e12}), capacity=capacity).values()) <= {1, capacity}
    assert min(divided(loads_of({"a": 1e12, "b": 1e12}), capacity=capacity).values()) >= 1


def test_the_lowest_limit_that_a_namespace_declares_counts() -> None:
    declared: list[dict[str, int | None]] = [{"a": 10, "b": None}, {"a": 5, "c": 0}, {"a": None}, {}]
    assert tenant_limits(declared) == {"a": 5, "c": 0}


@pytest.mark.parametrize(
    ("readers", "namespace"), [([], None), (["a"], "a"), (["b", "a"], "b"), (["a", "unlimited"], None)]
)
def test_a_mount_goes_by_the_highest_limit_of_its_readers(readers: list[str], namespace: str | None) -> None:
    assert limiting_namespace(readers, limits={"a": 5, "b": 10}) == namespace


@given(
    tenants=st.dictionaries(
        st.sampled_from("xyz"), st.tuples(MISSING, st.integers(STEPS * 100, STEPS * 10_000)), min_size=1
    )
)
def test_a_namespace_keeps_to_its_limit_and_all_together_to_the_highest(
    tenants: dict[str, tuple[dict[str, float], int]],
) -> None:
    loads = {
        tenant: loads_of({f"{tenant}{name}": size for name, size in missing.items()})
        for tenant, (missing, _) in tenants.items()
    }
    limits = {tenant: limit for tenant, (_, limit) in tenants.items()}
    rates = divided_by_tenant(loads, limits=limits)
    assert rates.keys() == {place for places in loads.values() for place in places}
    taken = {
        tenant: sum(rates[place] for place, load in places.items() if load.missing_bytes > 0)
        for tenant, places in loads.items()
    }
    step = max(limits.values()) // STEPS
    assert all(taken[tenant] <= limits[tenant] + step * len(loads[tenant]) for tenant in loads)
    assert sum(taken.values()) <= max(limits.values()) + step * len(rates)


def test_no_namespaces_take_nothing() -> None:
    assert divided_by_tenant({}, limits={}) == {}


@pytest.mark.parametrize("ceiling", [0, CAPACITY // 2, CAPACITY, 1e15])
def test_the_load_that_is_served_first_has_no_limit_and_the_others_share_the_rest(ceiling: float) -> None:
    first = ("cache", "first")
    loads = {
        first: Load(name="first", missing_bytes=1e12, worth=2.0),
        **loads_of({"b": 1e12, "c": 1e12}),
    }
    step = CAPACITY // STEPS
    rest = max(CAPACITY - int(ceiling), step)
    assert alongside_first(loads, first=first, ceiling=ceiling, capacity=CAPACITY) == {
        ("cache", "b"): rest,
        ("cache", "c"): step,
    }
