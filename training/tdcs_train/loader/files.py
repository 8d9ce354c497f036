"""The files of a dataset, and in which order a worker reads them."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy

from tdcs_train.errors import InputError

ENDINGS = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True, slots=True)
class Sample:
    """A file and its class."""

    path: str
    label: int


def find_images(folder: Path) -> tuple[list[Sample], list[str]]:
    """All images below a folder with one sub-folder a class, in an order that all workers agree on, and the classes.

    Raises:
        InputError: The folder cannot be listed or has no image.
    """
    try:
        classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        samples = [
            Sample(entry.path, number)
            for number, name in enumerate(classes)
            for entry in sorted(os.scandir(folder / name), key=lambda entry: entry.name)
            if entry.name.lower().endswith(ENDINGS)
        ]
    except OSError as error:
        raise InputError(f"{folder} cannot be listed: {error.strerror}") from error
    if not samples:
        raise InputError(
            f"{folder} has no image ({', '.join(ENDINGS)}) in a sub-folder; each class is a sub-folder"
        )
    return samples, classes


def epoch_order(count: int, *, seed: int, epoch: int, rank: int, world_size: int, shuffle: bool) -> list[int]:
    """The samples of one worker in one epoch: a seeded shuffle of all, of which each worker takes every n-th.

    All workers have equally many, so that none waits for a step that another does not take; what is left over differs
    from epoch to epoch.
    """
    order = numpy.random.default_rng([seed, epoch]).permutation(count) if shuffle else numpy.arange(count)
    places: list[int] = order[: count - count % world_size][rank::world_size].tolist()
    return places


def read_file(path: str, target: memoryview) -> int:
    """A whole file into memory; its length.

    Raises:
        InputError: It cannot be read, or is larger than the memory.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            length = 0
            while count := file.readinto(target[length:]):
                length += count
            if length == len(target) and file.read(1):
                raise InputError(
                    f"{path} is larger than {len(target)} bytes; give the loader a larger max_file_bytes"
                )
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return length
