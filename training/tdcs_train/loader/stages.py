"""The kernels of a loader's actors."""

from collections.abc import Callable, Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class Chunk:
    """Files that travel through the stages together: the cost of an act is shared by them."""

    samples: tuple[Sample, ...]
    lengths: tuple[int, ...] = ()
    """Bytes of each file, once they have been read."""

    def places(self, size: int) -> Iterator[tuple[Sample, int, int]]:
        """Each file with the offset and the end of its bytes in a register with room of `size` for each."""
        for number, (sample, length) in enumerate(zip(self.samples, self.lengths, strict=True)):
            yield sample, number * size, number * size + length


def sampling(samples: Sequence[Sample], order: Sequence[int], chunk: int) -> Kernel:
    """A source of the files of an epoch, `chunk` of them at a time."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> End | None:
        places = order[number * chunk : (number + 1) * chunk]
        if not places:
            return END
        outputs["sample"].value = Chunk(tuple(samples[place] for place in places))
        return None

    return kernel


def reading(read: Read, size: int) -> Kernel:
    """Files into a register that has `size` bytes for each."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> None:
        samples, target = inputs["sample"].value.samples, outputs["file"]
        lengths = tuple(
            read(sample.path, target.memory[place * size : (place + 1) * size])
            for place, sample in enumerate(samples)
        )
        target.value = Chunk(samples, lengths)
        target.length = (len(samples) - 1) * size + lengths[-1]

    return kernel


def decoding(decode: Decode, shape: tuple[int, ...], size: int) -> Kernel:
    """Images from files."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> None:
        source, target = inputs["file"], outputs["image"]
        target.value = tuple(sample.label for sample in source.value.samples)
        images = _images(target, shape)
        for image, (sample, begin, end) in zip(images, source.value.places(size), strict=False):
            decode(source.memory[begin:end], image, path=sample.path)

    return kernel


def batching(
    size: int, chunk: int, shape: tuple[int, ...], put: Callable[[NDArray[Any], NDArray[Any]], None]
) -> Kernel:
    """Images one after another into a batch; its value is how many there are."""
    chunks = size // chunk

    def kernel(inputs: Registers, outputs: Registers, number: int) -> None:
        source, target = inputs["image"], outputs["batch"]
        first = number % chunks * chunk
        images, labels = batch_arrays(target, size, shape)
        for place, (image, label) in enumerate(
            zip(_images(source, shape), source.value, strict=False), first
        ):
            put(image, images[place])
            labels[place] = label
        target.value = first + len(source.value)

    return kernel


def _images(register: Register, shape: tuple[int, ...]) -> NDArray[Any]:
    """The images of a register, one after another in its memory."""
    return numpy.frombuffer(register.memory, dtype=numpy.uint8).reshape((-1, *shape))


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
