"""Which node holds which slots: shares, room, parts of the data, copies, and what stays where it is."""

from dataclasses import replace
from random import Random

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.decide.builders import GIB, Below, candidate, placed, totals_of

from tdcs.decide.cache.load_order import Subset
from tdcs.decide.cache.wants import Want, copy_ids
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.model import slots
from tdcs.model.manifest_format import Totals

TWO = Want(key="Dataset n/two", mode="Partition", node_count=2)
HUNDRED = totals_of([10] * 100)


def only(placements: tuple[WantPlacement, ...]) -> WantPlacement:
    (single,) = placements
    return single


def masks(placement: WantPlacement) -> dict[str, npt.NDArray[np.bool_]]:
    return {node: slots.mask_of(held) for copy in placement.copies for node, held in copy.nodes.items()}


def test_a_partition_gives_every_slot_to_one_node() -> None:
    placement = only(placed(HUNDRED, TWO))
    assert len(placement.nodes) == 2
    assert np.sum([mask[:100] for mask in masks(placement).values()], axis=0).tolist() == [1] * 100
    assert (placement.wanted_bytes, placement.unplaced_bytes) == (1000, 0)
    assert all(400 <= placement.bytes_for(node) <= 600 for node in placement.nodes)


def test_replicas_have_every_slot() -> None:
    placement = only(placed(HUNDRED, Want(key="x", mode="Replicate", node_count=3)))
    assert [placement.bytes_for(node) for node in placement.nodes] == [1000] * 3


WANTS = st.builds(
    Want,
    key=st.just("x"),
    mode=st.sampled_from(["Auto", "Partition", "Replicate"]),
    node_count=st.none() | st.integers(1, 3),
    copies=st.integers(1, 2),
    nodes=st.sampled_from([(), ("a",), ("b", "c")]),
    subset=st.sampled_from([Subset(), Subset(fraction=0.4), Subset(amount=5000), Subset(paths=("p",))]),
)


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=1, max_size=40),
    wants=st.lists(WANTS, min_size=1, max_size=3),
    capacity=st.integers(1_000, 1_000_000),
)
def test_no_node_is_promised_more_than_it_has_room_for(
    sizes: list[int], wants: list[Want], capacity: int
) -> None:
    totals, folder = totals_of(sizes), totals_of(sizes[::2])
    small = np.array(folder.sizes)
    small[len(sizes) :] = 0
    below: Below = {("p",): replace_sizes(totals, np.minimum(small, totals.sizes))}
    nodes = [candidate(name, capacity=capacity) for name in "abcd"]
    placements = placed(
        totals,
        *(replace(want, key=str(number)) for number, want in enumerate(wants)),
        candidates=nodes,
        below=below,
    )
    for node in "abcd":
        whole = np.zeros(slots.SLOTS, dtype=np.int64)
        for placement in placements:
            for copy in placement.copies:
                if node in copy.nodes:
                    held = np.where(slots.mask_of(copy.nodes[node]), placement.totals.sizes, 0)
                    whole = np.maximum(whole, held)
        assert whole.sum() <= capacity


def replace_sizes(totals: Totals, sizes: slots.Sizes) -> Totals:
    return msgspec.structs.replace(
        totals, slot_bytes=sizes.astype("<i8").tobytes(), block_bytes=int(sizes.sum())
    )


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=200), more=st.integers(1, 4))
def test_less_room_holds_a_subset_of_what_more_room_holds(sizes: list[int], more: int) -> None:
    totals, total = totals_of(sizes), sum(sizes)
    want = Want(key="x", mode="Replicate", node_count=1)
    held = [
        masks(only(placed(totals, want, candidates=[candidate("a", capacity=total * part // 5 + 1)])))["a"]
        for part in (more, more + 1)
    ]
    assert not (held[0] & ~held[1]).any()


def test_copies_are_on_nodes_of_their_own() -> None:
    placement = only(placed(HUNDRED, Want(key="x", mode="Partition", copies=2, node_count=2)))
    first, second = (set(copy.nodes) for copy in placement.copies)
    assert len(first) == len(second) == 2
    assert not first & second
    assert placement.wanted_bytes == 2000


def test_a_copy_without_a_node_left_is_not_made() -> None:
    placement = only(placed(HUNDRED, Want(key="x", copies=2, node_selector={"zone": "a"})))
    assert (len(placement.copies), placement.eligible) == (1, 1)


def test_a_larger_fraction_holds_what_a_smaller_one_held() -> None:
    wants = [Want(key="x", node_count=1, subset=Subset(fraction=part)) for part in (0.3, 0.6)]
    small, large = (only(placed(HUNDRED, want)) for want in wants)
    assert (small.wanted_bytes, large.wanted_bytes) == (300, 600)
    assert not slots.count(slots.difference(small.chosen, large.chosen))


def test_an_amount_below_the_first_block_means_nothing() -> None:
    placement = only(placed(HUNDRED, Want(key="x", subset=Subset(amount=5))))
    assert (placement.asked_bytes, placement.subset_bytes, placement.wanted_bytes) == (5, 0, 0)


def test_paths_mean_the_files_below_them() -> None:
    want = Want(key="x", node_count=1, subset=Subset(paths=("train/", "no")))
    below: Below = {("no", "train"): totals_of([10] * 3, unknown=("no",))}
    placement = only(placed(HUNDRED, want, below=below))
    assert (placement.wanted_bytes, placement.totals.unknown_paths) == (30, ("no",))


def test_a_copy_keeps_its_nodes_though_others_hold_as_much() -> None:
    want = Want(key="x", mode="Replicate", node_count=1)
    nodes = [candidate(name, held=1000) for name in "abc"]
    for node in "abc":
        before = {"x": {"0": frozenset(node)}}
        assert only(placed(HUNDRED, want, candidates=nodes, held_before=before)).nodes == (node,)


def test_a_node_more_moves_few_slots() -> None:
    totals = totals_of([10] * 4000)
    want = Want(key="x", mode="Partition", node_count=4)
    four = masks(only(placed(totals, want)))
    five = masks(
        only(placed(totals, replace(want, node_count=5), candidates=[candidate(name) for name in "abcde"]))
    )
    moved = sum(
        int((five[node] & ~four.get(node, np.zeros(slots.SLOTS, bool)))[:4000].sum()) for node in five
    )
    assert moved / 4000 == pytest.approx(1 / 5, abs=0.06)


def test_what_does_not_fit_is_left_out_and_counted() -> None:
    totals = totals_of([GIB // 4] * 8)
    placement = only(placed(totals, Want(key="x", mode="Partition", node_count=1)))
    assert (placement.wanted_bytes, placement.unplaced_bytes) == (GIB, GIB)
    placement = only(
        placed(
            totals,
            Want(key="x", mode="Partition", node_count=3),
            candidates=[candidate("a"), candidate("b", capacity=GIB // 2)],
        )
    )
    assert placement.wanted_bytes == GIB + GIB // 2
    assert placement.bytes_for("b") == GIB // 2


def test_two_wants_of_the_same_data_share_its_room() -> None:
    totals = totals_of([10] * 100)
    nodes = [candidate("a", capacity=1000)]
    first, second = Want(key="1", nodes=("a",)), Want(key="2", nodes=("a",))
    assert [placement.wanted_bytes for placement in placed(totals, first, second, candidates=nodes)] == [
        1000,
        1000,
    ]
    part = replace(first, subset=Subset(paths=("p",)))
    below: Below = {("p",): totals_of([0] * 50 + [10] * 50)}
    nodes = [candidate("a", capacity=700)]
    placements = placed(totals, part, second, candidates=nodes, below=below)
    assert [placement.wanted_bytes for placement in placements] == [500, 700]


@pytest.mark.parametrize("mode", ["Partition", "Replicate"])
def test_empty_files_are_wherever_anything_does(mode: str) -> None:
    placement = only(placed(totals_of([], empty=1), replace(TWO, mode=mode)))  # type: ignore[arg-type]
    assert (placement.wanted_bytes, placement.unplaced_bytes) == (0, 0)
    assert any(mask[0] for mask in masks(placement).values())


def test_a_copy_keeps_its_id_and_its_nodes_when_another_one_goes() -> None:
    nodes = [candidate(name) for name in "abc"]
    three = Want(key="x", mode="Replicate", node_count=1, copies=3)
    first = only(placed(HUNDRED, three, candidates=nodes))
    nodes_by_copy = {copy.id: frozenset(copy.nodes) for copy in first.copies}
    assert list(nodes_by_copy) == ["0", "1", "2"]
    ids = copy_ids(ids=tuple(nodes_by_copy), count=2, in_use={"2"})
    two = replace(three, copies=2, ids=ids)
    fewer = only(placed(HUNDRED, two, candidates=nodes, held_before={"x": nodes_by_copy}))
    assert {copy.id: frozenset(copy.nodes) for copy in fewer.copies} == {
        "0": nodes_by_copy["0"],
        "2": nodes_by_copy["2"],
    }


@pytest.mark.parametrize(
    ("ids", "count", "in_use", "expected"),
    [
        ("", 2, "", "01"),
        ("01", 2, "1", "01"),
        ("012", 2, "", "01"),
        ("012", 2, "2", "02"),
        ("012", 1, "12", "1"),
        ("02", 3, "", "021"),
        ("2", 2, "2", "20"),
        ("012", 0, "0", ""),
    ],
)
def test_copies_that_are_read_stay_and_new_ones_take_free_numbers(
    ids: str, count: int, in_use: str, expected: str
) -> None:
    assert "".join(copy_ids(ids=tuple(ids), count=count, in_use=set(in_use))) == expected


@settings(deadline=None)
@given(
    size=st.integers(100, 100_000),
    free=st.lists(st.tuples(st.integers(0, 80_000), st.integers(0, 50_000)), min_size=1, max_size=6),
    want=WANTS,
    gpus=st.randoms(use_true_random=False),
)
def test_what_was_placed_stays_when_it_is_placed_again_with_the_same_room(
    size: int, free: list[tuple[int, int]], want: Want, gpus: Random
) -> None:
    """As a new operator does, which finds it loaded, and other GPUs free."""
    want = replace(want, nodes=(), subset=Subset())
    totals = totals_of([size // 100] * 100)
    before = [
        candidate(name, capacity=100_000, free=room, held=min(held, room))
        for name, (room, held) in zip("abcdef", free, strict=False)
    ]
    placement = only(placed(totals, want, candidates=before))
    after = [
        replace(
            view,
            node=replace(
                view.node, held_bytes=placement.bytes_for(view.node.name), free_gpus=gpus.randint(0, 2)
            ),
        )
        for view in before
    ]
    held = {want.key: {copy.id: frozenset(copy.nodes) for copy in placement.copies}}
    again = only(placed(totals, want, candidates=after, held_before=held))
    assert {copy.id: dict(copy.nodes) for copy in again.copies} == {
        copy.id: dict(copy.nodes) for copy in placement.copies
    }


def test_a_copy_without_room_anywhere_stays_when_other_gpus_are_free() -> None:
    want = Want(key="x", mode="Partition", node_count=1)
    totals = totals_of([2] * 100)

    def place(gpus: dict[str, int], before: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        nodes = [
            candidate(name, capacity=100_000, free=room) for name, room in (("a", 1), ("b", 0), ("c", 1))
        ]
        nodes = [replace(view, node=replace(view.node, free_gpus=gpus[view.node.name])) for view in nodes]
        placement = only(placed(totals, want, candidates=nodes, held_before={"x": before}))
        return {copy.id: frozenset(copy.nodes) for copy in placement.copies}

    first = place({"a": 1, "b": 0, "c": 0}, {})
    assert first
    assert place({"a": 0, "b": 0, "c": 1}, first) == first
    assert place({"a": 0, "b": 1, "c": 0}, first) == first
