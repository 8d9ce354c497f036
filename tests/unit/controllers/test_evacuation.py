"""A node gives its last copies away before it goes, without the source being asked."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controllers.builders import file
from tests.unit.controllers.test_loader import LENGTH, engine_of, listed, loaded

from tdcs.controllers.dataset.evacuation import plan_evacuation
from tdcs.engine.table import BlockTable


async def test_after_an_evacuation_nothing_is_lost_and_the_source_was_not_asked() -> None:
    engine = engine_of(nodes="abc")
    table = await listed(engine)
    await engine.put(worker="a", blocks=table.blocks(range(20)))
    await engine.put(worker="b", blocks=table.blocks(range(5)))
    read = engine.source_bytes_read
    plan = plan_evacuation(
        table=await listed(engine), leaving="a", room={"b": 100 * LENGTH, "c": 100 * LENGTH}
    )
    assert (len(plan.work), plan.lost_bytes) == (15, 0)
    await loaded(engine, plan.work)
    await engine.retire(worker="a")
    after = await listed(engine)
    assert all(after.holders(block) for block in range(len(after)))
    assert engine.source_bytes_read == read
    assert engine.copied_bytes == 15 * LENGTH


def test_what_has_no_room_elsewhere_is_counted_as_lost() -> None:
    table = BlockTable()
    table.add([file(number, length=10, workers=("a",)) for number in range(10)])
    plan = plan_evacuation(table=table, leaving="a", room={"a": 10**9, "b": 35, "c": 10})
    assert plan.work.bytes_by_node == {"b": 30, "c": 10}
    assert plan.lost_bytes == 60


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 100), max_size=30), rooms=st.lists(st.integers(0, 500), max_size=3))
def test_no_node_gets_more_than_it_has_room_for(lengths: list[int], rooms: list[int]) -> None:
    table = BlockTable()
    table.add([file(number, length=length, workers=("gone",)) for number, length in enumerate(lengths)])
    room = {f"n{number}": free for number, free in enumerate(rooms)}
    plan = plan_evacuation(table=table, leaving={"gone"}, room=room)
    assert all(size <= room[name] for name, size in plan.work.bytes_by_node.items())
    assert plan.work.bytes + plan.lost_bytes == sum(lengths)
