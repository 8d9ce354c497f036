"""Patterns of files in a Dataset's source: what is none is refused as any wrong field is."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tdcs.api.dataset_source import SourceSpec


def with_pattern(pattern: str) -> SourceSpec:
    return SourceSpec.model_validate({"uri": "s3://bucket/data", "exclude": [pattern]})


@pytest.mark.parametrize("pattern", ["[z-a]", "a[b-a]c", "\\"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match="is no pattern of gitignore"):
        with_pattern(pattern)


@pytest.mark.parametrize("pattern", ["[a-z]", "train/**/*.jpg", "!/keep/", "\\#recycle/", "@eaDir/"])
def test_a_pattern_is_taken_as_it_was_written(pattern: str) -> None:
    assert with_pattern(pattern).exclude == [pattern]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("*a*a*a*b", r"more than three \* between two slashes: write several patterns"),
        ("*a*a*a*a*a*a*a*ab", r"more than three \* between two slashes"),
        ("train/a**b**/x", r"more than three \* between two slashes"),
        ("**/a/**/a/**/a/**/b", r"more than three \*\*: write several patterns"),
    ],
)
def test_a_pattern_that_long_names_take_too_long_for_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        with_pattern(pattern)


@pytest.mark.parametrize("pattern", ["*a*b*", "*a*/*a*b*/*.jpg", "**/train/**/*.tar.*", "**/a/**/b/**"])
def test_a_pattern_of_few_stars_is_taken(pattern: str) -> None:
    assert with_pattern(pattern).exclude == [pattern]
