"""Whatever a file is called at its source: it is listed, loaded, and in a pod's volume under that name."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest
from tests.engine.views.viewing import Bench, native, sums_of
from tests.support.report import Measured
from tests.support.waiting import eventually_async

DIRECTORY_FILES = int(os.environ.get("TDCS_DIRECTORY_FILES", "3000"))
"""How many files the large directory has."""

NAMES = [
    "plain.jpg",
    "with space.jpg",
    " leading.jpg",
    "trailing.jpg ",
    "ünïcode-日本.jpg",
    "composed-é.jpg",
    "composed-e\u0301.jpg",
    "emoji-🐈.jpg",
    "what?.jpg",
    "?",
    "a?b=c&d?.jpg",
    "back\\slash.jpg",
    "ends\\",
    "\\?",
    "private-\uf03f\uf000\uf05c\ue03d\ue408.jpg",
    "a:b.jpg",
    "C:",
    "100%25.jpg",
    "%",
    "hash#tag.jpg",
    "a+b.jpg",
    "star*.jpg",
    "*",
    "[a-z]{b}.jpg",
    "quote'\"`.jpg",
    "<tag>|&;$HOME~!.jpg",
    "new\nline.jpg",
    "tab\there.jpg",
    ".hidden",
    "..twice",
    "dots...",
    "-dash",
    "=@,^.jpg",
    "comma,colon;.jpg",
    "x" * 255,
    "é" * 127 + "y",
    "?" * 255,
    "folder?with/question?.jpg",
    "folder-🐈/emoji-🐈🐕.jpg",
    "back\\folder/inside.jpg",
    "d:e/f g/%41+&=#.jpg",
    "**/star.jpg",
    "new\nfolder/file.jpg",
    "deep/" * 30 + "end.jpg",
]


@pytest.mark.parametrize("kind", ["s3", "file"])
async def test_every_name_is_listed_loaded_and_read_remotely_and_natively(
    bench: Bench, kind: str, tmp_path: Path
) -> None:
    files = {name: random.randbytes(random.randint(1, 3000)) for name in NAMES} | {"zero": b""}
    dataset = await (bench.mount(files) if kind == "s3" else bench.mount_folder(tmp_path / "source", files))

    manifest = bench.manifest(dataset)
    listed = [os.fsdecode(manifest.file_path(file)) for file in range(len(manifest))]
    assert sorted(listed) == sorted(dataset.sums)

    volume = await bench.publish(dataset)
    assert native(volume) == {"zero"}
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums  # remotely, from the source

    await bench.load(dataset)
    await eventually_async(lambda: native(volume) == set(dataset.sums), deadline=120)
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums


async def test_a_directory_of_many_files_is_shown_whole(
    bench: Bench, measured: Measured, tmp_path: Path
) -> None:
    files = {f"flat/{number:06}": b"%d" % number for number in range(DIRECTORY_FILES)}
    dataset = await bench.mount_folder(tmp_path / "source", files)
    begin = time.monotonic()
    await bench.load(dataset)
    loaded = time.monotonic()

    volume = await bench.publish(dataset)

    shown_at = time.monotonic()
    assert native(volume) == set(dataset.sums)
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    measured(
        f"a directory of {DIRECTORY_FILES} files: listed and loaded in {loaded - begin:.1f} s, shown in "
        f"{shown_at - loaded:.1f} s, read and checked in {time.monotonic() - shown_at:.1f} s"
    )
