"""What is loaded where, and what is dropped, follows from what is there and what is wanted."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controllers.builders import GIB, file, worker

from tdcs.controllers.dataset.plan import NodeView, Plan, Want, WantPlan
from tdcs.controllers.dataset.planner import RESERVE_RATIO, available, plan_wants
from tdcs.controllers.dataset.survey import Survey, ratio
from tdcs.engine.protocol import CachedFile, WorkerInfo
from tdcs.policy.preload import Subset

NODES = {name: NodeView(name=name, labels={"zone": name}, free_gpus=2) for name in ("a", "b", "c", "d")}
WORKERS = [worker(name) for name in NODES]
TWO = Want(key="Dataset n/two", mode="Partition", node_count=2)


def surveyed(files: Iterable[CachedFile]) -> Survey:
    survey = Survey()
    survey.add(files)
    return survey


def plan(
    files: Iterable[CachedFile],
    *wants: Want,
    workers: Iterable[WorkerInfo] = WORKERS,
    held_before: dict[str, tuple[frozenset[str], ...]] | None = None,
    leaving: frozenset[str] = frozenset(),
    owned: bool = True,
) -> Plan:
    return plan_wants(
        data="/datasets/1",
        wants=wants or (TWO,),
        survey=surveyed(files),
        workers=workers,
        nodes=NODES,
        held_before=held_before,
        leaving=leaving,
        owned=owned,
    )


def only(found: Plan) -> WantPlan:
    (single,) = found.wants.values()
    return single


def missing(found: WantPlan) -> dict[str, list[int]]:
    """Block ids to load, by node."""
    by_node: dict[str, list[int]] = {}
    for number, nodes in found.work:
        for node in nodes:
            by_node.setdefault(node, []).append(found.work.table.block(number).id)
    return by_node


def carried_out(found: Plan, files: Iterable[CachedFile]) -> list[CachedFile]:
    """The files after the plan: what was missing is there, what was surplus or unwanted is gone."""
    there = {
        (number, node)
        for want in found.wants.values()
        for node, numbers in missing(want).items()
        for number in numbers
    }
    dropped = [*found.surplus.items(), *found.unwanted.items()]
    gone = {(number, node) for node, numbers in dropped for number in numbers}
    after = []
    for each in files:
        (block,) = each.blocks
        holders = {node for node in NODES if (block.id, node) in there} | block.workers
        holders -= {node for node in NODES if (block.id, node) in gone}
        after.append(file(block.id, length=block.length, workers=tuple(sorted(holders))))
    return after


def test_an_empty_cache_gets_every_block_once() -> None:
    found = only(plan([file(number) for number in range(100)]))
    assert sorted(number for numbers in missing(found).values() for number in numbers) == list(range(100))
    assert len(found.nodes) == 2
    assert found.missing_bytes == found.wanted_bytes == 1000
    assert (found.wanted_files, found.placed_files) == (100, 0)


def test_what_is_there_is_not_loaded_again() -> None:
    files = [file(number) for number in range(100)]
    again = plan(carried_out(plan(files), files))
    assert not again.missing
    assert not again.surplus
    assert only(again).placed_files == 100


WANTS = st.builds(
    Want,
    key=st.just("x"),
    mode=st.sampled_from(["Auto", "Partition", "Replicate"]),
    node_count=st.none() | st.integers(1, 3),
    copies=st.integers(1, 2),
    nodes=st.sampled_from([(), ("a",), ("b", "c")]),
    subset=st.sampled_from([Subset(), Subset(fraction=0.4), Subset(amount=5000)]),
)


@settings(deadline=None)  # six plans an example: a busy machine takes long
@given(
    lengths=st.lists(st.integers(1, 10_000), min_size=1, max_size=40),
    wants=st.lists(WANTS, min_size=1, max_size=3),
    capacity=st.integers(1_000, 1_000_000),
)
def test_plans_that_are_carried_out_come_to_rest_and_never_overfill_a_node(
    lengths: list[int], wants: list[Want], capacity: int
) -> None:
    asked = [replace(want, key=str(number)) for number, want in enumerate(wants)]
    files: Sequence[CachedFile] = [file(number, length=length) for number, length in enumerate(lengths)]
    held: dict[str, tuple[frozenset[str], ...]] = {}
    for _ in range(5):
        used = surveyed(files).node_bytes
        workers = [worker(name, capacity=capacity, used=used.get(name, 0)) for name in NODES]
        found = plan(files, *asked, workers=workers, held_before=held)
        files = carried_out(found, files)
        held = {
            key: tuple(frozenset(node.name for node in copy.nodes) for copy in want.copies)
            for key, want in found.wants.items()
        }
    used = surveyed(files).node_bytes
    assert all(size <= capacity * (1 - RESERVE_RATIO) + 1 for size in used.values())
    workers = [worker(name, capacity=capacity, used=used.get(name, 0)) for name in NODES]
    again = plan(files, *asked, workers=workers, held_before=held)
    assert not again.missing
    assert not again.surplus
    assert not again.unwanted


def test_copies_on_other_nodes_are_dropped_only_when_the_wanted_ones_are_there() -> None:
    only_b = Want(key="x", mode="Partition", node_selector={"zone": "b"})
    still_missing = plan([file(1, workers=("a",))], only_b)
    assert (missing(only(still_missing)), dict(still_missing.surplus)) == ({"b": [1]}, {})
    complete = plan([file(1, workers=("a", "b"))], only_b)
    assert not complete.missing
    assert [(node, list(ids)) for node, ids in complete.surplus.items()] == [("a", [1])]


def test_two_users_of_a_mount_each_get_their_placement_and_share_blocks() -> None:
    files = [file(number) for number in range(50)]
    everywhere = Want(key="everywhere", mode="Replicate", node_count=3)
    one = Want(key="one", mode="Replicate", node_count=1)
    found = plan(files, one, everywhere)
    assert set(found.wants["one"].nodes) < set(found.wants["everywhere"].nodes)
    loads = sum(want.work.bytes for want in found.wants.values())
    assert loads == 3 * 500  # not 4: the node of `one` is among those of `everywhere`
    done = carried_out(found, files)
    assert not plan(done, one, everywhere).surplus
    alone = plan(done, one)
    assert sum(len(ids) for ids in alone.surplus.values()) == 100  # what only the other wanted is freed


def test_copies_lie_on_nodes_of_their_own() -> None:
    found = only(
        plan([file(number) for number in range(50)], Want(key="x", mode="Partition", copies=2, node_count=2))
    )
    first, second = ({node.name for node in copy.nodes} for copy in found.copies)
    assert len(first) == len(second) == 2
    assert not first & second
    assert found.wanted_bytes == 2 * 500


def test_a_copy_without_a_node_left_is_not_made() -> None:
    found = only(plan([file(1)], Want(key="x", copies=2, node_selector={"zone": "a"})))
    assert (len(found.copies), found.eligible) == (1, 1)


def test_a_fraction_keeps_the_same_files_and_drops_the_others() -> None:
    files = [file(number, workers=("a",)) for number in range(100)]
    found = plan(files, Want(key="x", mode="Partition", node_count=1, subset=Subset(fraction=0.3)))
    kept = only(found)
    assert (kept.wanted_bytes, kept.wanted_files, kept.missing_bytes) == (300, 30, 0)
    assert sum(len(ids) for ids in found.unwanted.values()) == 70
    rest = carried_out(found, files)
    again = plan(rest, kept.want)
    assert not again.missing
    assert not again.unwanted


def test_paths_choose_folders_and_those_without_a_file_are_told() -> None:
    found = only(
        plan([file(number) for number in range(3)], Want(key="x", subset=Subset(paths=("0001", "no"))))
    )
    assert (found.wanted_files, found.unknown_paths) == (1, ("no",))


def test_what_waits_is_not_loaded_but_kept() -> None:
    files = [file(1, workers=("a",)), file(2)]
    found = plan(files, Want(key="x", nodes=("a",), load=False))
    assert not found.missing
    assert not found.unwanted
    assert only(found).missing_bytes == 10


def test_a_load_that_waits_does_not_keep_another_one_from_loading_the_same() -> None:
    found = plan([file(1)], Want(key="waits", nodes=("a",), load=False), Want(key="goes", nodes=("a",)))
    assert missing(found.wants["goes"]) == {"a": [1]}


def test_a_want_keeps_its_nodes_though_others_hold_as_much() -> None:
    files = [file(number, workers=("a", "b", "c")) for number in range(9)]
    want = Want(key="x", mode="Replicate", node_count=1)
    for node in "abc":
        assert only(plan(files, want, held_before={"x": (frozenset(node),)})).nodes == (node,)


def test_lost_workers_and_workers_of_unknown_nodes_are_no_candidates() -> None:
    workers = [worker("a", live=False), worker("b"), worker("stranger")]
    assert [node.name for node in available(survey=Survey(), workers=workers, nodes=NODES)] == ["b"]


def test_room_is_what_other_datasets_leave() -> None:
    survey = surveyed([file(1, length=100, workers=("a",))])
    (node,) = available(survey=survey, workers=[worker("a", capacity=1000, used=400)], nodes=NODES)
    assert node.free_bytes == 1000 - 300 - int(1000 * RESERVE_RATIO)
    assert (node.held_bytes, node.free_gpus) == (100, 2)


def test_what_does_not_fit_is_left_out_and_told() -> None:
    files = [file(number, length=GIB // 4) for number in range(8)]
    found = only(plan(files, Want(key="x", mode="Partition", node_count=1)))
    assert found.unplaced_bytes > 0
    assert found.missing_bytes + found.unplaced_bytes == 2 * GIB


@pytest.mark.parametrize("mode", ["Partition", "Replicate"])
def test_what_fits_is_a_sample_of_all_folders(mode: str) -> None:
    files = [file(number, length=10) for number in range(100)]
    want = Want(key="x", mode=mode, node_count=1)  # type: ignore[arg-type]
    found = only(plan(files, want, workers=[worker(name, capacity=510) for name in NODES]))
    (held,) = missing(found).values()
    assert len(held) == 50  # of 510 bytes, two in a hundred are kept free
    assert 15 < sum(number < 50 for number in held) < 35  # and not the first 50


def test_a_cache_smaller_than_a_block_holds_nothing_and_breaks_nothing() -> None:
    found = only(plan([file(1, length=1000)], workers=[worker(name, capacity=100) for name in NODES]))
    assert (found.wanted_bytes, found.unplaced_bytes) == (0, 1000)


@pytest.mark.parametrize("mode", ["Partition", "Replicate"])
def test_empty_files_count_as_placed(mode: str) -> None:
    empty = CachedFile(path="empty", length=0, blocks=())
    found = only(plan([empty, file(1, workers=tuple(NODES))], replace(TWO, mode=mode)))  # type: ignore[arg-type]
    assert (found.wanted_files, found.placed_files) == (2, 2)


def test_a_survey_counts_each_byte_once_and_each_copy() -> None:
    survey = surveyed([file(1, workers=("a", "b")), file(2, workers=("a",)), file(3)])
    assert (survey.total_files, survey.total_bytes) == (3, 30)
    assert (survey.cached_bytes, survey.physical_bytes) == (20, 30)
    assert survey.node_bytes == {"a": 20, "b": 10}


def test_only_all_of_it_is_a_ratio_of_one() -> None:
    assert ratio(999_999_999, 1_000_000_000) < 1
    assert ratio(10, 10) == ratio(0, 0) == 1


def moved(found: Plan) -> int:
    """Blocks that a node gives away because it leaves, and that no want's load brings elsewhere."""
    return len(found.moves) if found.moves is not None else 0


LEAVES = frozenset({"a"})


def test_a_node_that_leaves_gets_nothing_and_what_is_wanted_is_loaded_from_it() -> None:
    files = [file(number, workers=("a",)) for number in range(20)]
    found = plan(files, TWO, leaving=LEAVES)
    assert "a" not in only(found).nodes
    assert (len(only(found).work), moved(found)) == (20, 0)
    assert "a" not in found.surplus
    assert "a" not in found.unwanted


def test_what_nobody_loads_moves_only_where_it_is_kept() -> None:
    files = [file(number, workers=("a",)) for number in range(20)]
    later = replace(TWO, load=False)
    half = replace(TWO, subset=Subset(amount=100))
    alone = replace(TWO, nodes=("a",), node_count=None)  # its only node is the one that leaves
    for want, owned, expected in (
        (later, True, 20),  # it is there, and its load begins later
        (half, True, 0),  # the rest is dropped anyway
        (half, False, 10),  # the rest was read by jobs
        (alone, True, 0),
        (alone, False, 20),
    ):
        assert moved(plan(files, want, leaving=LEAVES, owned=owned)) == expected, (want, owned)
    elsewhere = [file(number, workers=("a", "b")) for number in range(20)]
    assert moved(plan(elsewhere, later, leaving=LEAVES)) == 0
    assert moved(plan(files, later)) == 0
