"""The manifest of a version: what it keeps, what it leaves out, when it changes."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.csi.views.builders import PATH, listed, manifest_of

from tdcs.csi.views.freshen import changed_files
from tdcs.csi.views.manifest import BadManifestError, Builder, Kind, decode

NAMES = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=20
).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


def test_files_are_found_with_their_folder_whatever_the_order_of_the_listing() -> None:
    manifest = manifest_of(
        listed("val/b", 1, first_block=5),
        listed("a", 2, first_block=3),
        listed("train/x/c", 3, first_block=9),
    )

    entries = {folder + b"/" + name: index for index, folder, name in manifest.entries(range(3))}

    assert set(entries) == {b"/a", b"train/x/c", b"val/b"}
    assert manifest.index_of_block(9) == entries[b"train/x/c"]
    assert manifest.index_of_block(4) is None
    assert manifest.folders == [b"", b"train", b"train/x", b"val"]


@pytest.mark.parametrize(("lengths", "kind"), [((), Kind.EMPTY), ((5,), Kind.BLOCK), ((5, 3), Kind.PARTS)])
def test_what_a_file_can_be_follows_from_its_blocks(lengths: tuple[int, ...], kind: Kind) -> None:
    assert manifest_of(listed("f", *lengths)).kinds[0] == kind


@given(st.sets(PATHS, max_size=30))
def test_every_name_that_a_folder_can_hold_comes_back_from_the_disk(paths: set[str]) -> None:
    built = manifest_of(*(listed(path, 1, first_block=number) for number, path in enumerate(sorted(paths))))

    manifest = decode(built.encode())

    joined = {
        (folder + b"/" + name).lstrip(b"/") for _, folder, name in manifest.entries(range(len(manifest)))
    }
    folders = {path.rsplit("/", depth)[0] for path in paths for depth in range(1, path.count("/") + 1)}
    assert joined == {path.encode() for path in paths - folders}
    assert manifest.version == built.version
    assert manifest.skipped == len(paths & folders)


@pytest.mark.parametrize("path", ["a//b", "a/", "../a", "a/./b", "x" * 256, "/".join(["y" * 200] * 21)])
def test_entries_that_no_folder_can_hold_are_counted_and_left_out(path: str) -> None:
    manifest = manifest_of(listed("good", 1), listed(path, 1, first_block=2))

    assert len(manifest) == 1
    assert manifest.skipped == 1


def test_a_name_of_255_bytes_is_kept() -> None:
    assert len(manifest_of(listed("d/" + "x" * 255, 1))) == 1


def test_the_version_changes_with_names_lengths_and_contents_alone() -> None:
    first = manifest_of(listed("a", 1, first_block=1), listed("b", 2, first_block=2))

    assert manifest_of(listed("b", 2, first_block=2), listed("a", 1, first_block=1)).version == first.version
    for other in (
        manifest_of(listed("a", 1, first_block=1)),
        manifest_of(listed("a", 1, first_block=7), listed("b", 2, first_block=2)),
        manifest_of(listed("a", 1, first_block=1), listed("c", 2, first_block=2)),
        manifest_of(listed("a", 1, first_block=1), listed("b", 1, 1, first_block=2)),
    ):
        assert other.version != first.version


@pytest.mark.parametrize(
    ("paths", "folder"),
    [
        (["a", "b"], b""),
        (["0/x.jpg", "1/x.jpg"], b"0"),
        (["README", "0/x.jpg", "1/x.jpg"], b"0"),
        (["README", "train/labels", "train/0/x.jpg"], b"train/0"),
        ([".tdcs/x"], None),
        ([".tdcs"], None),
        ([".tdcs", "0/x"], b"0"),
        (["0/.tdcs", "1/x"], b"1"),
        (["0/.tdcs/x", "1/x"], b"1"),
    ],
)
def test_the_way_begins_where_no_program_takes_it_for_data(paths: list[str], folder: bytes | None) -> None:
    assert manifest_of(*(listed(path, 1) for path in paths)).way_folder == folder


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x80"])
def test_a_damaged_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(BadManifestError):
        decode(content)


def test_a_large_manifest_is_read_back_at_once() -> None:
    builder = Builder(path=PATH)
    builder.add(
        listed(f"train/n{number % 100:05}/{number}.jpg", 9, first_block=number) for number in range(50_000)
    )
    content = builder.finish().encode()

    begin = time.process_time()
    manifest = decode(content)

    assert len(manifest) == 50_000
    assert len(content) < 50_000 * 64
    assert time.process_time() - begin < 2


def test_files_that_are_gone_or_have_another_content_are_told_from_those_that_are_new_or_the_same() -> None:
    old = manifest_of(
        listed("same", 1, first_block=1),
        listed("d/changed", 1, first_block=2),
        listed("gone", 1, first_block=3),
    )
    new = manifest_of(
        listed("same", 1, first_block=1),
        listed("d/changed", 2, first_block=9),
        listed("new", 1, first_block=8),
        listed("d/parts", 1, 1, first_block=20),
    )
    newer = manifest_of(listed("d/parts", 1, 1, first_block=30))

    assert list(changed_files(old=old, new=new)) == [b"gone", b"d/changed"]
    assert list(changed_files(old=new, new=newer)) == [b"new", b"same", b"d/changed", b"d/parts"]
    assert list(changed_files(old=new, new=new)) == []
