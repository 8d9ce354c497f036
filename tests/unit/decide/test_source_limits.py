"""How many files and bytes the source of a Dataset may have."""

from typing import Any

import pytest

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.decide.source_limits import MOST_FILES, listing_limit, manifest_bytes
from tdcs.model.listing_limit import LARGEST_MANIFEST, ListingLimit, SourcesSize


def spec(**limits: Any) -> CacheClusterSpec:
    return CacheClusterSpec.model_validate({"limits": limits})


def limit(*namespaces: SourcesSize, others: int = 0, **limits: Any) -> ListingLimit:
    return listing_limit(spec(**limits), cluster="default", others=others, namespaces=namespaces)


def test_without_limits_the_files_of_the_whole_cache_are_bounded_and_bytes_are_not() -> None:
    unlimited = limit()
    assert (unlimited.files, unlimited.bytes) == (MOST_FILES, None)
    assert unlimited.files_field == "what spec.limits.files of CacheCluster default leaves"


@pytest.mark.parametrize(("others", "files"), [(0, 100), (99, 1), (100, 0), (101, 0)])
def test_other_sources_leave_the_rest_of_the_caches_files_and_never_less_than_none(
    others: int, files: int
) -> None:
    assert limit(others=others, files=100).files == files


@pytest.mark.parametrize(
    ("limits", "files", "field"),
    [
        ({"files": 100, "filesPerDataset": 50}, 50, "spec.limits.filesPerDataset"),
        ({"files": 10, "filesPerDataset": 50}, 10, "what spec.limits.files "),
        ({"filesPerDataset": 50, "filesPerNamespace": 40}, 33, "what spec.limits.filesPerNamespace"),
        ({"filesPerDataset": 50, "filesPerNamespace": 60}, 50, "spec.limits.filesPerDataset"),
    ],
)
def test_the_lowest_limit_of_files_counts_and_is_named(
    limits: dict[str, int], files: int, field: str
) -> None:
    lowest = limit(SourcesSize(files=7), **limits)
    assert lowest.files == files
    assert lowest.files_field.startswith(field)


@pytest.mark.parametrize(
    ("limits", "size", "field"),
    [
        ({"bytesPerDataset": "1Ki"}, 1024, "spec.limits.bytesPerDataset"),
        ({"bytesPerDataset": "1Ki", "bytesPerNamespace": "1Ki"}, 24, "what spec.limits.bytesPerNamespace"),
        ({"bytesPerDataset": "1Ki", "bytesPerNamespace": 4000}, 1024, "spec.limits.bytesPerDataset"),
        ({"bytesPerNamespace": 999}, 0, "what spec.limits.bytesPerNamespace"),
    ],
)
def test_the_lowest_limit_of_bytes_counts_and_is_named(limits: dict[str, Any], size: int, field: str) -> None:
    lowest = limit(SourcesSize(bytes=1000), **limits)
    assert lowest.bytes == size
    assert lowest.bytes_field.startswith(field)


def test_the_namespace_with_the_most_left_counts() -> None:
    namespaces = [SourcesSize(files=90, bytes=10), SourcesSize(files=20, bytes=80)]
    shared = limit(*namespaces, filesPerNamespace=100, bytesPerNamespace=100)
    assert (shared.files, shared.bytes) == (80, 90)


def test_a_source_that_no_namespace_reads_yet_has_the_whole_limit() -> None:
    first = limit(filesPerNamespace=100, bytesPerNamespace=100)
    assert (first.files, first.bytes) == (100, 100)


def test_a_manifest_is_bounded_by_the_files_that_it_may_list_and_absolutely() -> None:
    per_file = manifest_bytes(spec(files=11)) - manifest_bytes(spec(files=10))
    assert per_file > 255  # a name
    assert manifest_bytes(spec(files=1000, filesPerDataset=10)) == manifest_bytes(spec(files=10))
    assert manifest_bytes(spec(files=10, filesPerDataset=1000)) == manifest_bytes(spec(files=10))
    assert manifest_bytes(spec()) == manifest_bytes(spec(files=MOST_FILES))
    assert manifest_bytes(spec(files=1_000_000_000)) == LARGEST_MANIFEST
