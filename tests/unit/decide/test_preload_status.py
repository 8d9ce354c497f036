"""State of a Preload, and what its status counts."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide.builders import placement_of

from tdcs.api.preload import PreloadStatus
from tdcs.decide.place.copy_nodes import Mode
from tdcs.decide.place.holdings import Failures, WantProgress
from tdcs.decide.preload_status import (
    PreloadView,
    conclude,
    ended_seconds,
    findings_of,
    progress,
    status_of,
    wrong_files,
)
from tdcs.model.agent_state import CheckState, FileFailure


@pytest.mark.parametrize(
    ("mode", "copies", "node_count", "total"),
    [
        (Mode.PARTITION, 9, 1, 90),  # nine copies, one of which has nodes
        (Mode.REPLICATE, 1, 4, 40),  # four nodes with all of it
        (Mode.PARTITION, 1, 4, 10),  # one copy, whatever number of nodes it is spread over
    ],
)
def test_copies_without_nodes_count_among_what_was_asked_for(
    mode: Mode, copies: int, node_count: int, total: int
) -> None:
    placement = placement_of("a", copies=copies, node_count=node_count, eligible=1)
    placement = replace(placement, copies=tuple(replace(copy, mode=mode) for copy in placement.copies))
    loaded = view(placement=placement)
    conclusion = conclude(loaded)
    assert (conclusion.state, conclusion.reason) == ("Failed", "TooFewNodes")
    status = status_of(loaded, conclusion=conclusion, now=NOW)
    assert (status.bytes_done, status.bytes_total) == (10, total)


NOW = "2030-01-01T00:00:00Z"
DONE = WantProgress(placed_bytes=10, wanted_bytes=10, copies=({"a": 10},))
HALF = WantProgress(placed_bytes=5, wanted_bytes=10, copies=({"a": 5},))
STUCK = WantProgress(placed_bytes=8, wanted_bytes=10, failed_bytes=2, copies=({"a": 8},))
BAD = Failures(count=1, files=(FileFailure(path="bad", code="Unreadable", reason="it said 403"),))


def view(**changes: Any) -> PreloadView:
    """A Preload all of which is on its node."""
    fields = {"known": PreloadStatus(), "placement": placement_of("a"), "progress": DONE, "assigned": True}
    return PreloadView(**{**fields, **changes})


def compared(*wrong: FileFailure, done: bool = True) -> dict[str, CheckState]:
    return {"a": CheckState(id="1", done=done, bytes=10, wrong=wrong, wrong_count=len(wrong))}


VERIFIED = placement_of("a", verify="Checksum")
WRONG = FileFailure(path="x", code="Wrong", reason="differs")


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        pytest.param({}, "Complete", "Complete", id="all is there"),
        pytest.param({"progress": HALF}, "Loading", "Loading", id="half is there"),
        pytest.param({"assigned": False}, "Loading", "Loading", id="agents work by an older plan"),
        pytest.param({"placement": None}, "Pending", "Planning", id="not planned"),
        pytest.param(
            {"placement": replace(placement_of(), copies=())}, "Pending", "NoCacheNode", id="no node"
        ),
        pytest.param({"suspended": True, "starts_in": 9.0}, "Suspended", "Suspended", id="suspended"),
        pytest.param(
            {"starts_in": 1.0, "waiting": ("X", "x")}, "Scheduled", "Scheduled", id="its time is to come"
        ),
        pytest.param({"waiting": ("NoRoom", "full")}, "Pending", "NoRoom", id="it waits"),
        pytest.param({"progress": STUCK, "failures": BAD}, "Loading", "LoadFailed", id="a file fails"),
        pytest.param(
            {"progress": STUCK, "failures": BAD, "gives_up": True},
            "Failed",
            "LoadFailed",
            id="for long enough",
        ),
        pytest.param(
            {"progress": STUCK, "gives_up": True, "away": "gone"},
            "Loading",
            "LoadFailed",
            id="the source is away",
        ),
        pytest.param({"placement": VERIFIED}, "Verifying", "Verifying", id="not compared"),
        pytest.param(
            {"placement": VERIFIED, "checks": compared(done=False)},
            "Verifying",
            "Verifying",
            id="half compared",
        ),
        pytest.param({"placement": VERIFIED, "checks": compared()}, "Complete", "Complete", id="compared"),
        pytest.param(
            {"placement": VERIFIED, "checks": compared(WRONG)}, "Failed", "VerifyFailed", id="a file differs"
        ),
        pytest.param(
            {"progress": STUCK, "checks": compared(WRONG)},
            "Failed",
            "VerifyFailed",
            id="a file differed and failed",
        ),
    ],
)
def test_the_state_of_a_preload(changes: dict[str, Any], state: str, reason: str) -> None:
    conclusion = conclude(view(**changes))
    assert (conclusion.state, conclusion.reason) == (state, reason)
    true = {found.type for found in findings_of(conclusion) if found.status == "True"}
    assert true == {state} & {"Complete", "Failed", "Suspended"}


def test_a_file_that_could_not_be_compared_is_told_from_one_that_differs() -> None:
    unread = FileFailure(path="x", code="Unreadable", reason="403")
    message = conclude(view(placement=VERIFIED, checks=compared(unread))).message
    assert "1 file could not be compared with the source on a: x (403)" in message
    assert (
        "differed from the source on a" in conclude(view(placement=VERIFIED, checks=compared(WRONG))).message
    )


def test_a_file_that_is_wrong_on_two_nodes_is_named_once_and_counted_twice() -> None:
    wrong = wrong_files(view(checks={name: compared(WRONG)["a"] for name in "ab"}))
    assert (wrong.count, [file.path for file in wrong.files]) == (2, ["x"])


@pytest.mark.parametrize(
    ("nodes", "unknown", "words"),
    [
        ((), (), "no node that its Dataset may use (spec.placement.nodeSelector)"),
        (("a",), (), "a of spec.nodes has no live cache worker"),
        (("a", "b"), (), "a, b of spec.nodes have no live cache worker"),
        (("a", "z"), ("z",), "a of spec.nodes has no live cache worker"),
        (("z",), ("z",), "there is no node z, which spec.nodes names"),
    ],
)
def test_a_preload_without_a_node_says_which_of_its_nodes_are_missing(
    nodes: tuple[str, ...], unknown: tuple[str, ...], words: str
) -> None:
    nowhere = replace(placement_of(nodes=nodes), copies=())
    assert conclude(view(placement=nowhere, unknown_nodes=unknown)).message.startswith(words)


@pytest.mark.parametrize(
    ("done", "total", "state", "text"),
    [
        (0, 0, "Loading", None),
        (0, 0, "Complete", "100%"),
        (5, 10, "Loading", "50%"),
        (10, 10, "Pending", None),
        (9, 10, "Pending", "90%"),
        (10, 10, "Complete", "100%"),
        (100, 100, "Failed", "99%"),
        (5, 10, "Failed", "50%"),
    ],
)
def test_only_an_end_looks_like_one(done: int, total: int, state: Any, text: str | None) -> None:
    assert progress(done=done, total=total, state=state) == text


def test_times_are_set_at_the_begin_and_at_the_end_and_stay() -> None:
    def status(known: PreloadStatus, **changes: Any) -> PreloadStatus:
        now_view = view(known=known, **changes)
        return status_of(now_view, conclusion=conclude(now_view), now=NOW)

    waits = status(PreloadStatus(), waiting=("X", "x"))
    assert (waits.start_time, waits.completion_time) == (None, None)
    loads = status(waits, progress=HALF)
    assert (loads.start_time, loads.completion_time, loads.dataset_uid) == (NOW, None, "")
    early = loads.model_copy(update={"start_time": "2029-01-01T00:00:00Z"})
    ended = status(early, uid="u", generation=3)
    assert (ended.start_time, ended.completion_time) == ("2029-01-01T00:00:00Z", NOW)
    assert (ended.dataset_uid, ended.dataset_generation) == ("u", 3)
    failed = status(early, progress=STUCK, failures=BAD, gives_up=True, uid="u", generation=3)
    assert (failed.dataset_uid, failed.dataset_generation) == ("u", 0)
    assert [file.path for file in failed.failed_files] == ["bad"]


def test_without_a_plan_the_last_counts_stay() -> None:
    known = PreloadStatus(bytes_done=5, bytes_total=10)
    planning = view(known=known, placement=None, progress=WantProgress())
    status = status_of(planning, conclusion=conclude(planning), now=NOW)
    assert (status.state, status.bytes_done, status.bytes_total, status.progress) == ("Pending", 5, 10, "50%")


def test_seconds_run_from_the_end() -> None:
    assert ended_seconds(PreloadStatus(), now=NOW) == 0.0
    assert ended_seconds(PreloadStatus(completion_time="2029-12-31T23:59:00Z"), now=NOW) == 60.0
