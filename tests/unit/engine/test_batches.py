"""Load requests stay within what a worker can take."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.engine.alluxio.batches import LOADED, batches
from tdcs.engine.protocol import Block


def block(number: int, length: int) -> Block:
    """A block that only has a size."""
    return Block(id=number, length=length, offset=0, source_path="s3://b/f", mount_id=1)


@settings(deadline=None)  # a busy machine says nothing about batches
@given(
    sizes=st.lists(st.integers(min_value=1, max_value=150)),
    max_bytes=st.integers(min_value=1, max_value=300),
    max_count=st.integers(min_value=1, max_value=7),
)
def test_batches_hold_each_block_once_in_order_and_within_the_limits(
    sizes: list[int], max_bytes: int, max_count: int
) -> None:
    blocks = [block(number, size) for number, size in enumerate(sizes)]
    made = list(batches([*blocks, *blocks], max_bytes=max_bytes, max_count=max_count))
    assert [one for batch in made for one in batch] == blocks
    for batch in made:
        assert 1 <= len(batch) <= max_count
        assert len(batch) == 1 or sum(one.length for one in batch) <= max_bytes


def test_many_small_blocks_share_requests_and_a_worker_holds_few_whole_blocks_in_memory() -> None:
    small, whole = [block(n, 10_000) for n in range(1200)], [block(n, LOADED) for n in range(5000, 5004)]
    assert [len(batch) for batch in batches([*small, *whole])] == [500, 500, 203, 1]


def test_blocks_that_are_fetched_in_steps_count_by_their_step_however_large_they_are() -> None:
    huge = [block(n, 1 << 40) for n in range(20)]
    assert [len(batch) for batch in batches(huge)] == [2] * 10
