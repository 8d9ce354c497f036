"""Problems of engine calls as conditions of an object."""

from typing import Any

import pytest

from tdcs.decide.problem import (
    RETRY_LATER,
    RETRY_SELDOM,
    RETRY_SOON,
    Problem,
    of_disk,
    of_engine,
    refusal_of,
    without_mount_paths,
)
from tdcs.model.cache_engine import (
    ClaimError,
    EngineError,
    EngineUnavailableError,
    KeysRefusedError,
    LimitExceededError,
    MountConflictError,
    SourceError,
)

PATH = "/datasets/0123456789abcdef"


def error(kind: type[EngineError] = EngineError, **more: Any) -> EngineError:
    return kind(attempted=f"mount s3://b at {PATH}", reason="it said no", remedy="Ask again", **more)


@pytest.mark.parametrize(
    ("failure", "reason", "retry", "mounted"),
    [
        (error(EngineUnavailableError), "CacheUnavailable", RETRY_SOON, False),
        (error(SourceError), "SourceRefused", RETRY_LATER, False),
        (error(KeysRefusedError), "SourceRefused", RETRY_LATER, False),
        (error(LimitExceededError), "LimitExceeded", RETRY_SELDOM, True),
        (error(MountConflictError), "MountConflict", RETRY_LATER, False),
        (error(), "CacheError", RETRY_LATER, True),
        (error(retryable=True), "CacheError", RETRY_SOON, True),
    ],
)
def test_each_error_has_its_reason_and_its_time_to_try_again(
    failure: EngineError, reason: str, retry: float, mounted: bool
) -> None:
    problem = of_engine(failure, mounted=True)
    assert (problem.reason, problem.retry_after, problem.mounted) == (reason, retry, mounted)
    assert "it said no" in problem.message
    assert not of_engine(failure, mounted=False).mounted


def test_only_refused_keys_are_marked_as_such() -> None:
    assert of_engine(error(KeysRefusedError), mounted=True).keys_refused
    assert not of_engine(error(SourceError), mounted=True).keys_refused


def test_a_claim_says_its_own_reason_without_the_call() -> None:
    failure = error(ClaimError)
    failure.problem = "ClaimNotBound"  # type: ignore[attr-defined]
    problem = of_engine(failure, mounted=True)
    assert (problem.reason, problem.message, problem.retry_after) == (
        "ClaimNotBound",
        "it said no",
        RETRY_SOON,
    )


def test_no_message_names_a_mount_path() -> None:
    assert PATH not in of_engine(error(), mounted=True).message


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (f"mount s3://b at {PATH}: no", "mount s3://b: no"),
        (f"listing for {PATH} failed", "listing failed"),
        (f"{PATH} is gone", "the source is gone"),
        (f"unmount {PATH}", "unmount the source"),
        ("mount s3://b at /datasets/short", "mount s3://b at /datasets/short"),
        ("", ""),
    ],
)
def test_a_mount_path_is_left_out_or_called_the_source(text: str, plain: str) -> None:
    assert without_mount_paths(text) == plain


def test_a_full_disk_of_the_operator_is_named_with_the_file() -> None:
    problem = of_disk(OSError(28, "No space left on device", "/tmp/listing"))
    assert "No space left on device (/tmp/listing)" in problem.message
    assert (problem.reason, problem.mounted) == ("CacheError", True)
    assert "broken (no file)" in of_disk(OSError("broken")).message


def test_a_refusal_says_what_the_problem_of_the_source_says() -> None:
    problem = Problem(reason="SourceRefused", message="no", retry_after=7.0, keys_refused=True, uri="s3://b")
    refusal = refusal_of(problem, permanent=True)
    assert refusal.permanent
    assert not refusal_of(problem, permanent=False).permanent
    assert (refusal.reason, refusal.message, refusal.retry_after) == ("SourceRefused", "no", 7.0)
    assert (refusal.keys_refused, refusal.uri) == (True, "s3://b")
