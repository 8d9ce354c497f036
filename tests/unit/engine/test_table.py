"""A packed listing gives back what was put in, and is small."""

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.engine.protocol import Block, CachedFile
from tdcs.engine.table import BlockTable

names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


def file(
    path: str, *, lengths: list[int], origin: str, mount: int, holders: list[frozenset[str]]
) -> CachedFile:
    offsets = [sum(lengths[:index]) for index in range(len(lengths))]
    return CachedFile(
        path=path,
        length=sum(lengths),
        blocks=tuple(
            Block(
                id=hash((path, offset)) % 2**62,
                length=length,
                offset=offset,
                source_path=f"{origin}{path}",
                mount_id=mount,
                workers=holders[index % len(holders)] if holders else frozenset(),
            )
            for index, (offset, length) in enumerate(zip(offsets, lengths, strict=True))
        ),
    )


@settings(deadline=None)
@given(
    files=st.lists(
        st.builds(
            file,
            path=st.lists(names, min_size=1, max_size=3).map("/".join),
            lengths=st.lists(st.integers(1, 2**40), max_size=4),
            origin=st.sampled_from(["s3://b/", "s3://b/deep/", "file:///x/"]),
            mount=st.integers(1, 3),
            holders=st.lists(st.frozensets(st.sampled_from("abc")), max_size=3),
        ),
        max_size=12,
    ),
    cut=st.integers(0, 12),
)
def test_every_block_and_path_comes_back_as_it_was(files: list[CachedFile], cut: int) -> None:
    table = BlockTable()
    table.add(files[:cut])
    table.add(files[cut:])
    assert [table.path(number) for number in range(table.files)] == [file.path for file in files]
    assert [table.size(number) for number in range(table.files)] == [file.length for file in files]
    assert table.blocks(range(len(table))) == [block for file in files for block in file.blocks]
    number = 0
    for index, each in enumerate(files):
        assert list(table.blocks_of(index)) == list(range(number, number + len(each.blocks)))
        for block in each.blocks:
            assert table.file_of(number) == index
            assert table.key(number) == f"{each.path}@{block.offset}"
            assert (table.length(number), table.holders(number)) == (block.length, block.workers)
            number += 1


def test_a_hundred_thousand_files_take_less_than_twelve_megabytes() -> None:
    tracemalloc.start()
    try:
        table = BlockTable()
        for page in range(100):
            table.add(
                [
                    file(
                        f"train/n{page:08d}/n{page:08d}_{number:06d}.JPEG",
                        lengths=[100_000 + number],
                        origin="s3://imagenet/",
                        mount=7,
                        holders=[frozenset({"a", "b"})],
                    )
                    for number in range(1000)
                ]
            )
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table) == 100_000
    assert used < 12 << 20, used


def test_the_version_changes_with_files_and_contents_and_not_with_copies() -> None:
    def version(*files: CachedFile) -> str:
        table = BlockTable()
        table.add(files)
        return table.version()

    def one(path: str, *, number: int, length: int = 5, holders: tuple[str, ...] = ()) -> CachedFile:
        block = Block(
            id=number, length=length, offset=0, source_path=path, mount_id=1, workers=frozenset(holders)
        )
        return CachedFile(path=path, length=length, blocks=(block,))

    first = version(one("a", number=1), one("b", number=2))
    assert version(one("a", number=1, holders=("x",)), one("b", number=2)) == first
    others = {
        version(one("a", number=1)),
        version(one("a", number=1), one("b", number=3)),
        version(one("a", number=1), one("b", number=2, length=6)),
        version(one("a", number=1), one("c", number=2)),
        version(one("a", number=1), one("b", number=2), one("c", number=3)),
        version(one("ab", number=1), one("", number=2)),
    }
    assert len(others | {first}) == 7
