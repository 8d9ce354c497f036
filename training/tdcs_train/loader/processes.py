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

    def __init__(self, decode: Decode, *, count: int, shape: tuple[int, ...], memory: mmap.mmap) -> None:
        context = multiprocessing.get_context("fork")
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        self._ends: list[Connection] = []
        self._processes = []
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work,
                args=(theirs, [*self._ends, ours], decode, shape, memory),
                name=f"decoder-{number}",
                daemon=True,
            )
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)
            self._idle.put(ours)

    def __call__(self, inputs: Registers, outputs: Registers, number: int) -> None:
        """One image, by whichever process is idle.

        Raises:
            InputError: It cannot be decoded, or the process has died; the file is named.
        """
        source, target = inputs["file"], outputs["image"]
        target.value = source.value.label
        end = self._idle.get()
        try:
            end.send((source.offset, source.length, target.offset, source.value.path))
            error = end.recv()
        except (EOFError, OSError) as failure:
            raise InputError(
                f"the process that decoded {source.value.path} has died; if it was killed for memory, decode fewer "
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
    for other in others:
        other.close()  # else this process would keep them open, and its siblings never see their end
    view = memoryview(memory)
    size = int(numpy.prod(shape))
    while True:
        try:
            source, length, target, path = end.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        pixels: Any = numpy.frombuffer(view[target : target + size], dtype=numpy.uint8).reshape(shape)
        error = ""
        try:
            decode(view[source : source + length], pixels, path=path)
        except InputError as refused:
            error = str(refused)
        except Exception as failure:
            error = f"{path} cannot be decoded: {type(failure).__name__}: {failure}"
        with contextlib.suppress(OSError):
            end.send(error)
