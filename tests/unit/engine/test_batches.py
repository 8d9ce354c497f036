"""Load requests stay within what a worker can take."""

from hypothesis import given
from hypothesis import strategies as st

from tdcs.engine.alluxio.batches import batches
from tdcs.engine.protocol import Block


def block(number: int, length: int) -> Block:
    """A block that only has a size."""
    return Block(id=number, length=length, offset=0, source_path="s3://b/f", mount_id=1)


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


def test_many_small_blocks_share_requests_and_large_ones_do_not() -> None:
    small, large = [block(n, 10_000) for n in range(1200)], [block(n, 64 << 20) for n in range(5000, 5003)]
    assert [len(batch) for batch in batches([*small, *large])] == [500, 500, 200, 1, 1, 1]
