"""The kernels of a loader's actors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from time import monotonic_ns
from typing import Any

import numpy
from numpy.typing import NDArray

from tdcs_train.actors.register import Register
from tdcs_train.actors.task import END, Done, End, Kernel, Registers
from tdcs_train.loader.files import Sample

Read = Callable[[str, memoryview], int]
"""read(path, target): the file's bytes into memory; their number."""
Decode = Callable[..., None]
"""decode(content, target, path=...): an image from a file's bytes into an array."""


def sampling(samples: Sequence[Sample], order: Sequence[int]) -> Kernel:
    """A source of the files of an epoch."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> End | None:
        if number >= len(order):
            return END
        outputs["sample"].value = samples[order[number]]
        return None

    return kernel


def reading(read: Read) -> Kernel:
    """A file into a register."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> None:
        source, target = inputs["sample"], outputs["file"]
        target.value = source.value
        target.length = read(source.value.path, target.memory)

    return kernel


def decoding(decode: Decode, shape: tuple[int, ...]) -> Kernel:
    """An image from a file."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> None:
        source, target = inputs["file"], outputs["image"]
        target.value = source.value.label
        pixels = numpy.frombuffer(target.memory, dtype=numpy.uint8).reshape(shape)
        decode(source.memory[: source.length], pixels, path=source.value.path)

    return kernel


def batching(size: int, shape: tuple[int, ...], put: Callable[[NDArray[Any], NDArray[Any]], None]) -> Kernel:
    """Images one after another into a batch; its value is how many there are."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> None:
        source, target = inputs["image"], outputs["batch"]
        place = number % size
        images, labels = batch_arrays(target, size, shape)
        put(numpy.frombuffer(source.memory, dtype=numpy.uint8).reshape(shape), images[place])
        labels[place] = source.value
        target.value = place + 1

    return kernel


def put_image(image: NDArray[Any], place: NDArray[Any]) -> None:
    """Copy an image to its place in a batch."""
    numpy.copyto(place, image)


def batch_bytes(size: int, shape: tuple[int, ...]) -> int:
    """Memory of a batch: its labels, then its images."""
    return size * (8 + int(numpy.prod(shape)))


def batch_arrays(register: Register, size: int, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images (size, *shape) of bytes and labels (size,) of a batch, in the register's memory."""
    labels = numpy.frombuffer(register.memory[: 8 * size], dtype=numpy.int64)
    images = numpy.frombuffer(register.memory[8 * size :], dtype=numpy.uint8)[: size * int(numpy.prod(shape))]
    return images.reshape((size, *shape)), labels


@dataclass(frozen=True, slots=True)
class Offer:
    """A batch that the training loop may take."""

    register: Register
    done: Done
    number: int
    offered: int
    """When (ns)."""


class HandOver:
    """Gives registers to the training loop, one at a time; an act lasts until the loop gives it back."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Offer] = SimpleQueue()

    def submit(self, inputs: Registers, outputs: Registers, number: int, done: Done) -> None:
        """Offer a batch."""
        self.queue.put(Offer(inputs["batch"], done, number, monotonic_ns()))
