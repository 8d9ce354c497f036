"""Rows that do not fit in memory come back in order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.model.test_manifest import TREES, builder_of, tree_of

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import Listed
from tdcs.listing.result import listed as listed_of
from tdcs.model import manifest as manifest_module
from tdcs.model import manifest_builder, manifest_columns, sorted_rows
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.model.sorted_rows import SortedRows


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**60)), max_size=60), st.integers(1, 70))
def test_rows_come_by_key_and_those_of_one_key_as_they_were_added(
    tmp_path: Path, given_rows: list[tuple[bytes, int]], stretch: int
) -> None:
    rows = SortedRows(ManifestFolder(tmp_path).scratch, stretch=stretch)
    for key, number in given_rows:
        rows.add((key, number, b"tag"))
    expected = sorted(given_rows, key=lambda row: row[0])
    for _ in range(2):  # they may be asked for again
        assert [(row[0], row[1]) for row in rows] == expected
    rows.close()


def test_nothing_stays_on_the_disk(tmp_path: Path) -> None:
    rows = SortedRows(ManifestFolder(tmp_path).scratch, stretch=2)
    for number in range(9):
        rows.add((bytes([number]), number, b""))
    assert list(tmp_path.iterdir()) == [], "the files have no names"
    assert len(list(rows)) == 9
    rows.close()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TREES, st.randoms())
def test_a_manifest_is_the_same_to_the_byte_whether_its_rows_were_spilled_or_not(
    tmp_path: Path, tree: dict[str, int], chance: random.Random
) -> None:
    files = tree_of(tree)
    plain = builder_of(files).manifest()
    chance.shuffle(files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_rows, "STRETCH", 3)
        patch.setattr(manifest_columns, "_IN_ORDER", 4)
        spilled = builder_of(files, scratch=ManifestFolder(tmp_path).scratch).manifest()
    assert [spilled.file_path(file) for file in range(len(spilled))] == [
        plain.file_path(file) for file in range(len(plain))
    ]
    assert spilled.digest == plain.digest or plain.header.skipped


def test_files_that_a_source_lists_have_blocks_of_their_own_ids() -> None:
    builder = ManifestBuilder(path="/datasets/1f", source="s3://bucket")
    gib = 1 << 30
    builder.add_listed([(b"a/large", 2 * gib + 5, b'"1"'), (b"empty", 0, b'"2"'), (b"a\x01b", 7, b'"3"')])
    manifest = builder.manifest()

    large = manifest.file_at(b"a/large")
    assert large is not None
    assert manifest.block_lengths[manifest.blocks_of(large)].tolist() == [gib, gib, 5]
    assert len(set(manifest.block_ids.tolist())) == 4
    assert (manifest.block_ids >= 0).all()
    assert manifest.blocks_at(manifest.block_ids).tolist() == [0, 1, 2, 3]
    assert manifest.file_at(b"a\x01b") is not None
    # The same file has the same blocks in the next version.
    builder = ManifestBuilder(path="/datasets/1f", source="s3://bucket")
    builder.add_listed([(b"new", 1, b'"9"'), (b"a/large", 2 * gib + 5, b'"1"')])
    after = builder.manifest()
    again = after.file_at(b"a/large")
    assert again is not None
    assert (
        after.block_ids[after.blocks_of(again)].tolist()
        == manifest.block_ids[manifest.blocks_of(large)].tolist()
    )


@settings(deadline=None)
@given(TREES)
def test_what_was_added_up_on_the_way_is_what_the_manifest_has(tree: dict[str, int]) -> None:
    builder = builder_of(tree_of(tree))
    manifest = builder.manifest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_module, "_STRETCH", 3)
        read = listed_of(manifest)
    assert Listed(digest=manifest.digest, **builder.summary._asdict()) == read


def test_files_with_one_block_id_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_builder, "own_block_id", lambda file_id, number: 5)
    builder = ManifestBuilder(path="/datasets/1f", source="s3://bucket")
    builder.add_listed([(b"a/1", 1, b""), (b"b", 2, b""), (b"empty", 0, b"")])
    manifest = builder.manifest()

    assert [manifest.file_path(file) for file in range(len(manifest))] == [b"empty"]
    assert {skip.path for skip in manifest.header.skipped} == {b"a/1", b"b"}


def test_a_name_behind_two_slashes_is_no_file_of_the_folder_before_them() -> None:
    builder = ManifestBuilder(path="/datasets/1f", source="s3://bucket")
    builder.add_listed([(b"/x", 1, b""), (b"a//x", 1, b""), (b"a/x", 1, b"")])
    manifest = builder.manifest()

    assert [manifest.file_path(file) for file in range(len(manifest))] == [b"a/x"]
    assert manifest.header.skipped_count == 2
