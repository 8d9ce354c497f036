"""Nodes that are set aside for a job that was passed too often."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decide.builders import fits

from tdcs.decide.queue.nodes_aside import nodes_to_set_aside


def set_aside(
    *, pods: Sequence[int], free: Mapping[str, int], size: int = 8, previous: Sequence[str] = ()
) -> tuple[str, ...]:
    """What is set aside of nodes of one size for a gang."""

    def holds(nodes: Sequence[str]) -> bool:
        return fits(pods, dict.fromkeys(nodes, size))

    return nodes_to_set_aside(
        free=free, sizes=dict.fromkeys(free, size), holds=holds, previous_nodes=previous
    )


@given(
    pods=st.lists(st.integers(min_value=1, max_value=8), min_size=1, max_size=20),
    free=st.dictionaries(st.sampled_from("abcdefg"), st.integers(min_value=0, max_value=8)),
)
def test_the_fewest_nodes_are_set_aside_that_hold_the_job_and_those_with_the_most_free(
    pods: list[int], free: dict[str, int]
) -> None:
    aside = set_aside(pods=pods, free=free)
    count = len(aside)
    assert len(set(aside)) == count
    needed = next((n for n in range(len(free) + 1) if fits(pods, {f"n{i}": 8 for i in range(n)})), None)
    assert count == (needed or 0)
    others_free = [gpus for node, gpus in free.items() if node not in aside]
    assert all(free[node] >= max(others_free, default=0) for node in aside)
    # Chosen once and kept, whatever becomes free elsewhere.
    assert set(set_aside(pods=pods, free=dict.fromkeys(free, 8), previous=aside)) == set(aside)


def test_sixty_four_pods_of_one_gpu_need_eight_nodes_of_eight() -> None:
    free = {f"n{i}": 0 for i in range(64)}
    assert len(set_aside(pods=[1] * 64, free=free)) == 8
