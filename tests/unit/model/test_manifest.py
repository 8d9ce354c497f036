"""The manifest of a version: what it keeps, what it leaves out, when it changes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tdcs.model.block_identity import identity_of
from tdcs.model.file_blocks import Cut
from tdcs.model.file_ids import FileIds, known_tag
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_builder import AbandonedError, ManifestBuilder, own_block_after, own_block_id
from tdcs.model.manifest_format import ALIGNMENT, MAGIC, BadManifestError, decoded, encoded
from tdcs.model.near_path import NAMES_COMPARED
from tdcs.model.slots import slot_of
from tdcs.model.sorted_rows import Scratch

NAMES = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=20
).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
TREES = st.dictionaries(PATHS, st.integers(0, 30), max_size=25)
CUT = Cut(whole=9, block=7)

File = tuple[bytes, int, bytes]


def listed(path: str, length: int, *, tag: str = "") -> File:
    """A file as its source lists it."""
    return encoded(path), length, known_tag(tag).encode()


def builder_of(files: Iterable[File], *, cut: Cut = CUT, scratch: Scratch | None = None) -> ManifestBuilder:
    builder = ManifestBuilder(path="/datasets/1f", source="s3://bucket", cut=cut, scratch=scratch)
    builder.add_listed(files)
    return builder


def manifest_of(*files: File, cut: Cut = CUT) -> Manifest:
    return builder_of(files, cut=cut).manifest()


def tree_of(tree: dict[str, int]) -> list[File]:
    return [listed(path, length, tag=f'"{number}"') for number, (path, length) in enumerate(tree.items())]


def pieces(length: int, cut: Cut) -> list[int]:
    """Lengths of a file's blocks."""
    if 0 < length <= cut.whole:
        return [length]
    return [min(cut.block, length - offset) for offset in range(0, length, cut.block)]


def without_folders(paths: Iterable[str]) -> set[str]:
    """The paths that no other path has for a folder."""
    every = set(paths)
    return every - {path.rsplit("/", depth)[0] for path in every for depth in range(1, path.count("/") + 1)}


@settings(deadline=None)
@given(TREES, st.randoms())
def test_every_file_comes_back_whatever_the_order_of_the_listing(
    tree: dict[str, int], random: object
) -> None:
    files = tree_of(tree)
    manifest = manifest_of(*files)
    random.shuffle(files)  # type: ignore[attr-defined]
    paths = without_folders(tree)

    assert manifest_of(*files).digest == manifest.digest
    assert {decoded(manifest.file_path(file)) for file in range(len(manifest))} == paths
    assert manifest.header.skipped_count == len(tree) - len(paths)
    for number, (path, length) in enumerate(tree.items()):
        if path not in paths:
            continue
        file = manifest.file_at(path.encode())
        assert file is not None
        assert manifest.tag(file) == f'"{number}"'
        assert int(manifest.lengths[file]) == length
        blocks, lengths = manifest.blocks_of(file), pieces(length, CUT)
        assert [int(manifest.block_lengths[block]) for block in blocks] == lengths
        for index, block in enumerate(blocks):
            assert int(manifest.block_slots[block]) == slot_of(path.encode(), index)
            assert manifest.offset(block) == sum(lengths[:index])
            assert manifest.file_of(block) == file
            assert manifest.block_at(int(manifest.block_ids[block])) == block


@settings(deadline=None)
@given(TREES, st.builds(Cut, whole=st.integers(0, 30), block=st.integers(1, 30)))
def test_ids_of_later_blocks_follow_from_that_of_the_first_one_however_files_are_cut(
    tree: dict[str, int], cut: Cut
) -> None:
    manifest = manifest_of(*tree_of(tree), cut=cut)
    for file in range(len(manifest)):
        first = own_block_id(manifest.file_id(file), 0)
        ids = [int(manifest.block_ids[block]) for block in manifest.blocks_of(file)]
        assert len(ids) == len(pieces(int(manifest.lengths[file]), cut))
        assert ids == [own_block_after(first, number) for number in range(len(ids))]
        assert all(0 <= block_id < 1 << 63 for block_id in ids)


@settings(deadline=None)
@given(TREES, st.lists(PATHS, max_size=3))
def test_sums_agree_with_the_files_that_a_selection_names(tree: dict[str, int], more: list[str]) -> None:
    manifest = manifest_of(*tree_of(tree))
    files = without_folders(tree)
    paths = [*(path.rpartition("/")[0] for path in list(tree)[:2]), *list(tree)[2:4], *more]
    chosen = {
        path
        for path in files
        if not any(paths)
        or any(path == prefix or path.startswith(prefix + "/") for prefix in filter(None, paths))
    }

    totals = manifest.totals(paths)

    lengths = [length for path in chosen for length in pieces(tree[path], CUT)]
    assert (totals.files, totals.blocks, totals.block_bytes) == (len(chosen), len(lengths), sum(lengths))
    assert totals.largest_block == max(lengths, default=0)
    assert int(totals.sizes.sum()) == sum(lengths)
    assert int(totals.counts.sum()) == len(chosen)
    for path in chosen:
        if tree[path]:
            assert totals.sizes[slot_of(path.encode(), 0)] >= pieces(tree[path], CUT)[0]
            assert totals.counts[slot_of(path.encode(), 0)] >= 1


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("trayn", "train"),
        ("Train/images", "train/images"),
        ("train/image/a.jpg", "train/images/a.jpg"),
        ("train/images/b.jpg", "train/images/a.jpg"),
        ("validation", ""),
        ("x" * 4000, ""),
        ("READ.md", "README.md"),
    ],
)
def test_a_mistyped_path_has_the_nearest_one_that_there_is(path: str, nearest: str) -> None:
    manifest = manifest_of(listed("train/images/a.jpg", 1), listed("test/b", 2), listed("README.md", 3))
    assert manifest.totals([path]).near_paths == (nearest,)
    assert manifest.totals(["train"]).near_paths == ()


def test_the_nearest_path_is_searched_among_some_names_of_a_folder_only() -> None:
    files = sorted(f"{kind}{number:05}/x" for kind in "ab" for number in range(1000))
    manifest = manifest_of(*(listed(path, 1) for path in files))
    assert manifest.totals(["a00001x"]).near_paths == ("a00001",)
    assert len(manifest.names_in(0, most=NAMES_COMPARED)) == NAMES_COMPARED


def test_paths_that_name_nothing_are_told() -> None:
    manifest = manifest_of(listed("train/a", 1), listed("train-2/b", 2))

    totals = manifest.totals(["train", "/val/", "train/a"])

    assert (totals.files, totals.block_bytes) == (1, 1)
    assert totals.unknown_paths == ("val",)


def test_a_folder_is_selected_without_its_neighbours_of_a_similar_name() -> None:
    names = ["a", "a-b/x", "a/x", "a/b/c/x", "a b/x", "ab/x"]
    manifest = manifest_of(*(listed(f"top/{name}", 1) for name in names))

    chosen, _ = manifest.selected(["top/a"])

    assert {manifest.file_path(int(file)) for file in np.flatnonzero(chosen)} == {b"top/a/x", b"top/a/b/c/x"}


def test_parents_come_before_what_is_in_them() -> None:
    manifest = manifest_of(listed("x/y/z/f", 1), listed("x-1/f", 1), listed("f", 1))

    assert manifest.folders == [b"", b"x", b"x/y", b"x/y/z", b"x-1"]
    assert [manifest.entries(range(3)).__next__()] == [(0, b"", b"f")]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("a//b", "''"),
        ("a/", "''"),
        ("../a", "'..'"),
        ("a/./b", "'.'"),
        ("x" * 256, "255"),
        ("/".join(["y" * 200] * 21), "4000"),
        ("a\0b", "NUL"),
    ],
)
def test_entries_that_no_folder_can_hold_are_left_out_and_named(path: str, reason: str) -> None:
    manifest = manifest_of(listed("good", 1), listed(path, 1))

    assert len(manifest) == 1
    assert manifest.header.skipped_count == 1
    assert manifest.header.skipped[0].path == path.encode()
    assert reason in manifest.header.skipped[0].reason


def test_a_thousand_bad_names_are_counted_and_the_first_hundred_named() -> None:
    manifest = manifest_of(*(listed(f"bad//{number}", 1) for number in range(1000)))

    assert manifest.header.skipped_count == 1000
    assert len(manifest.header.skipped) == 100


def test_a_name_of_255_bytes_is_kept() -> None:
    assert len(manifest_of(listed("d/" + "x" * 255, 1))) == 1


def test_names_that_are_no_unicode_come_back_as_they_were() -> None:
    raw = b"d\xff/\xfe\x80.jpg"
    manifest = manifest_of(listed(raw.decode("utf-8", "surrogateescape"), 1))

    assert manifest.file_path(0) == raw
    assert manifest.file_at(raw) == 0


def test_of_two_files_of_one_name_the_later_one_counts() -> None:
    manifest = manifest_of(listed("b", 1), listed("a", 2), listed("b", 5))

    assert len(manifest) == 2
    assert manifest.lengths.tolist() == [2, 5]


def test_the_digest_changes_with_names_lengths_tags_and_blocks_alone() -> None:
    first = manifest_of(listed("a", 1), listed("b", 2))

    assert manifest_of(listed("b", 2), listed("a", 1)).digest == first.digest
    for manifest in (
        manifest_of(listed("a", 1)),
        manifest_of(listed("a", 1), listed("c", 2)),
        manifest_of(listed("a", 1), listed("b", 3)),
        manifest_of(listed("a", 1), listed("b", 2), cut=Cut(1, 1)),
        manifest_of(listed("a", 1, tag='"x"'), listed("b", 2)),
    ):
        assert manifest.digest != first.digest
    assert len(first.digest) == 32


def test_ids_that_are_unknown_have_no_block() -> None:
    manifest = manifest_of(listed("a", 1), listed("b", 1))
    first, second = manifest.block_ids.tolist()

    assert manifest.blocks_at(np.array([second, 6, first, -1, 2**62])).tolist() == [1, -1, 0, -1, -1]
    assert manifest_of().blocks_at(np.array([first])).tolist() == [-1]


def test_a_mount_without_files_has_a_manifest_too() -> None:
    manifest = manifest_of()

    assert len(manifest) == 0
    assert manifest.folders == [b""]
    assert manifest.totals().block_bytes == 0


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 2000), st.integers(0, 255))
@example(noise=b"", place=275, value=0)  # a column at the place of another one
def test_damaged_content_is_refused_and_never_read_beyond_its_end(
    noise: bytes, place: int, value: int
) -> None:
    content = bytearray()
    builder_of([listed("a/b", 1), listed("a/c", 11)]).finish(content.extend)
    for length in {0, 7, 15, 20, place % len(content), len(content) - 1}:
        with pytest.raises(BadManifestError):
            Manifest(bytes(content[:length]), digest="0")
    with pytest.raises(BadManifestError):
        Manifest(noise, digest="0")
    header = 16 + int.from_bytes(content[8:16], "little")
    content[place % header] = value
    try:
        manifest = Manifest(bytes(content), digest="0")
    except BadManifestError:
        return
    manifest.totals()


def test_a_header_with_fields_of_an_earlier_release_is_read() -> None:
    content = bytearray()
    digest = builder_of([listed("a/b", 1), listed("a/c", 11)]).finish(content.extend)
    begin = 16 + int.from_bytes(content[8:16], "little")
    header = msgspec.msgpack.decode(content[16:begin])
    first, more = min(place for place, _ in header["columns"].values()), 2 * ALIGNMENT
    header["columns"] = {name: (place + more, size) for name, (place, size) in header["columns"].items()}
    longer = msgspec.msgpack.encode({**header, "mount_id": 7, "incomplete": 0})
    before = MAGIC + len(longer).to_bytes(8, "little") + longer
    manifest = Manifest(before.ljust(first + more, b"\0") + content[first:], digest=digest)

    assert [manifest.file_path(file) for file in range(2)] == [b"a/b", b"a/c"]
    assert manifest.totals() == Manifest(bytes(content), digest=digest).totals()


def test_large_sums_are_exact() -> None:
    files = [listed(f"{number}", 2**50 + number) for number in range(5000)]
    manifest = manifest_of(*files, cut=Cut(1 << 51, 1 << 51))

    assert int(manifest.totals().sizes.sum()) == 5000 * 2**50 + sum(range(5000))


def ids_of(manifest: Manifest) -> dict[bytes, bytes]:
    return {manifest.file_path(file): manifest.file_id(file) for file in range(len(manifest))}


def test_a_file_keeps_its_id_until_its_path_length_or_tag_changes() -> None:
    before = ids_of(manifest_of(listed("a/x", 3, tag='"1"'), listed("b", 4, tag='"2"')))
    after = ids_of(
        manifest_of(
            listed("b", 4, tag='"2"'),
            listed("a/x", 3, tag='"3"'),
            listed("c", 4, tag='"2"'),
        )
    )

    assert after[b"b"] == before[b"b"]
    assert len({*before.values(), *after.values()}) == 4


def test_equal_files_of_two_sources_have_different_ids() -> None:
    ids = set()
    for path, source in (("/datasets/1f", "s3://b"), ("/datasets/2f", "s3://b"), ("/datasets/1f", "s3://c")):
        builder = ManifestBuilder(path=path, source=source)
        builder.add_listed([listed("a", 1, tag='"1"')])
        ids.add(builder.manifest().file_id(0))

    assert len(ids) == 3


def test_a_tag_and_a_path_are_never_taken_for_a_part_of_each_other() -> None:
    ids = ids_of(manifest_of(listed("bc", 1, tag="a"), listed("c", 1, tag="ab")))

    assert len(set(ids.values())) == 2


@settings(deadline=None)
@given(TREES, st.lists(st.binary(min_size=16, max_size=16), max_size=5))
def test_files_are_found_by_their_ids(tree: dict[str, int], others: list[bytes]) -> None:
    manifest = manifest_of(*tree_of(tree))
    ids = [manifest.file_id(file) for file in range(len(manifest))]
    # With zeros anywhere, as a value of texts would not tell them.
    others = [file_id for file_id in (*others, bytes(16), b"\x01" + bytes(15)) if file_id not in ids]
    file_ids = np.frombuffer(b"".join([*ids, *others]), dtype=np.uint8).reshape(-1, 16)

    assert manifest.files_at(file_ids).tolist() == [*range(len(manifest)), *([-1] * len(others))]
    assert all(manifest.file_with(file_id) == file for file, file_id in enumerate(ids))


def test_files_with_one_id_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = FileIds.of
    monkeypatch.setattr(
        FileIds,
        "of",
        lambda self, *, path, length, tag: (
            bytes(16) if path in (b"a/1", b"b") else real(self, path=path, length=length, tag=tag)
        ),
    )
    manifest = manifest_of(listed("a/1", 1), listed("b", 1), listed("c", 1))

    assert list(ids_of(manifest)) == [b"c"]
    assert {skip.path for skip in manifest.header.skipped} == {b"a/1", b"b"}
    assert manifest.file_with(bytes(16)) is None


def test_tags_that_differ_behind_their_128th_byte_are_different() -> None:
    first, second = (f'"{"x" * 200}-{number}"' for number in (1, 2))
    manifests = [manifest_of(listed("a", 1, tag=tag)) for tag in (first, second)]

    assert manifests[0].digest != manifests[1].digest
    assert manifests[0].file_id(0) != manifests[1].file_id(0)
    assert [manifest.tag(0) for manifest in manifests] == [known_tag(first), known_tag(second)]
    assert manifests[0].header.tag_width <= 128


def test_what_is_asked_of_one_file_or_block_copies_no_column() -> None:
    files = 50_000
    manifest = manifest_of(*(listed(f"n{n // 1000:02}/{n:05}", 5) for n in range(files)))
    identity = int(manifest.block_ids[files // 2])
    every: list[Callable[[], object]] = [
        lambda: manifest.file_of(files // 2),
        lambda: manifest.files_of(np.array([files // 2], dtype=np.int64)),
        lambda: manifest.file_path(files // 2),
        lambda: manifest.offset(files // 2),
        lambda: manifest.tag(files // 2),
        lambda: manifest.block_at(identity),
        lambda: manifest.blocks_at(np.array([identity, files * 3], dtype=np.int64)),
        lambda: identity_of(manifest, files // 2),
    ]
    for ask in every:
        ask()
    assert manifest.blocks_at(np.array([identity, files * 3], dtype=np.int64)).tolist() == [files // 2, -1]
    tracemalloc.start()
    try:
        for number, ask in enumerate(every):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            ask()
            assert tracemalloc.get_traced_memory()[1] - before < files, f"question {number}"
    finally:
        tracemalloc.stop()


@settings(max_examples=30)
@given(tree=TREES)
def test_blocks_are_found_by_their_ids_alone_and_together(tree: dict[str, int]) -> None:
    manifest = manifest_of(*tree_of({path: tree[path] for path in without_folders(tree)}))
    ids = sorted({*manifest.block_ids.tolist(), *range(-2, 40), 1 << 62})
    alone = [manifest.block_at(block_id) for block_id in ids]
    numbers = {block_id: number for number, block_id in enumerate(manifest.block_ids.tolist())}
    assert alone == [numbers.get(block_id) for block_id in ids]
    together = manifest.blocks_at(np.array(ids, dtype=np.int64)).tolist()
    assert together == [-1 if block is None else block for block in alone]
    files = [file for file in range(len(manifest)) for _ in manifest.blocks_of(file)]
    assert [manifest.file_of(block) for block in range(manifest.blocks)] == files
    assert manifest.files_of(np.arange(manifest.blocks)).tolist() == files


@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_a_builder_that_is_abandoned_ends_while_it_writes(pieces: int) -> None:
    builder = ManifestBuilder(path="/datasets/a", source="s3://a")
    builder.add_listed((b"%03d" % number, 5, b"") for number in range(100))
    written = 0

    def write(_: memoryview) -> None:
        nonlocal written
        written += 1
        if written == pieces:
            builder.abandon()

    if not pieces:
        builder.abandon()
    with pytest.raises(AbandonedError):
        builder.finish(write)
    assert written == pieces
