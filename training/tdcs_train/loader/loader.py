"""The loader: actors that read, decode and batch the files of a dataset."""

import contextlib
import mmap
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from tdcs_train.actors import ActorError, ActorPlan, Kind, RegisterSpec, Runtime, Task
from tdcs_train.actors.pool import PooledKernel
from tdcs_train.actors.register import Register
from tdcs_train.actors.trace import critical_path
from tdcs_train.errors import InputError
from tdcs_train.loader import stages
from tdcs_train.loader.decoding import decode_image
from tdcs_train.loader.files import Sample, epoch_order, read_file
from tdcs_train.loader.processes import DecoderProcesses
from tdcs_train.loader.report import TRAIN, EpochReport

BATCHES_A_LOOK = 16
"""After so many batches the records of acts are added up and dropped, so that they stay few."""


@dataclass(frozen=True)
class Batch:
    """Images (n, height, width, channels) of bytes and labels (n,): views that hold until the next batch."""

    images: NDArray[Any]
    labels: NDArray[Any]


class Loader:
    """Batches of images from files, epoch by epoch.

    Args:
        samples: The files of the whole dataset, in the same order at all workers.
        batch: Images of a batch.
        shape: Height, width and channels to which images are resized.
        seed: Of the shuffles; the same at all workers.
        rank, world_size: Which share of each epoch is this worker's.
        readers, decoders: Files read, and images decoded, at the same time.
        prefetch: Batches that may wait for training.
        chunk: Files that a stage works on in one go at most, so that the cost of handing them on is shared. It is made
            smaller until it divides the batch.
        max_file_bytes: Memory of a file; larger ones are refused by name.
        drop_last: Leave out the last batch of an epoch if it is not full.
        processes: Decode in processes, as many as there are decoders; else in threads of this one.
        read, decode, put: What the stages do, if not the usual.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        *,
        batch: int,
        shape: tuple[int, int, int],
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        readers: int = 4,
        decoders: int = 2,
        prefetch: int = 2,
        chunk: int = 8,
        max_file_bytes: int = 4 << 20,
        shuffle: bool = True,
        drop_last: bool = True,
        processes: bool = True,
        read: stages.Read = read_file,
        decode: stages.Decode = decode_image,
        put: Any = stages.put_image,
    ) -> None:
        for name, value in (
            ("batch", batch),
            ("readers", readers),
            ("decoders", decoders),
            ("prefetch", prefetch),
            ("chunk", chunk),
        ):
            if value < 1:
                raise InputError(f"{name} is {value}; it must be 1 at least")
        if not 0 <= rank < world_size:
            raise InputError(f"rank {rank} is not below world_size {world_size}")
        self.batch, self.shape = batch, shape
        self.report: EpochReport | None = None
        """Of the last epoch that was read to its end."""
        self._samples = samples
        self._seed, self._rank, self._world_size, self._shuffle = seed, rank, world_size, shuffle
        self._readers, self._decoders, self._prefetch = readers, decoders, prefetch
        self._chunk = next(size for size in range(min(chunk, batch), 0, -1) if batch % size == 0)
        self._max_file_bytes = max_file_bytes
        self._drop_last = drop_last
        self._read, self._decode, self._put = read, decode, put
        if not len(self):
            raise InputError(
                f"there is no batch of {batch} for a worker (samples: {len(samples)}, workers: {world_size}); take a "
                "smaller batch"
            )
        self._epoch_open = threading.Lock()
        self._processes: DecoderProcesses | None = None
        self._memory_bytes = self._plan([], stages.HandOver())[0].memory_bytes
        self._memory = mmap.mmap(-1, self._memory_bytes)
        if processes:
            self._processes = DecoderProcesses(
                decode, count=decoders, shape=shape, file_bytes=max_file_bytes, memory=self._memory
            )

    def __len__(self) -> int:
        """Batches of an epoch of this worker."""
        count = len(self._samples) // self._world_size
        return count // self.batch if self._drop_last else -(-count // self.batch)

    @property
    def memory_bytes(self) -> int:
        """Memory of all registers; nothing else grows with the dataset but the list of its files."""
        return self._memory_bytes

    def close(self) -> None:
        """End the decoders; the loader gives nothing afterwards. The end of the program does it, too."""
        if self._processes is not None:
            self._processes.close()

    def epoch(self, number: int) -> Generator[Batch, None, None]:
        """The batches of an epoch; afterwards `report` says what training waited for.

        One epoch at a time: they share the loader's memory. An epoch ends with its last batch, or when its iterator is
        closed.

        Raises:
            InputError: A file cannot be read or decoded; it is named. Or another epoch is still open.
        """
        with self._alone(number):
            yield from self._batches(number)

    @contextlib.contextmanager
    def _alone(self, number: int) -> Iterator[None]:
        if not self._epoch_open.acquire(blocking=False):
            raise InputError(
                f"epoch {number} cannot begin while another epoch of this loader is open: they would overwrite each "
                "other's batches; read that one to its end, close its iterator, or make a second loader"
            )
        try:
            yield
        finally:
            self._epoch_open.release()

    def _batches(self, number: int) -> Iterator[Batch]:
        order = epoch_order(
            len(self._samples),
            seed=self._seed,
            epoch=number,
            rank=self._rank,
            world_size=self._world_size,
            shuffle=self._shuffle,
        )
        if self._drop_last:
            order = order[: len(self) * self.batch]
        hand_over = stages.HandOver()
        plan, pools = self._plan(order, hand_over)
        runtime = Runtime(plan, traced=True, memory=memoryview(self._memory))
        look = _Look(runtime)
        runtime.start()
        waited = 0.0
        release: Callable[[], None] | None = None
        try:
            for place in range(len(self)):
                begin = time.monotonic()
                if release is not None:
                    release()
                register, release = _next(hand_over, runtime)
                waited += time.monotonic() - begin
                images, labels = stages.batch_arrays(register, self.batch, self.shape)
                yield Batch(images[: register.value], labels[: register.value])
                if place % BATCHES_A_LOOK == BATCHES_A_LOOK - 1:
                    look.add_up()
            if release is not None:
                release()
            _await_end(runtime)
            look.add_up()
            self.report = EpochReport(
                epoch=number,
                samples=len(order),
                seconds=look.seconds,
                waited_seconds=waited,
                seconds_by_stage=look.parts,
                busy_seconds={name: times.busy_seconds for name, times in runtime.times().items()},
            )
        finally:
            runtime.stop()
            for pool in pools:
                pool.close()

    def _plan(
        self, order: Sequence[int], hand_over: stages.HandOver
    ) -> tuple[ActorPlan, tuple[PooledKernel, PooledKernel]]:
        image_bytes = self.shape[0] * self.shape[1] * self.shape[2]
        reading = stages.reading(self._read, self._max_file_bytes)
        read = PooledKernel("read", reading, workers=self._readers)
        decoding = self._processes or stages.decoding(self._decode, self.shape, self._max_file_bytes)
        decode = PooledKernel("decode", decoding, workers=self._decoders)
        # A register of each stage for every thread that fills one, and as many that the next stage works on.
        files = RegisterSpec(
            name="file", count=self._readers + self._decoders, size=self._chunk * self._max_file_bytes
        )
        images = RegisterSpec(name="image", count=2 * self._decoders, size=self._chunk * image_bytes)
        batches = RegisterSpec(
            name="batch", count=1 + self._prefetch, size=stages.batch_bytes(self.batch, self.shape)
        )
        batch = stages.batching(self.batch, self._chunk, self.shape, self._put)
        return ActorPlan(
            (
                Task(
                    name="sample",
                    kernel=stages.sampling(self._samples, order, self._chunk),
                    produces=(RegisterSpec(name="sample", count=2 * self._readers),),
                ),
                Task(name="read", kernel=read, consumes=("sample",), produces=(files,)),
                Task(name="decode", kernel=decode, consumes=("file",), produces=(images,)),
                Task(
                    name="batch",
                    kernel=batch,
                    consumes=("image",),
                    produces=(batches,),
                    kind=Kind.ACCUMULATE,
                    times=self.batch // self._chunk,
                    keep_partial=True,
                    thread=1,
                ),
                Task(name=TRAIN, kernel=hand_over, consumes=("batch",), thread=1),
            )
        ), (read, decode)


class _Look:
    """Adds up which stage determined the time so far."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._since = self._begin = time.monotonic_ns()
        self.parts: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """The time that has been added up."""
        return (self._since - self._begin) / 1e9

    def add_up(self) -> None:
        """Up to the last batch that training has finished with."""
        records = {name: list(account.records or []) for name, account in self._runtime.accounts().items()}
        if not records[TRAIN]:
            return
        last = records[TRAIN][-1]
        for name, seconds in critical_path(records, last=(TRAIN, last.number), since=self._since).items():
            self.parts[name] = self.parts.get(name, 0.0) + seconds
        self._since = last.ended
        for name, account in self._runtime.accounts().items():
            over = sum(record.ended < self._since for record in records[name])
            if account.records:
                del account.records[: max(0, over - 1)]


def _next(hand_over: stages.HandOver, runtime: Runtime) -> tuple[Register, Callable[[], None]]:
    """The next batch, and what to call when it has been used."""
    start = time.monotonic_ns()
    while True:
        try:
            offer = hand_over.queue.get(timeout=0.2)
        except queue.Empty:
            _await_end(runtime, timeout=0)
            continue
        # A batch that was there before it was asked for had to wait for the training on the one before.
        after = (TRAIN, offer.number - 1) if offer.number and offer.offered < start else None
        return offer.register, partial(offer.done, started=time.monotonic_ns(), after=after)


def _await_end(runtime: Runtime, *, timeout: float = 60) -> None:
    """Wait for the end of the actors; their errors are those of the loader."""
    try:
        runtime.wait(timeout)
    except ActorError as error:
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from error
        raise
