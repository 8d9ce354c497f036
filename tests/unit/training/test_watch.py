"""A training loop whose waits are counted, whatever loader it has."""

import json
import multiprocessing
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tdcs_train.loader import watch, watching
from tdcs_train.loader.watching import PREFIX


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(watching, "time", fake)
    return fake


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shared memory of a pod, in which this process has written nothing yet."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(watching, "SHARED_MEMORY", str(tmp_path))
    monkeypatch.setattr(watching, "_process", watching._Process())
    return tmp_path


def written(folder: Path) -> dict[str, float]:
    (file,) = folder.iterdir()
    assert file.name.startswith(PREFIX)
    times: dict[str, float] = json.loads(file.read_text())
    return times


class Slow:
    """A loader with a length and a method of its own, of which each batch takes three seconds."""

    epoch = 0

    def __init__(self, clock: Clock, count: int) -> None:
        self.clock, self.count = clock, count

    def __len__(self) -> int:
        return self.count

    def set_epoch(self, number: int) -> None:
        self.epoch = number

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.clock.now += 3
            yield number


def test_waits_are_what_the_loop_stood_still_and_reach_the_file_of_the_process(
    clock: Clock, folder: Path
) -> None:
    loader = watch(Slow(clock, 4))
    batches = []
    for batch in loader:
        clock.now += 1
        batches.append(batch)
    assert batches == [0, 1, 2, 3]
    assert (loader.waits.waited_seconds, loader.waits.seconds) == (12, 16)
    assert loader.waits.stall_share == 0.75
    watching._process.flush()
    assert written(folder) == {"seconds": 16, "waited": 12}


def test_all_loaders_of_a_process_are_counted_together_over_epochs(clock: Clock, folder: Path) -> None:
    training, evaluation = watch(Slow(clock, 2)), watch(Slow(clock, 1))
    for _ in range(2):
        list(training)
        clock.now += 5
        list(evaluation)
    assert training.waits.waited_seconds == 12
    assert evaluation.waits.waited_seconds == 6
    assert written(folder) == {"seconds": 28, "waited": 18}


def test_all_else_of_a_loader_is_its_own(clock: Clock) -> None:
    inner = Slow(clock, 3)
    loader = watch(inner)
    assert len(loader) == 3
    loader.set_epoch(7)
    assert inner.epoch == loader.epoch == 7
    with pytest.raises(AttributeError, match="'Slow' object has no attribute 'sampler'"):
        _ = loader.sampler
    assert list(pickle.loads(pickle.dumps(watch([1, 2])))) == [1, 2]  # noqa: S301  its own


def test_a_loader_that_is_an_iterator_is_watched_batch_by_batch(clock: Clock) -> None:
    loader = watch(iter(Slow(clock, 2)))
    assert next(loader) == 0
    clock.now += 4
    assert list(loader) == [1]
    assert (loader.waits.waited_seconds, loader.waits.seconds) == (6, 10)


def test_an_error_of_a_loader_is_the_loops(clock: Clock) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("no such shard")

    batches = iter(watch(broken()))
    assert next(batches) == 1
    with pytest.raises(OSError, match="no such shard"):
        next(batches)


def test_training_goes_on_where_nothing_can_be_written(
    clock: Clock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SHARED_MEMORY", str(folder / "absent"))
    monkeypatch.setattr(watching, "_process", watching._Process())
    assert list(watch(Slow(clock, 3))) == [0, 1, 2]


def test_outside_of_a_pod_nothing_is_written(
    clock: Clock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    monkeypatch.setattr(watching, "_process", watching._Process())
    list(watch(Slow(clock, 3)))
    watching._process.flush()
    assert list(folder.iterdir()) == []


def _train(folder: str) -> None:
    list(watch([1, 2]))
    watching._process.flush()


def test_a_forked_process_has_a_file_of_its_own(folder: Path) -> None:
    def slow() -> Iterator[int]:
        yield 1
        time.sleep(0.01)

    list(watch(slow()))
    watching._process.flush()
    before = {file.name: file.read_text() for file in folder.iterdir()}
    child = multiprocessing.get_context("fork").Process(target=_train, args=(str(folder),))
    child.start()
    child.join()
    assert child.exitcode == 0
    after = {file.name: file.read_text() for file in folder.iterdir()}
    assert len(after) == 2
    assert before.items() <= after.items()


def test_a_program_that_ends_leaves_its_last_figures(tmp_path: Path) -> None:
    program = f"""
import tdcs_train.loader.watching as watching
watching.SHARED_MEMORY = {str(tmp_path)!r}
watching._process = watching._Process()
for batch in watching.watch([1, 2, 3]):
    if batch == 2:
        break
"""
    environment = {"KUBERNETES_SERVICE_HOST": "x", "PYTHONPATH": "training", "PATH": "/usr/bin:/bin"}
    subprocess.run(
        [sys.executable, "-c", program], check=True, env=environment, cwd=Path(__file__).parents[3]
    )
    assert written(tmp_path)["seconds"] > 0
