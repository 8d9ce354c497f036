"""Which samples a mini-batch has: by the seed and its number alone, whatever the plan and the workers are."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tdcs_train.errors import InputError


@dataclass(frozen=True, kw_only=True)
class SampleOrder:
    """Epochs of `samples` in an order of their own each, in items of `size`; what is left of an epoch is left out."""

    samples: int
    size: int
    seed: int

    def __post_init__(self) -> None:
        if self.items < 1:
            raise InputError(
                f"the dataset has {self.samples} samples, which is no mini-batch of {self.size}; give a smaller --batch"
            )

    @property
    def items(self) -> int:
        """Items of an epoch."""
        return self.samples // self.size

    def indices(self, *, first: int, step: int, end: int) -> Iterator[list[int]]:
        """The samples of every `step`-th item from number `first` on, before `end`; numbers go on over epochs."""
        epoch, order = -1, list[int]()
        for item in range(first, end, step):
            if item // self.items != epoch:
                epoch = item // self.items
                order = list(range(self.samples))
                random.Random(f"{self.seed}/{epoch}").shuffle(order)  # noqa: S311
            begin = item % self.items * self.size
            yield order[begin : begin + self.size]
