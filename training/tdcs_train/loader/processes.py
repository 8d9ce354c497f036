"""Decoders that are processes: they fill registers in shared memory, and no lock of the interpreter holds them up."""

import contextlib
import mmap
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import numpy

from tdcs_train.actors.task import Registers
from tdcs_train.errors import InputError

Decode = Callable[..., None]


class DecoderProcesses:
    """`count` processes that decode files from and into shared memory.

    They are forked when this is made, before the threads of a run, and end with `close` or with the process itself.
    """

    def __init__(
        self, decode: Decode, *, count: int, shape: tuple[int, ...], file_bytes: int, memory: mmap.mmap
    ) -> None:
        self._file_bytes, self._image_bytes = file_bytes, int(numpy.prod(shape))
        context = multiprocessing.get_context("fork")
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        self._ends: list[Connection] = []
        self._processes = []
        for number in range(count):
            parent_end, child_end = context.Pipe()
            process = context.Process(
                target=_work,
                args=(child_end, [*self._ends, parent_end], decode, shape, memory),
                name=f"decoder-{number}",
                daemon=True,
            )
            process.start()
            child_end.close()
            self._ends.append(parent_end)
            self._processes.append(process)
            self._idle.put(parent_end)

    def __call__(self, inputs: Registers, outputs: Registers, number: int) -> None:
        """The images of a chunk of files, by whichever process is idle.

        Raises:
            InputError: It cannot be decoded, or the process has died; the file is named.
        """
        source, target = inputs["file"], outputs["image"]
        target.value = tuple(sample.label for sample in source.value.samples)
        work = [
            (
                source.offset + begin,
                source.offset + stop,
                target.offset + place * self._image_bytes,
                sample.path,
            )
            for place, (sample, begin, stop) in enumerate(source.value.places(self._file_bytes))
        ]
        end = self._idle.get()
        try:
            end.send(work)
            error = end.recv()
        except (EOFError, OSError) as failure:
            names = ", ".join(path for *_, path in work)
            raise InputError(
                f"the process that decoded {names} has died; if it was killed for memory, decode fewer "
                "images at a time (decoders)"
            ) from failure
        finally:
            self._idle.put(end)
        if error:
            raise InputError(error)

    def close(self) -> None:
        """End the processes."""
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


def _work(
    end: Connection, others: list[Connection], decode: Decode, shape: tuple[int, ...], memory: mmap.mmap
) -> None:
    for sibling in others:
        sibling.close()  # else this process would keep them open, and its siblings never see their end
    view = memoryview(memory)
    size = int(numpy.prod(shape))
    while True:
        try:
            work = end.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        error = ""
        for begin, stop, target, path in work:
            pixels: Any = numpy.frombuffer(view[target : target + size], dtype=numpy.uint8).reshape(shape)
            try:
                decode(view[begin:stop], pixels, path=path)
            except InputError as refused:
                error = error or str(refused)
            except Exception as failure:
                error = error or f"{path} cannot be decoded: {type(failure).__name__}: {failure}"
        with contextlib.suppress(OSError):
            end.send(error)
