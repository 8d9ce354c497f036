"""What agents cannot have: decided by counts, and by no single node for others."""

import numpy as np
from tests.unit.decide.builders import placed, totals_of

from tdcs.decide.cache.wants import Want
from tdcs.decide.place.holdings import FAILURES_KEPT, away_text, failures, progress, source_is_away
from tdcs.model.agent_state import FailureCount, FileFailure, MountState, PartState

AWAY = FileFailure(path="", code="SourceAway", reason="it does not answer")


def test_a_changed_file_behind_many_denied_ones_has_the_source_listed() -> None:
    denied = tuple(FileFailure(path=f"{number:03}", code="Denied", reason="403") for number in range(50))
    state = MountState(
        mount="/m",
        failures={"Denied": FailureCount(files=900), "Changed": FailureCount(files=1)},
        failed=denied,
    )
    failed = failures({"n": state})
    assert (failed.count, len(failed.files), failed.outdated) == (901, FAILURES_KEPT, True)
    assert not any(file.code == "Changed" for file in failed.files)
    assert not failures({"n": MountState(mount="/m", failures={"Denied": FailureCount(files=1)})}).outdated


def test_a_node_that_does_not_reach_the_source_says_nothing_of_it_while_another_one_does() -> None:
    cut_off = MountState(mount="/m", source_away=True, failed=(AWAY,), busy=True)
    reads, rests = MountState(mount="/m", busy=True), MountState(mount="/m")
    assert source_is_away([cut_off, rests])
    assert not source_is_away([cut_off, reads])
    assert not source_is_away([rests])
    assert away_text({"a": reads, "b": cut_off}) == "it does not answer"
    assert "node b" in away_text({"b": MountState(mount="/m", source_away=True)})
    assert away_text({"a": reads}) == ""


def test_files_that_cannot_be_had_lack_in_the_share_unless_the_dataset_ignores_them() -> None:
    sizes = totals_of([100] * 10)
    for ignores, whole in ((False, 1_000), (True, 700)):
        (placement,) = placed(sizes, Want(key="x", mode="Replicate", nodes=("a",), ignores_failed=ignores))
        part = PartState(name="x", wanted_bytes=1_000, held_bytes=500, failed_bytes=300)
        state = MountState(mount="/m", manifest="d", parts=(part,))
        share = progress(placement=placement, manifest="d", states={"a": state}, informed={"a"})
        assert (share.counted_bytes, share.placed_bytes, share.missing_bytes) == (whole, 500, 200)
    assert int(np.sum(sizes.sizes)) == 1_000
