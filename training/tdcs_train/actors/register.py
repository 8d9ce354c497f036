"""Registers: the memory that actors hand to each other, allocated once."""

from typing import Any

import numpy


class Register:
    """One of the registers of a descriptor: fixed memory, and a small value beside it."""

    __slots__ = ("index", "length", "memory", "name", "offset", "reading", "value")

    def __init__(self, *, name: str, index: int, memory: memoryview, offset: int = 0) -> None:
        self.name = name
        self.index = index
        """Its number among the registers of its descriptor."""
        self.memory = memory
        self.offset = offset
        """Where its memory begins in that of all."""
        self.value: Any = None
        """What does not need fixed memory: a label, a length, a shape."""
        self.length = 0
        """Bytes of the memory that are meant, from its start; the producer sets it."""
        self.reading = 0
        """Consumers that have not returned it."""


def allocate(
    names: list[tuple[str, int, int]], memory: memoryview | None = None
) -> dict[str, list[Register]]:
    """Registers for (name, count, bytes of each) in one piece of memory, each at its offset."""
    total = sum(count * aligned(size) for _, count, size in names)
    chunk = numpy.empty(total, dtype=numpy.uint8).data if memory is None else memory
    registers: dict[str, list[Register]] = {}
    offset = 0
    for name, count, size in names:
        registers[name] = []
        for index in range(count):
            registers[name].append(
                Register(name=name, index=index, memory=chunk[offset : offset + size], offset=offset)
            )
            offset += aligned(size)
    return registers


def aligned(size: int) -> int:
    """Up to a multiple of 64 bytes, so that no two registers share a cache line."""
    return -(-size // 64) * 64
