"""Conditions of a Dataset and its state."""

from dataclasses import replace

import pytest
from tests.unit.decide.builders import placement_of

from tdcs.api.conditions import Finding, finding
from tdcs.api.dataset import DatasetStatus
from tdcs.decide import dataset_conditions, dataset_status
from tdcs.decide.place.holdings import Failures, Holdings, WantProgress
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.model.agent_state import FileFailure

HELD = Holdings(
    total_bytes=3_000_000, total_files=30, cached_bytes=1_200_000, node_bytes={"a": 700_000, "b": 500_000}
)
PROGRESS = WantProgress(
    placed_bytes=1_200_000, wanted_bytes=3_000_000, copies=({"a": 700_000, "b": 500_000},)
)
URI = "s3://bucket/prefix"


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("EndpointLookup", "Pending"),
        ("EndpointUnknown", "Failed"),
        ("KeysUnchecked", "Pending"),
        ("SourceRefused", "Failed"),
    ],
)
def test_what_waits_for_an_answer_has_not_failed(reason: str, state: str) -> None:
    assert dataset_conditions.state_of(dataset_conditions.blocked(reason=reason, message="why")) == state


def test_progress_reads_like_a_sentence() -> None:
    ready = dataset_conditions.loading(progress=PROGRESS, uri=URI, placement=placement_of("a", "b"))[-1]
    assert ready.message == "1.1 MiB of 2.9 MiB on 2 nodes"
    assert dataset_conditions.state_of([ready]) == "Loading"


def test_a_load_that_the_source_gives_nothing_says_why() -> None:
    cause = "the source does not answer"
    ready = dataset_conditions.loading(progress=PROGRESS, uri=URI, placement=placement_of("a"), cause=cause)[
        -1
    ]
    assert ready.reason == "LoadFailed"
    assert "it is tried again: the source does not answer" in ready.message


def test_what_had_left_the_cache_stays_ready_while_it_is_loaded_again() -> None:
    findings = dataset_conditions.loading(
        progress=PROGRESS, uri=URI, placement=placement_of("a"), was_ready=True
    )
    by_type = {finding.type: finding for finding in findings}
    assert (by_type["Loaded"].status, by_type["Ready"].status) == ("False", "True")
    assert "its share of the cache" in by_type["Ready"].message
    assert dataset_conditions.state_of(findings) == "Loading"


def test_a_share_of_less_than_a_file_is_not_loaded() -> None:
    placement = replace(placement_of("a"), subset_bytes=0, wanted_bytes=0)
    findings = dataset_conditions.loaded(
        held=HELD, uri=URI, placement=placement, progress=WantProgress(copies=({"a": 0},))
    )
    by_type = {finding.type: finding for finding in findings}
    assert (by_type["Loaded"].status, by_type["Loaded"].reason) == ("False", "AmountTooSmall")


@pytest.mark.parametrize(
    ("placement", "reason", "state"),
    [
        (placement_of("a"), "Loaded", "Ready"),
        (placement_of("a", unplaced=9), "NotAllFits", "Degraded"),
        (placement_of("a", node_count=2, eligible=1), "TooFewNodes", "Degraded"),
        (placement_of("a", copies=2, eligible=1), "TooFewNodes", "Degraded"),
        (placement_of("a", nodes=("a", "gone")), "TooFewNodes", "Degraded"),
    ],
)
def test_loaded_means_all_that_was_asked_for(placement: WantPlacement, reason: str, state: str) -> None:
    findings = dataset_conditions.loaded(held=HELD, uri=URI, placement=placement, progress=PROGRESS)
    by_type = {finding.type: finding for finding in findings}
    assert (by_type["Loaded"].status, by_type["Ready"].status) == ("True", "True")
    assert by_type["Placed"].status == ("True" if state == "Ready" else "False")
    assert (findings[-1].reason, dataset_conditions.state_of(findings)) == (reason, state)


def test_a_selector_is_spoken_of_where_one_is_set() -> None:
    for selector in ({}, {"zone": "1"}):
        few = dataset_conditions.placed(placement_of("a", node_count=2, eligible=1, node_selector=selector))
        none = dataset_conditions.unplaced(uri=URI, selector=selector)[-1]
        assert few.reason == "TooFewNodes"
        assert none.message.startswith("no node has a live" if not selector else "no node with the labels of")
        for text in (few.message, none.message):
            assert ("elector" in text) is bool(selector)


def columns(*findings: Finding) -> tuple[str, str | None]:
    """The columns STATE and REASON."""
    state = dataset_conditions.state_of(list(findings))
    return state, dataset_conditions.reason_of(findings, state=state)


def test_people_see_next_to_the_state_why_it_is_not_simply_ready() -> None:
    loaded = dataset_conditions.loaded(held=HELD, uri=URI, placement=placement_of("a"), progress=PROGRESS)
    short = dataset_conditions.loaded(
        held=HELD, uri=URI, placement=placement_of("a", copies=2, eligible=1), progress=PROGRESS
    )
    loading = {"progress": PROGRESS, "uri": URI, "placement": placement_of("a")}
    refused = dataset_conditions.reachable(("SourceRefused", "why"))
    granted, no_room = (
        finding("Granted", is_true, reason) for is_true, reason in ((True, "Granted"), (False, "Full"))
    )
    assert columns(*loaded, dataset_conditions.reachable(), granted) == ("Ready", None)
    assert columns(*loaded, dataset_conditions.reachable(), no_room) == ("Ready", "Full")
    assert columns(*loaded, refused, no_room) == ("Degraded", "SourceRefused")
    assert columns(*short, dataset_conditions.reachable(), granted) == ("Degraded", "TooFewNodes")
    assert columns(*dataset_conditions.loading(**loading), refused) == ("Loading", None)  # type: ignore[arg-type]
    assert columns(*dataset_conditions.loading(**loading, cause="none")) == ("Failed", "LoadFailed")  # type: ignore[arg-type]
    assert columns(*dataset_conditions.mounting(URI)) == ("Mounting", None)
    assert columns(*dataset_conditions.blocked(reason="SecretNotFound", message="why")) == (
        "Failed",
        "SecretNotFound",
    )
    assert columns(*dataset_conditions.blocked(reason="CacheUnavailable", message="why")) == (
        "Pending",
        "CacheUnavailable",
    )


def test_a_source_that_is_out_of_reach_degrades_what_serves() -> None:
    loaded = dataset_conditions.loaded(held=HELD, uri=URI, placement=placement_of("a"), progress=PROGRESS)
    assert dataset_conditions.state_of([*loaded, dataset_conditions.reachable(("Gone", "why"))]) == "Degraded"


def test_files_that_cannot_be_had_leave_the_rest_ready() -> None:
    lacks = WantProgress(placed_bytes=8, wanted_bytes=8, failed_bytes=2, copies=({"a": 8},))
    failed = Failures(count=3, files=(FileFailure(path="bad", code="Unreadable", reason="it said 403"),))
    findings = dataset_conditions.loaded(
        held=HELD, uri=URI, placement=placement_of("a"), progress=lacks, failures=failed
    )
    by_type = {finding.type: finding for finding in findings}
    assert (by_type["Loaded"].status, by_type["Ready"].status) == ("False", "True")
    assert "2 bytes of 3 files cannot be had (bad: it said 403 and 1 more)" in by_type["Ready"].message
    assert dataset_conditions.state_of(findings) == "Degraded"
    status = dataset_status.with_data(DatasetStatus(), held=HELD, failures=failed)
    assert (status.failed_file_count, [file.path for file in status.failed_files]) == (3, ["bad"])
    endless = Failures(count=1, files=(FileFailure(path="bad", code="Unreadable", reason="r" * 32_000),))
    (file,) = dataset_status.with_data(DatasetStatus(), held=HELD, failures=endless).failed_files
    assert len(file.reason) == 1024
