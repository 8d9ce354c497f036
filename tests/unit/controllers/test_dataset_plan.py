"""What is loaded where, and what is dropped, follows from what is there and what is wanted."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controllers.builders import GIB, file, worker

from tdcs.api.dataset import Placement
from tdcs.controllers.dataset.plan import RESERVE_RATIO, LoadPlan, NodeView, candidates, plan_load
from tdcs.controllers.dataset.survey import Survey, ratio
from tdcs.engine.protocol import CachedFile, WorkerInfo

NODES = {name: NodeView(name=name, labels={"zone": name}, free_gpus=2) for name in ("a", "b", "c")}
WORKERS = [worker(name) for name in NODES]


def surveyed(files: Iterable[CachedFile]) -> Survey:
    survey = Survey()
    survey.add(files)
    return survey


def plan(
    files: Iterable[CachedFile],
    *,
    placement: Placement | None = None,
    workers: Iterable[WorkerInfo] = WORKERS,
) -> LoadPlan:
    return plan_load(
        dataset="/datasets/1",
        placement=placement or Placement(mode="Partition", node_count=2),
        survey=surveyed(files),
        workers=workers,
        nodes=NODES,
    )


def carried_out(found: LoadPlan, files: Iterable[CachedFile]) -> list[CachedFile]:
    """The files after the plan: what was missing is there, what was surplus is gone."""
    there = {(block.id, node) for node, blocks in found.missing.items() for block in blocks}
    gone = {(number, node) for node, numbers in found.surplus.items() for number in numbers}
    after = []
    for each in files:
        (block,) = each.blocks
        holders = {node for node in (*block.workers, *NODES) if (block.id, node) in there} | block.workers
        holders -= {node for node in NODES if (block.id, node) in gone}
        after.append(file(block.id, length=block.length, workers=tuple(sorted(holders))))
    return after


def test_an_empty_cache_gets_every_block_once() -> None:
    files = [file(number) for number in range(100)]
    found = plan(files)
    loaded = [block.id for blocks in found.missing.values() for block in blocks]
    assert sorted(loaded) == list(range(100))
    assert len(found.nodes) == 2
    assert found.missing_bytes == found.wanted_bytes == 1000


def test_what_is_there_is_not_loaded_again() -> None:
    files = [file(number) for number in range(100)]
    done = carried_out(plan(files), files)
    again = plan(done)
    assert not again.missing
    assert not again.surplus


@given(
    lengths=st.lists(st.integers(1, 10_000), min_size=1, max_size=60),
    mode=st.sampled_from(["Auto", "Partition", "Replicate"]),
    count=st.none() | st.integers(1, 3),
    capacity=st.integers(1_000, 1_000_000),
)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    lengths: list[int], mode: str, count: int | None, capacity: int
) -> None:
    files = [file(number, length=length) for number, length in enumerate(lengths)]
    placement = Placement.model_validate({"mode": mode, "nodeCount": count})
    found = plan(files, placement=placement, workers=[worker(name, capacity=capacity) for name in NODES])
    after = carried_out(found, files)
    used = surveyed(after).node_bytes
    assert all(size <= capacity * (1 - RESERVE_RATIO) + 1 for size in used.values())
    workers = [worker(name, capacity=capacity, used=used.get(name, 0)) for name in NODES]
    again = plan(after, placement=placement, workers=workers)
    assert not again.missing
    assert not again.surplus


def test_copies_on_other_nodes_are_dropped_only_when_the_wanted_ones_are_there() -> None:
    only_b = Placement(mode="Partition", node_selector={"zone": "b"})
    still_missing = plan([file(1, workers=("a",))], placement=only_b)
    assert (list(still_missing.missing), dict(still_missing.surplus)) == (["b"], {})
    complete = plan([file(1, workers=("a", "b"))], placement=only_b)
    assert (dict(complete.missing), dict(complete.surplus)) == ({}, {"a": [1]})


def test_lost_workers_and_workers_of_unknown_nodes_are_no_candidates() -> None:
    workers = [worker("a", live=False), worker("b"), worker("stranger")]
    found = candidates(placement=Placement(), survey=Survey(), workers=workers, nodes=NODES)
    assert [node.name for node in found] == ["b"]


def test_room_is_what_other_datasets_leave() -> None:
    survey = surveyed([file(1, length=100, workers=("a",))])
    (node,) = candidates(
        placement=Placement(), survey=survey, workers=[worker("a", capacity=1000, used=400)], nodes=NODES
    )
    assert node.free_bytes == 1000 - 300 - int(1000 * RESERVE_RATIO)
    assert (node.held_bytes, node.free_gpus) == (100, 2)


def test_what_does_not_fit_is_left_out_and_told() -> None:
    files = [file(number, length=GIB // 4) for number in range(8)]
    found = plan(files, placement=Placement(mode="Partition", node_count=1))
    assert found.unplaced_bytes > 0
    assert found.missing_bytes + found.unplaced_bytes == 2 * GIB


def test_a_survey_counts_each_byte_once_and_each_copy() -> None:
    survey = surveyed([file(1, workers=("a", "b")), file(2, workers=("a",)), file(3)])
    assert (survey.total_files, survey.total_bytes) == (3, 30)
    assert (survey.cached_bytes, survey.physical_bytes) == (20, 30)
    assert survey.node_bytes == {"a": 20, "b": 10}


def test_only_all_of_it_is_a_ratio_of_one() -> None:
    assert ratio(999_999_999, 1_000_000_000) < 1
    assert ratio(10, 10) == ratio(0, 0) == 1
