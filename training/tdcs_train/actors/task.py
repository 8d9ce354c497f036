"""What an actor is before it runs: its kernel, and the registers that it consumes and produces."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tdcs_train.actors.register import Register


class Kind(enum.Enum):
    """How acts, inputs and outputs of an actor belong together."""

    NORMAL = "normal"
    """An act takes one register of each input and makes one of each output."""
    REPEAT = "repeat"
    """`times` acts on the same input register."""
    UNPACK = "unpack"
    """One input register is split into `times` output registers; the kernel gets the number of the part."""
    ACCUMULATE = "accumulate"
    """`times` input registers, one after the other, go into one output register."""
    INPUT_WISE = "input-wise"
    """An act takes one register of whichever input has one."""


class End(enum.Enum):
    """What the kernel of a source returns when there is no more data."""

    END = "end"


END: Final = End.END
Registers = Mapping[str, Register]
Kernel = Callable[[Registers, Registers, int], End | None]
"""kernel(inputs, outputs, number): the `number`-th act, from 0; registers by name. It returns when the work is done."""


class AsyncKernel(Protocol):
    """A kernel that starts work and calls back when it is done, so that several acts are under way at a time.

    As many as there are registers are: they leave in the order in which they began.
    """

    def submit(self, inputs: Registers, outputs: Registers, number: int, done: "Done") -> None:
        """Begin an act."""
        ...


class Done(Protocol):
    """Called once, from any thread, when an asynchronous act has ended."""

    def __call__(
        self, *, started: int | None = None, after: "Cause | None" = None, error: BaseException | None = None
    ) -> None:
        """`started` (ns) and `after` tell when and after which act it really began, where it had to wait for that."""
        ...


Cause = tuple[str, int]
"""An act: the actor's name and the act's number."""


@dataclass(frozen=True, kw_only=True)
class RegisterSpec:
    """A register descriptor: `count` registers of `size` bytes, written by one actor and read by any number.

    The count is the credit of the producer: it acts only while one of them is free.
    """

    name: str
    count: int = 2
    size: int = 0
    """Bytes of memory of each register; 0 for registers that carry only a value, or only order (control)."""
    initial: int = 0
    """How many of them can be read before the first act, as a cycle needs."""
    lag: int = 0
    """How many acts the producer is ahead: what its first `lag` acts make is free again at once and nobody reads it, so
    the consumer's act n waits for the producer's act n + lag. With a control register this fixes an order."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """An actor of a plan."""

    name: str
    kernel: Kernel | AsyncKernel
    consumes: tuple[str, ...] = ()
    """Names of registers; an actor without any is a source."""
    produces: tuple[RegisterSpec, ...] = ()
    thread: int = 0
    """Actors of a thread run one act at a time."""
    kind: Kind = Kind.NORMAL
    times: int = 1
    """Of repeat, unpack and accumulate."""
    keep_partial: bool = False
    """Whether an accumulator passes on an output that the end of data left incomplete; its `value` is the kernel's."""
    urgency: int = 0
    """Of several actors of a thread that could act, the one with the highest acts, then the one that waits longest."""

    @property
    def is_async(self) -> bool:
        """Whether its acts overlap."""
        return hasattr(self.kernel, "submit")


def no_kernel(inputs: Registers, outputs: Registers, number: int) -> None:
    """Does nothing: for actors that only carry order."""


def passing(value: Callable[[Any], Any]) -> Kernel:
    """A kernel that puts a function of its only input's value into its only output, for tests and small tools."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> None:
        (source,), (target,) = inputs.values(), outputs.values()
        target.value = value(source.value)

    return kernel
