"""How many cache workers, and which one leaves."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.worker_count import (
    Bounds,
    Held,
    Site,
    Worker,
    follow_jobs,
    leaves_first,
    loss,
)

GB = 10**9
names = st.sampled_from("abcdefgh")


def site(node: str, *, state: str = "", spare: float | None = None, gpus: int = 0, loss: float = 0.0) -> Site:
    """A node; of its state the letters: w has a worker, d it drains, r has readers."""
    return Site(
        node=node,
        has_worker="w" in state,
        draining="d" in state,
        has_readers="r" in state,
        spare_since=spare,
        gpus=gpus,
        loss=loss,
    )


@pytest.mark.parametrize(
    ("sites", "bounds", "nodes", "spare"),
    [
        pytest.param([site("a"), site("b", gpus=8)], {}, "b", {}, id="the minimum, where GPUs are"),
        pytest.param([site("a", state="w"), site("b", state="r")], {}, "ab", {"a": 100.0}, id="a job's node"),
        pytest.param(
            [site("a", state="wr"), site("b", state="r"), site("c", state="r", gpus=4)],
            {"maximum": 2},
            "ac",
            {},
            id="no more than the maximum",
        ),
        pytest.param(
            [site("a", state="w", spare=95), site("b", state="r")],
            {"maximum": 1},
            "a",
            {},
            id="at the maximum a worker that was just used stays",
        ),
        pytest.param(
            [site("a", state="w", spare=80), site("b", state="r")],
            {"maximum": 1},
            "b",
            {},
            id="at the maximum a worker that was long spare makes room",
        ),
        pytest.param(
            [site("a", state="wr"), site("b", state="w", spare=80), site("c", state="w", spare=95)],
            {},
            "ac",
            {"c": 95.0},
            id="what was spare for long enough leaves",
        ),
        pytest.param(
            [site("a", state="w", loss=1), site("b", state="w", loss=9), site("c", state="w", loss=5)],
            {"minimum": 2},
            "abc",
            {"a": 100.0},
            id="what would be missed least becomes spare",
        ),
        pytest.param(
            [site("a", state="w", loss=9, spare=99), site("b", state="w", loss=1)],
            {"minimum": 1},
            "ab",
            {"a": 99.0},
            id="what was called for at the last look still is",
        ),
        pytest.param(
            [site("a", state="wr"), site("b", state="w"), site("c")],
            {"needed_bytes": 25 * GB, "worker_bytes": 10 * GB},
            "abc",
            {},
            id="as many as the data takes",
        ),
        pytest.param(
            [site("a", state="wr"), site("b", state="wd"), site("c")],
            {"minimum": 2},
            "ab",
            {},
            id="a worker that drains stays before another node gets one",
        ),
        pytest.param(
            [site("a", state="wr"), site("b", state="w", spare=10), site("c", state="wd", spare=10)],
            {"needed_bytes": None},
            "ab",
            {"b": 10.0},
            id="none begins to leave before it is known what is needed",
        ),
        pytest.param(
            [site("a", state="wr"), site("b", state="wr")],
            {"maximum": 1, "needed_bytes": None},
            "ab",
            {},
            id="nor because of a smaller maximum",
        ),
        pytest.param([site("a", state="wdr")], {}, "a", {}, id="a worker that drains stays for a job"),
        pytest.param([], {"minimum": 3}, "", {}, id="no node"),
    ],
)
def test_workers_are_where_jobs_read_and_as_many_as_their_data_takes(
    sites: list[Site], bounds: dict[str, Any], nodes: str, spare: dict[str, float]
) -> None:
    target = follow_jobs(sites=sites, bounds=Bounds(**{"idle_seconds": 15.0, **bounds}), now=100.0)
    assert ("".join(target.nodes), target.spare) == (nodes, spare)


def test_nodes_that_get_none_because_of_the_maximum_are_named() -> None:
    sites = [site("a", state="wr"), site("b", state="r"), site("c", state="r")]
    assert follow_jobs(sites=sites, bounds=Bounds(maximum=1), now=0.0).left_out == ("b", "c")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Site], Bounds]:
    sites = [
        site(
            name,
            state=draw(st.sampled_from(["", "r", "w", "wr", "wd", "wdr"])),
            spare=draw(st.none() | st.floats(min_value=0, max_value=100)),
            loss=draw(st.floats(min_value=0, max_value=9)),
        )
        for name in draw(st.sets(names))
    ]
    minimum = draw(st.integers(min_value=1, max_value=9))
    more = draw(st.none() | st.integers(min_value=0, max_value=9))
    return sites, Bounds(
        minimum=minimum,
        maximum=None if more is None else minimum + more,
        idle_seconds=draw(st.sampled_from([0.0, 30.0])),
        needed_bytes=draw(st.none() | st.integers(min_value=0, max_value=90)),
        worker_bytes=10,
    )


@given(worlds())
def test_the_number_keeps_to_its_bounds_and_no_reader_is_left_out_while_there_is_room(
    world: tuple[list[Site], Bounds],
) -> None:
    sites, bounds = world
    target = follow_jobs(sites=sites, bounds=bounds, now=100.0)
    most = len(sites) if bounds.maximum is None else min(bounds.maximum, len(sites))
    assert len(target.nodes) >= min(bounds.minimum, most)
    if bounds.needed_bytes is not None:
        assert len(target.nodes) <= most
    if len(target.nodes) < most:
        assert not target.left_out
    assert target.spare.keys() <= set(target.nodes) - {
        node_site.node for node_site in sites if node_site.has_readers
    }


@given(worlds())
def test_while_nothing_changes_the_choice_comes_to_rest(world: tuple[list[Site], Bounds]) -> None:
    """The nodes that were chosen are chosen again once they have workers, and what left does not come back."""
    sites, bounds = world
    now, choices = 100.0, []
    for _ in range(8):
        target = follow_jobs(sites=sites, bounds=bounds, now=now)
        choices.append(target.nodes)
        sites = [
            site(
                place.node,
                state=("w" if place.node in target.nodes else "") + ("r" if place.has_readers else ""),
                spare=target.spare.get(place.node),
                loss=place.loss,
            )
            for place in sites
        ]
        now += 31.0
    assert len(set(choices[-4:])) == 1
    assert follow_jobs(sites=sites, bounds=bounds, now=now).nodes == choices[-1]


def worker(node: str, *, last: int, worth: float = 1.0, jobs: bool = False) -> Worker:
    held = (Held(dataset="a", held_bytes=5 * GB, last_copy_bytes=last, worth=worth),)
    return Worker(node=node, held=held, runs_jobs=jobs)


def test_the_worker_whose_bytes_are_elsewhere_too_leaves_first() -> None:
    workers = [worker("n1", last=5 * GB), worker("n2", last=0), worker("n3", last=0, jobs=True)]
    first = leaves_first(workers)
    assert first is not None
    assert first.node == "n2"
    assert leaves_first([]) is None
    assert loss(worker("x", last=2 * GB, worth=3.0)) > loss(worker("x", last=2 * GB, worth=1.0))


amounts = st.integers(min_value=0, max_value=10**12)
worths = st.floats(min_value=0.0, max_value=1.0)


@given(last=amounts, more=amounts, worth=worths, lower=worths)
def test_losing_more_last_copies_or_more_wanted_ones_never_costs_less(
    last: int, more: int, worth: float, lower: float
) -> None:
    base = loss(worker("x", last=last, worth=worth))
    assert 0 <= base <= loss(worker("x", last=last + more, worth=worth))
    assert base <= loss(worker("x", last=last, worth=max(worth, lower)))


@given(
    drawn=st.lists(st.tuples(amounts, worths, st.booleans()), max_size=6),
    shuffle=st.randoms(use_true_random=False),
)
def test_who_leaves_does_not_depend_on_the_order_and_runs_no_job_while_another_runs_none(
    drawn: list[tuple[int, float, bool]], shuffle: random.Random
) -> None:
    workers = [
        worker(f"n{i}", last=last, worth=worth, jobs=jobs) for i, (last, worth, jobs) in enumerate(drawn)
    ]
    first = leaves_first(workers)
    assert first == leaves_first(shuffle.sample(workers, len(workers)))
    assert (first is None) == (not workers)
    if first is not None and first.runs_jobs:
        assert all(leaver.runs_jobs for leaver in workers)


def zoned(name: str, zone: str, **changes: Any) -> Site:
    return replace(site(name, **changes), zone=(zone,))


def test_a_cache_that_follows_jobs_keeps_a_worker_in_each_zone() -> None:
    sites = [
        zoned("a", "x", state="w", spare=0),
        zoned("b", "x", state="w", spare=0),
        replace(zoned("c", "y", state="w", spare=0), zone_loss=9.0),
    ]
    following = follow_jobs(sites=sites, bounds=Bounds(minimum=2, idle_seconds=1), now=100.0)
    assert following.nodes == ("a", "c")


def test_new_workers_of_a_cache_that_follows_jobs_are_in_the_zones_with_the_fewest() -> None:
    sites = [zoned("a", "x", state="wr"), zoned("b", "x"), zoned("c", "y"), zoned("d", "y")]
    following = follow_jobs(sites=sites, bounds=Bounds(minimum=3), now=100.0)
    assert following.nodes == ("a", "b", "c")
    assert follow_jobs(sites=sites, bounds=Bounds(minimum=2), now=100.0).nodes == ("a", "c")
