"""The loader: what it gives, in what order and memory, and what it says of the time."""

import io
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

from tdcs_train.errors import InputError
from tdcs_train.loader import Loader, Sample, decode_image, find_images
from tdcs_train.loader.files import read_file
from tdcs_train.loader.stages import put_image

SHAPE = (8, 8, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """30 grey PNG files in three classes; the grey value of a file is 8 times its number."""
    for number in range(30):
        place = tmp_path / f"class{number % 3}"
        place.mkdir(exist_ok=True)
        Image.new("L", (16, 16), 8 * number).save(place / f"{number:02}.png")
    return tmp_path


def contents(loader: Loader, epoch: int) -> list[tuple[int, int]]:
    """The (file number, label) pairs of an epoch, in order."""
    samples_of_epoch = []
    for batch in loader.epoch(epoch):
        assert batch.images.shape[1:] == SHAPE
        samples_of_epoch += [
            (int(image[0, 0, 0]) // 8, int(label))
            for image, label in zip(batch.images, batch.labels, strict=True)
        ]
    return samples_of_epoch


def test_an_epoch_has_every_sample_once_with_its_label(folder: Path) -> None:
    samples, classes = find_images(folder)
    assert classes == ["class0", "class1", "class2"]
    samples_of_epoch = contents(Loader(samples, batch=4, shape=SHAPE, drop_last=False), 0)
    assert sorted(samples_of_epoch) == [(number, number % 3) for number in range(30)]


@pytest.mark.parametrize("processes", [True, False])
def test_an_epoch_is_refused_while_another_is_open_and_taken_afterwards(
    folder: Path, processes: bool
) -> None:
    samples, _ = find_images(folder)
    loader = Loader(samples, batch=4, shape=SHAPE, processes=processes)
    first = loader.epoch(1)
    batch = next(first)
    held = batch.images.copy()
    with pytest.raises(InputError, match="epoch 2 cannot begin while another epoch of this loader is open"):
        next(loader.epoch(2))
    assert (batch.images == held).all()
    first.close()
    assert len(contents(loader, 2)) == 28
    for _ in loader.epoch(3):
        break  # the end of a loop that is left early closes its iterator
    assert len(contents(loader, 4)) == 28
    loader.close()


def test_the_order_follows_from_seed_and_epoch_alone(folder: Path) -> None:
    samples, _ = find_images(folder)
    first = contents(Loader(samples, batch=5, shape=SHAPE, seed=1), 0)
    assert contents(Loader(samples, batch=3, shape=SHAPE, seed=1, readers=7, decoders=3), 0) == first
    assert contents(Loader(samples, batch=5, shape=SHAPE, seed=1), 1) != first
    assert contents(Loader(samples, batch=5, shape=SHAPE, seed=2), 0) != first


def test_workers_share_an_epoch_without_overlap_and_equally(folder: Path) -> None:
    samples, _ = find_images(folder)
    shares = [
        contents(Loader(samples, batch=2, shape=SHAPE, rank=rank, world_size=4, drop_last=False), 3)
        for rank in range(4)
    ]
    assert [len(share) for share in shares] == [7, 7, 7, 7]
    assert len({sample for share in shares for sample in share}) == 28


@pytest.mark.parametrize("batch", [4, 6, 7, 12, 16])
@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_the_size_of_chunks_changes_nothing_but_the_cost(folder: Path, batch: int, chunk: int) -> None:
    samples, _ = find_images(folder)
    loader = Loader(samples, batch=batch, shape=SHAPE, chunk=chunk, drop_last=False, processes=False)
    whole = Loader(samples, batch=30, shape=SHAPE, chunk=1, processes=False)
    assert contents(loader, 1) == contents(whole, 1)
    dropping = Loader(samples, batch=batch, shape=SHAPE, chunk=chunk, processes=False)
    assert contents(dropping, 1) == contents(whole, 1)[: 30 // batch * batch]


@pytest.mark.parametrize(("drop", "sizes"), [(True, [8, 8, 8]), (False, [8, 8, 8, 6])])
def test_an_incomplete_last_batch_is_dropped_or_kept(folder: Path, drop: bool, sizes: list[int]) -> None:
    samples, _ = find_images(folder)
    loader = Loader(samples, batch=8, shape=SHAPE, drop_last=drop)
    assert len(loader) == len(sizes)
    assert [len(batch.images) for batch in loader.epoch(0)] == sizes


def test_a_training_loop_that_stops_early_leaves_no_thread_behind(folder: Path) -> None:
    samples, _ = find_images(folder)
    loader = Loader(samples, batch=2, shape=SHAPE)
    before = threading.active_count()
    for _ in range(3):
        batches = loader.epoch(0)
        next(batches)
        batches.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Slowed:
    """A stage that takes 20 ms longer, and adds up how long it really took: a busy machine wakes sleepers late."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0
        self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        begin = time.monotonic()
        time.sleep(0.02)
        result = self.function(*arguments, **named)
        self.seconds += time.monotonic() - begin
        self.calls += 1
        return result


@pytest.mark.parametrize("stage", ["read", "decode", "batch", "train"])
def test_20_ms_put_into_a_stage_are_reported_as_that_stages_time(folder: Path, stage: str) -> None:
    samples, _ = find_images(folder)
    functions: dict[str, Callable[..., Any]] = {"read": read_file, "decode": decode_image, "batch": put_image}
    slow = Slowed(functions.get(stage, lambda: None))
    slow_parts = {"read": {"read": slow}, "decode": {"decode": slow}, "batch": {"put": slow}}.get(stage, {})
    loader = Loader(samples, batch=3, shape=SHAPE, readers=1, decoders=1, processes=False, **slow_parts)  # type: ignore[arg-type]
    # On a machine with much other work threads wait to be woken, for milliseconds: of three epochs the calmest counts.
    calmest, report = float("inf"), None
    for epoch in range(3):
        slow.seconds, slow.calls = 0.0, 0
        for _ in loader.epoch(epoch):
            if stage == "train":
                slow()
        assert loader.report is not None
        assert loader.report.bottleneck == stage
        assert slow.calls == (10 if stage == "train" else 30)
        error = abs(loader.report.seconds_by_stage[stage] / slow.seconds - 1)
        if error < calmest:
            calmest, report = error, loader.report
    assert report is not None
    assert calmest <= 0.10
    assert sum(report.seconds_by_stage.values()) == pytest.approx(report.seconds, rel=0.01)
    if stage == "train":
        assert report.stall_share < 0.3
    else:
        assert report.stall_share > 0.8
        assert report.stall_by_cause[stage] > 0.8


def test_records_of_acts_do_not_grow_with_the_epoch(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.new("L", (8, 8), 7).save(content, "png")
    (tmp_path / "one.png").write_bytes(content.getvalue())
    samples = [Sample(str(tmp_path / "one.png"), 0)] * 1200
    loader = Loader(samples, batch=2, shape=SHAPE)
    assert sum(len(batch.images) for batch in loader.epoch(0)) == 1200
    assert loader.report is not None
    assert sum(loader.report.seconds_by_stage.values()) == pytest.approx(loader.report.seconds, rel=0.02)


MEMORY = """
import io, re, sys, time
from pathlib import Path
import numpy
from PIL import Image
from tdcs_train.loader import Loader, Sample

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024

path = Path(sys.argv[1]) / "noise.jpg"
Image.fromarray(numpy.random.default_rng(0).integers(0, 255, (256, 256, 3), dtype=numpy.uint8)).save(path)
small = Loader([Sample(str(path), 0)] * 8, batch=4, shape=(256, 256, 3), max_file_bytes=1 << 18)
list(small.epoch(0))  # the decoder's own memory
before = peak()
options = dict(batch=64, shape=(256, 256, 3), prefetch=3, max_file_bytes=1 << 18, chunk=int(sys.argv[2]))
loader = Loader([Sample(str(path), 0)] * 600, **options)
for batch in loader.epoch(0):
    time.sleep(0.05)
print(loader.memory_bytes, peak() - before)
"""


@pytest.mark.parametrize("chunk", [1, 8])
def test_the_memory_of_a_loader_is_that_of_its_registers(chunk: int, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path, str(chunk)], capture_output=True, text=True, check=True
    )
    planned, peak = map(int, result.stdout.split())
    batches, image = 4 * 64 * 256 * 256 * 3, 256 * 256 * 3
    stages = chunk * (6 * (1 << 18) + 4 * image)  # files of 4 readers and 2 decoders, images of 2 decoders
    assert batches + stages <= planned < 1.01 * (batches + stages)
    assert peak <= 1.1 * planned


def test_a_file_that_is_no_image_is_named(folder: Path) -> None:
    (folder / "class1" / "broken.png").write_bytes(b"\x89PNG but no more")
    samples, _ = find_images(folder)
    with pytest.raises(
        InputError, match=r"class1/broken.png is no image that can be decoded: its format is not known"
    ):
        contents(Loader(samples, batch=2, shape=SHAPE, drop_last=False), 0)


def test_a_file_that_is_gone_or_too_large_is_named(folder: Path) -> None:
    samples, _ = find_images(folder)
    with_missing = [*samples, Sample(str(folder / "class1" / "gone.png"), 1)]
    with pytest.raises(InputError, match=r"gone.png cannot be read: No such file"):
        contents(Loader(with_missing, batch=31, shape=SHAPE), 0)
    with pytest.raises(InputError, match=r"is larger than 50 bytes; give the loader a larger max_file_bytes"):
        contents(Loader(samples, batch=3, shape=SHAPE, max_file_bytes=50), 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": 31}, "there is no batch of 31 for a worker"),
        ({"readers": 0}, "readers is 0"),
        ({"chunk": 0}, "chunk is 0"),
        ({"rank": 2, "world_size": 2}, "rank 2 is not below world_size 2"),
    ],
)
def test_a_loader_that_could_give_nothing_is_refused(
    folder: Path, arguments: dict[str, int], message: str
) -> None:
    samples, _ = find_images(folder)
    with pytest.raises(InputError, match=re.escape(message)):
        Loader(samples, **{"batch": 2, "shape": SHAPE, **arguments})  # type: ignore[arg-type]


def test_a_folder_without_images_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no image"):
        find_images(tmp_path)
    with pytest.raises(InputError, match="cannot be listed: No such file"):
        find_images(tmp_path / "none")


def test_an_image_is_resized_to_the_wanted_shape() -> None:
    content = io.BytesIO()
    Image.new("RGB", (40, 20), (200, 100, 50)).save(content, "png")
    target = numpy.zeros((10, 10, 3), dtype=numpy.uint8)
    decode_image(memoryview(content.getvalue()), target, path="x.png")
    assert (target == numpy.array([200, 100, 50])).all()


@pytest.mark.parametrize("processes", [True, False])
def test_decoders_are_processes_or_threads_with_equal_results(folder: Path, processes: bool) -> None:
    samples, _ = find_images(folder)
    loader = Loader(samples, batch=4, shape=SHAPE, decoders=3, processes=processes)
    first = [contents(loader, epoch) for epoch in range(2)]
    loader.close()
    again = Loader(samples, batch=4, shape=SHAPE, processes=not processes)
    assert first == [contents(again, epoch) for epoch in range(2)]
    again.close()


def test_a_decoder_that_is_killed_is_reported_with_its_file(folder: Path) -> None:
    def die(content: memoryview, target: Any, *, path: str) -> None:
        os._exit(9)

    samples, _ = find_images(folder)
    loader = Loader(samples, batch=4, shape=SHAPE, decode=die)
    with pytest.raises(InputError, match=r"the process that decoded .*\.png has died"):
        contents(loader, 0)
    loader.close()


def test_closing_a_loader_ends_its_processes(folder: Path) -> None:
    samples, _ = find_images(folder)
    before = set(multiprocessing.active_children())
    loader = Loader(samples, batch=4, shape=SHAPE, decoders=2)
    started = set(multiprocessing.active_children()) - before
    assert len(started) == 2
    loader.close()
    assert not any(process.is_alive() for process in started)
