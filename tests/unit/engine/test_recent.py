"""Nobody is asked where a block lies that this process has just placed, and everybody in all other cases."""

from dataclasses import dataclass

from tdcs.engine.alluxio import recent
from tdcs.engine.alluxio.recent import RecentPlacements
from tdcs.engine.protocol import Block


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def block(number: int, *workers: str) -> Block:
    return Block(
        id=number, length=1, offset=0, source_path="s3://b/f", mount_id=1, workers=frozenset(workers)
    )


def test_what_nobody_held_lies_where_it_was_read_and_copied_to() -> None:
    known = RecentPlacements(clock=Clock())
    known.note(worker="a", blocks=[block(1)], from_source=True)
    assert known.holders(1) == frozenset("a")
    known.note(worker="b", blocks=[block(1)], from_source=False)
    assert known.holders(1) == frozenset("ab")


def test_of_blocks_that_others_held_or_gave_nothing_is_known() -> None:
    known = RecentPlacements(clock=Clock())
    known.note(worker="a", blocks=[block(1, "c")], from_source=True)
    known.note(worker="a", blocks=[block(2)], from_source=False)
    assert known.holders(1) is None
    assert known.holders(2) is None


def test_what_was_removed_or_is_long_ago_must_be_asked() -> None:
    clock = Clock()
    known = RecentPlacements(clock=clock)
    known.note(worker="a", blocks=[block(1), block(2)], from_source=True)
    known.forget([1])
    assert known.holders(1) is None
    clock.now = recent.KEPT_SECONDS
    assert known.holders(2) is None


def test_only_so_many_are_remembered_the_latest_ones() -> None:
    known = RecentPlacements(clock=Clock())
    many = [block(number) for number in range(recent.KEPT_BLOCKS + 5)]
    known.note(worker="a", blocks=many, from_source=True)
    assert known.holders(4) is None
    assert known.holders(5) == frozenset("a")
