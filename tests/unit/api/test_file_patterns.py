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
