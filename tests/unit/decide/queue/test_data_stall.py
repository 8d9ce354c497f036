"""What is advised to a job that waits for its data."""

import pytest

from tdcs.decide.queue.data_stall import Advice, Stall, advice_of, explained


@pytest.mark.parametrize(
    ("stall", "share", "advice"),
    [
        (Stall(seconds=100), 0, "ComputeBound"),
        (Stall(seconds=0, source=3), 0, "ComputeBound"),
        (Stall(seconds=100, source=2, peer=2, disk=0.9), 0.049, "ComputeBound"),
        (Stall(seconds=100, source=30, peer=20, disk=10), 0.6, "CacheMore"),
        (Stall(seconds=100, source=10, peer=40), 0.5, "Replicate"),
        (Stall(seconds=100, source=10, peer=5, disk=45), 0.6, "FasterDisk"),
        (Stall(seconds=10, source=50), 1, "CacheMore"),
        (Stall(seconds=2, peer=2), 1, "ComputeBound"),
        # Reads that wait ahead of a loop that does not are no loss.
        (Stall(seconds=100, source=60, loop_seconds=100, loop_waited=2), 0.6, "ComputeBound"),
        (Stall(seconds=100, source=60, loop_seconds=12, loop_waited=8), 0.6, "ComputeBound"),
        (Stall(seconds=100, source=2, loop_seconds=100, loop_waited=50), 0.02, "FasterLoader"),
        (Stall(seconds=0, loop_seconds=100, loop_waited=50), 0, "FasterLoader"),
        (Stall(seconds=100, source=20, peer=4, loop_seconds=800, loop_waited=400), 0.24, "FasterLoader"),
        (Stall(seconds=100, source=20, peer=6, loop_seconds=800, loop_waited=400), 0.26, "CacheMore"),
        (Stall(seconds=100, peer=50, loop_seconds=0), 0.5, "Replicate"),
    ],
)
def test_what_a_job_waits_for_most_is_what_is_to_be_changed(
    stall: Stall, share: float, advice: Advice
) -> None:
    assert stall.share == pytest.approx(share)
    assert advice_of(stall) == advice
    assert explained(advice)


def test_nothing_is_advised_that_the_datasets_have() -> None:
    assert "placement.mode Replicate" in explained("Replicate")
    text = explained("Replicate", replicated=True)
    assert "placement.mode" not in text
    assert "copies on more nodes" in text


def test_of_a_loop_that_is_watched_it_is_said_that_it_hardly_waits() -> None:
    assert "training loop hardly waits" in explained("ComputeBound", watched=True)
