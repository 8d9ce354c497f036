"""What is fetched before it is asked for, and what is kept."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.engine.holder_table import Holder, HolderTable, table_of
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, AgentState, MountState
from tdcs.node.reader.serving.content_buffer import ContentBuffer
from tdcs.node.reader.serving.holder_order import slot_holders, source_readers
from tdcs.node.reader.serving.read import Key
from tdcs.node.reader.serving.read_ahead import FILES_AHEAD, EpochOrder, FileOrder, OffsetOrder


def test_files_in_order_are_fetched_once_each_and_not_too_far_ahead() -> None:
    order, fetched = FileOrder(), []
    for file in range(500):
        ahead = list(order.next(file, files=500))
        assert all(file < number <= file + FILES_AHEAD for number in ahead)
        fetched += ahead
    assert len(fetched) == len(set(fetched)) > 480


def test_readers_that_take_turns_are_still_in_order() -> None:
    order, fetched = FileOrder(), set[int]()
    for begin in range(0, 400, 8):
        files = list(range(begin, begin + 8))
        random.Random(begin).shuffle(files)
        for file in files:
            fetched |= set(order.next(file, files=400))
    assert len(fetched) > 200


def test_nothing_is_fetched_ahead_in_a_shuffled_order() -> None:
    order, files = FileOrder(), list(range(5000))
    random.Random(1).shuffle(files)
    assert sum(len(order.next(file, files=5000)) for file in files) == 0


def test_a_file_is_in_order_from_its_beginning_to_its_end_and_not_in_between() -> None:
    order = OffsetOrder()
    assert order.in_order(1, 5, offset=0, size=100, slack=10)
    assert order.in_order(1, 5, offset=100, size=100, slack=10)
    assert not order.in_order(1, 5, offset=5000, size=100, slack=10)
    assert not order.in_order(1, 6, offset=5000, size=100, slack=10)


def test_a_file_is_in_order_from_anywhere_once_a_read_begins_where_another_ended() -> None:
    order = OffsetOrder()
    in_order = [order.in_order(1, 5, offset=offset, size=100, slack=10) for offset in range(7000, 7500, 100)]
    assert in_order == [False, True, True, True, True]


def test_the_more_reads_were_in_order_the_more_is_fetched_ahead() -> None:
    order = OffsetOrder()
    parts = []
    for offset in range(0, 600, 100):
        assert order.in_order(1, 5, offset=offset, size=100, slack=10)
        parts.append(order.parts_ahead(1, 5))
    assert parts == [1, 2, 4, 4, 4, 4]
    assert order.parts_ahead(1, 6) == 0


def test_a_stream_of_reads_may_be_taken_in_another_order_once_it_is_one() -> None:
    order, part = OffsetOrder(), 1 << 20
    for offset in (0, 1, 2, 4, 3, 5, 7, 6, 8):
        assert order.in_order(1, 5, offset=offset * part, size=part, slack=part), offset


def test_programs_that_read_a_file_from_several_places_are_each_in_order() -> None:
    order, part = OffsetOrder(), 1 << 20
    begins = (0, 100 * part, 200 * part)
    in_order = [
        order.in_order(1, 5, offset=begin + step * part, size=part, slack=part)
        for step in range(10)
        for begin in begins
    ]
    assert in_order == [True, False, False] + [True] * 27


@pytest.mark.parametrize("size", [4 << 20, 64 << 20])
def test_reads_at_random_places_are_in_no_order(size: int) -> None:
    order, rng = OffsetOrder(), random.Random(3)
    offsets = [rng.randrange(size // 4096) * 4096 for _ in range(2000)]
    in_order = sum(order.in_order(1, 5, offset=offset, size=4096, slack=1 << 20) for offset in offsets)
    assert in_order < 20, "it was every fourth one of a file of 4 MiB"


def epoch(order: EpochOrder, files: list[int]) -> set[int]:
    """What is fetched ahead while these files are read."""
    return {ahead for file in files for ahead in order.next(file)}


def test_an_order_that_repeats_is_fetched_ahead_from_its_second_epoch_on() -> None:
    order, files = EpochOrder(files=500), list(range(500))
    random.Random(1).shuffle(files)
    assert epoch(order, files) == set()
    assert len(epoch(order, files)) > 400
    assert len(epoch(order, files)) > 400


def test_readers_that_take_turns_in_an_order_that_repeats_are_followed() -> None:
    order, files = EpochOrder(files=800), list(range(800))
    random.Random(1).shuffle(files)
    epoch(order, files)
    turns = [files[begin : begin + 8] for begin in range(0, 800, 8)]
    for number, turn in enumerate(turns):
        random.Random(number).shuffle(turn)
    assert len(epoch(order, [file for turn in turns for file in turn])) > 600


def test_an_epoch_in_another_order_and_files_read_at_random_fetch_nothing_ahead() -> None:
    order, files, chosen = EpochOrder(files=2000), list(range(2000)), random.Random(2)
    for _ in range(4):
        chosen.shuffle(files)
        assert epoch(order, files) == set()
    assert len(epoch(EpochOrder(files=2000), chosen.choices(files, k=8000))) < 100


def test_a_version_that_is_read_much_does_not_push_out_what_another_one_fetched() -> None:
    buffer = ContentBuffer(100)
    for block in range(4):
        buffer.put(Key(1, block, 0, 10), bytes(10))
    for block in range(50):
        buffer.put(Key(2, block, 0, 10), bytes(10))
    assert all(buffer.get(Key(1, block, 0, 10)) is not None for block in range(4))
    assert buffer.bytes == 100


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=60))
def test_the_buffer_never_exceeds_its_bound_and_keeps_what_it_says(puts: list[tuple[int, int]]) -> None:
    buffer, last = ContentBuffer(100), dict[Key, bytes]()
    for number, length in puts:
        key = Key(number % 3, number, 0, 60)
        last[key] = bytes([number]) * length
        buffer.put(key, last[key])
        assert buffer.bytes <= 100
    contents = [content for key in last if (content := buffer.get(key)) is not None]
    assert sum(map(len, contents)) == buffer.bytes
    assert all(part in last.values() for part in contents)


def test_holders_that_have_all_of_a_slot_are_asked_first_and_the_node_itself_last_of_its_kind() -> None:
    table = HolderTable(
        holders=(
            Holder(node="here", address="h", complete=ALL_SLOTS, present=ALL_SLOTS),
            Holder(node="part", address="p", present=ALL_SLOTS),
            Holder(node="whole", address="w", complete=ALL_SLOTS, present=ALL_SLOTS),
            Holder(node="none", address="n"),
        )
    )
    assert slot_holders(table, slot=0, node="here") == ("w", "h", "p")
    assert slot_holders(table, slot=1, node="here") == ("w", "h", "p")
    assert slot_holders(table, slot=1, node="elsewhere") in {("h", "w", "p"), ("w", "h", "p")}


def test_the_source_is_read_through_the_nodes_own_agent_while_it_keeps_what_it_reads() -> None:
    def readers(filling: str, *, slot: int, here: str = "b") -> str:
        holders = [
            Holder(node=node, address=node, reads_source=node != "z", fills=node in filling)
            for node in "abcdz"
        ]
        return "".join(source_readers(HolderTable(holders=tuple(holders)), slot=slot, node=here))

    assert {readers("", slot=slot) for slot in range(4096)} == {"abcd", "bcda", "cdab", "dabc"}
    assert {readers("abcd", slot=slot)[0] for slot in range(4096)} == {"b"}
    assert {readers("cd", slot=slot)[:2] for slot in range(4096)} == {"cd", "dc"}
    assert {readers("ab", slot=slot, here="elsewhere")[:2] for slot in range(4096)} == {"ab", "ba"}


def test_the_operators_table_has_every_agent_and_another_revision_when_slots_change() -> None:
    first = table_of({"b": state("b", ALL_SLOTS), "a": state("a")}, mount="/datasets/a")
    again = table_of({"a": state("a"), "b": state("b", ALL_SLOTS)}, mount="/datasets/a")
    second = table_of({"a": state("a", ALL_SLOTS), "b": state("b", ALL_SLOTS)}, mount="/datasets/a")
    assert [holder.node for holder in first.holders] == ["a", "b"]
    assert first == again
    assert first.revision != second.revision
    assert not table_of({"a": state("a")}, mount="/x").holders


def state(node: str, complete: bytes = NO_SLOTS) -> AgentState:
    mount = MountState(mount="/datasets/a", version=1, complete=complete, present=complete)
    return AgentState(
        node=node,
        instance="i",
        revision=1,
        address=f"{node}:1",
        mounts={"/datasets/a": mount},
    )
