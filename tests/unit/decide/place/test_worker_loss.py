"""What of a Dataset left the cache with workers, summed over drains."""

from typing import Any

import pytest

from tdcs.api.dataset import LOST_NODES_NAMED, WorkerLoss
from tdcs.decide.place.worker_loss import drain_message, standing_message, worker_loss


def loss_after(
    previous: WorkerLoss | None = None,
    *,
    left: str = "",
    before: int = 100,
    wanted: int = 60,
    unplaced: int = 40,
) -> WorkerLoss | None:
    return worker_loss(previous, left_nodes=left, wanted_before=before, wanted=wanted, unplaced=unplaced)


LOST = WorkerLoss(bytes=40, wanted_bytes=100, workers=1, nodes=["a"])


def test_what_has_no_room_since_a_worker_left_is_lost_with_it() -> None:
    assert loss_after(left="a") == LOST


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"unplaced": 0, "left": "a"}, id="all found room"),
        pytest.param({}, id="nobody left"),
        pytest.param({"left": "a", "wanted": 100}, id="as much as before is on nodes"),
        pytest.param({"left": "a", "wanted": 120}, id="more than before is on nodes"),
    ],
)
def test_nothing_is_lost_where(changes: dict[str, Any]) -> None:
    assert loss_after(**changes) is None


def test_losses_of_several_drains_add_up() -> None:
    after = loss_after(LOST, left="b", before=60, wanted=30)
    assert after == WorkerLoss(bytes=70, wanted_bytes=100, workers=2, nodes=["a", "b"])


def test_a_worker_that_leaves_again_counts_once() -> None:
    after = loss_after(LOST, left="a", before=60, wanted=30)
    assert after is not None
    assert (after.workers, after.nodes) == (1, ["a"])


def test_what_was_lost_to_other_causes_between_drains_is_not_waited_for() -> None:
    after = loss_after(LOST, left="b", before=50, wanted=30)
    assert after == WorkerLoss(bytes=60, wanted_bytes=90, workers=2, nodes=["a", "b"])
    assert loss_after(after, wanted=90) is None


@pytest.mark.parametrize(
    ("wanted", "missing"), [(60, 40), (50, 40), (75, 25), (99, 1), (100, None), (120, None)]
)
def test_what_finds_room_again_is_missing_no_longer(wanted: int, missing: int | None) -> None:
    after = loss_after(LOST, wanted=wanted)
    assert (None if after is None else after.bytes) == missing


def test_only_the_first_nodes_are_kept_and_all_are_counted() -> None:
    nodes = "abcdefghijklmnopqrstuvwxyz"
    after = loss_after(left=nodes)
    assert after is not None
    assert (after.workers, after.nodes) == (26, [*nodes[:LOST_NODES_NAMED]])


def test_a_drain_says_what_left_and_what_is_missing_with_what_left_before() -> None:
    first = drain_message(LOST, left_nodes="a", lost_bytes=40, cluster="c", room=2048)
    assert first == (
        "40 bytes of it left the cache with the worker of a, which CacheCluster c takes out: the workers that stay "
        "have room for 2 KiB"
    )
    second = drain_message(LOST, left_nodes="cb", lost_bytes=15, cluster="c", room=0)
    assert "with the workers of b, c, which" in second
    assert second.endswith("; with what left before, 40 bytes of it is missing")


def test_what_stays_missing_is_said_until_nothing_is() -> None:
    assert standing_message(None, cluster="c", room=0) == ""
    many = LOST.model_copy(update={"workers": 9})
    assert "with the workers of a and 8 others, which CacheCluster c takes out" in standing_message(
        many, cluster="c", room=0
    )
