"""The forwards and backwards of a pipeline's worker as two actors; their registers alone decide order and depth.

A forward takes a register `in flight`, and its mini-batch's backward gives it back: with warm-up + 1 registers no more
mini-batches are between their forward and their backward. Where both could act the backward does. A second, empty
register lets backward n wait for forward n + warm-up; so what arrives early waits, and delays never change the order:
the warm-up's forwards, then a forward and a backward in turn, then the warm-up's backwards (1F1B). Behind the last
mini-batch the forward actor acts warm-up times more without one, which sets those last backwards free.

Source: PipeDream (SOSP'19, section 3.2); registers as credits: OneFlow (arXiv 2110.15032, section 4).
"""

from collections.abc import Callable, Sequence

from tdcs_train.actors import END, ActorPlan, RegisterSpec, Runtime, Task
from tdcs_train.actors.runtime import ActorError
from tdcs_train.actors.task import End, Registers

IN_FLIGHT, AHEAD = "in flight", "ahead"
Work = Callable[[int], None]
"""Computes a mini-batch's forward, or its backward."""


def worker_plan(batches: Sequence[int], *, warm_up: int, forward: Work, backward: Work) -> ActorPlan:
    """The actors of a worker that trains with these mini-batches, all on one thread."""

    def act_forward(inputs: Registers, outputs: Registers, number: int) -> End | None:
        if number >= len(batches) + warm_up:
            return END
        if number < len(batches):
            forward(batches[number])
            outputs[IN_FLIGHT].value = batches[number]
        return None

    def act_backward(inputs: Registers, outputs: Registers, number: int) -> None:
        backward(inputs[IN_FLIGHT].value)

    registers = (
        RegisterSpec(name=IN_FLIGHT, count=warm_up + 1),
        RegisterSpec(name=AHEAD, count=warm_up + 1, lag=warm_up),
    )
    return ActorPlan(
        (
            Task(name="forward", kernel=act_forward, produces=registers),
            Task(name="backward", kernel=act_backward, consumes=(IN_FLIGHT, AHEAD), urgency=1),
        )
    )


def run(batches: Sequence[int], *, warm_up: int, forward: Work, backward: Work) -> None:
    """Runs the actors to their end. An error of `forward` or `backward` is raised as it is."""
    runtime = Runtime(worker_plan(batches, warm_up=warm_up, forward=forward, backward=backward))
    runtime.start()
    is_complete = False
    try:
        runtime.wait()
        is_complete = True
    except ActorError as error:
        raise (error.__cause__ or error) from None
    finally:
        # Who is interrupted closes the connections next; an act that waits for a packet ends only then.
        runtime.stop(wait=is_complete)
