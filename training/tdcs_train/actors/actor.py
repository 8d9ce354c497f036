"""A running actor: first-in-first-out queues of registers, and the rule when to act.

Source: OneFlow (arXiv 2110.15032), section 4: an actor acts when every input has a register to read and every output
a free one. There is no central scheduler: only messages between actors.
"""

from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from tdcs_train.actors.account import Account, ActRecord, State
from tdcs_train.actors.register import Register
from tdcs_train.actors.task import END, Cause, Kind, RegisterSpec, Task

Handler = Callable[[Any, int, Cause | None], None]
"""handler(payload, when it was sent (ns), the act that sent it)."""
Message = tuple[Handler, Any, int, Cause | None]
"""Of a register that can be read (`on_register`), one that comes back (`on_return`), a command to start, or the end of
a register's data (`on_end`)."""
Post = Callable[[Message], None]
"""Puts a message into the queue of an actor's thread."""


class Input:
    """The end of a register descriptor at one consumer."""

    __slots__ = ("ended", "name", "post_return", "producer_return", "ready")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[Register] = deque()
        self.ended = False
        self.post_return: Post
        self.producer_return: Handler


class Output:
    """The end of a register descriptor at its producer."""

    __slots__ = ("consumers", "free", "lag", "registers", "spec")

    def __init__(self, spec: RegisterSpec, registers: list[Register]) -> None:
        self.spec = spec
        self.registers = registers
        self.free = deque(registers)
        self.lag = spec.lag
        """Acts of which nobody reads the register."""
        self.consumers: list[tuple[Post, Handler, Handler, Any]] = []
        """For each: its queue, its handlers of registers and of the end, and what it knows the descriptor by."""


class Flight:
    """An asynchronous act under way."""

    __slots__ = ("cause", "done", "ended", "inputs", "number", "outputs", "started")

    def __init__(self, number: int, started: int, cause: Cause | None) -> None:
        self.number = number
        self.started = started
        self.cause = cause
        self.ended = 0
        self.done = False
        self.inputs: list[tuple[Input, Register]] = []
        self.outputs: list[tuple[Output, Register]] = []


class Actor:
    """One actor on its thread; its methods run on that thread alone."""

    def __init__(
        self,
        task: Task,
        *,
        inputs: list[Input],
        outputs: list[Output],
        post: Post,
        wake: Callable[["Actor"], None],
        finished: Callable[["Actor"], None],
        failed: Callable[["Actor", BaseException], None],
        traced: bool,
    ) -> None:
        self.task = task
        self.inputs = inputs
        self.outputs = outputs
        self.account = Account(now=monotonic_ns(), traced=traced)
        self.acts = 0
        self.queued = False
        self.finished = False
        self._post = post
        self._wake = wake
        self._on_finished = finished
        self._on_failed = failed
        self._started = False
        self._zombie = False
        self._missing_inputs = 1 if task.kind is Kind.INPUT_WISE else len(inputs)
        self._missing_outputs = sum(not output.free for output in outputs)
        self._open_inputs = len(inputs)
        self._reading = 0
        self._flights: deque[Flight] = deque()
        self._cause: Cause | None = None
        self._ready_at = 0
        self._in: dict[str, Register] = {}
        self._out: dict[str, Register] = {}
        self._by_name = {output.spec.name: output for output in outputs}

    def on_start(self, payload: None, when: int, cause: Cause | None) -> None:
        """The command to start: initial registers leave, and a source begins."""
        self._started = True
        for output in self.outputs:
            for _ in range(output.spec.initial):
                self._send(output, when, cause)
        self._look(when, cause)

    def on_register(self, payload: tuple[Input, Register], when: int, cause: Cause | None) -> None:
        """A register can be read."""
        source, register = payload
        if self._zombie:
            source.post_return((source.producer_return, register, when, cause))
            return
        if not source.ready and (self.task.kind is not Kind.INPUT_WISE or self._missing_inputs):
            self._missing_inputs -= 1
        source.ready.append(register)
        self._look(when, cause)

    def on_return(self, register: Register, when: int, cause: Cause | None) -> None:
        """A consumer has read a register; when all have, it is free again."""
        self._reading -= 1
        register.reading -= 1
        if register.reading == 0:
            output = self._by_name[register.name]
            if not output.free:
                self._missing_outputs -= 1
            output.free.append(register)
            self._look(when, cause)
        if self._zombie:
            self._end_if_all_is_back()

    def on_end(self, source: Input, when: int, cause: Cause | None) -> None:
        """No more registers of an input will come."""
        source.ended = True
        self._open_inputs -= 1
        if self._zombie:
            self._end_if_all_is_back()
        else:
            self._close_if_input_is_over(when, cause)

    def act(self, before: "tuple[int, Cause] | None") -> "tuple[int, Cause] | None":
        """One act, if it can; called by the thread when the actor's turn has come.

        Args:
            before: When the thread's act before this one ended, and which it was.

        Returns:
            The same of this act.
        """
        self.queued = False
        if self._zombie or self._missing_inputs or self._missing_outputs:
            return before
        if before is not None and before[0] > self._ready_at:
            self._cause = before[1]
        started = monotonic_ns()
        account = self.account
        account.enter(State.BUSY, started)
        inputs, outputs = self._in, self._out
        inputs.clear()
        outputs.clear()
        for source in self.inputs:
            if source.ready:
                inputs[source.name] = source.ready[0]
                if self.task.kind is Kind.INPUT_WISE:
                    break
        for output in self.outputs:
            outputs[output.spec.name] = output.free[0]
        if self.task.is_async:
            self._launch(dict(inputs), dict(outputs), started)
            return before
        number = self.acts
        try:
            result = self.task.kernel(inputs, outputs, number)  # type: ignore[operator]
        except (
            BaseException
        ) as error:  # else a kernel that calls sys.exit would end this thread alone, unseen
            self._on_failed(self, error)
            return before
        ended = monotonic_ns()
        me = (self.task.name, number)
        if result is END:
            self._close(ended, me)
            return before
        self._note(number, started, ended, self._cause)
        self._release(ended, me)
        self._after(ended, me)
        return ended, me

    # --- launching and ending acts ---------------------------------------------------------------

    def _release(self, when: int, me: Cause) -> None:
        """Send the outputs of an act, and return its inputs, as far as its kind lets them go."""
        task = self.task
        last = (self.acts % task.times) == 0
        if last or task.kind is not Kind.ACCUMULATE:
            for output in self.outputs:
                self._send(output, when, me)
        if task.kind is Kind.INPUT_WISE:
            self._give_back(next(source for source in self.inputs if source.ready), when, me)
            self._missing_inputs = 0 if any(source.ready for source in self.inputs) else 1
        elif last or task.kind not in (Kind.REPEAT, Kind.UNPACK):
            for source in self.inputs:
                self._give_back(source, when, me)
                if not source.ready:
                    self._missing_inputs += 1

    def _send(self, output: Output, when: int, me: Cause | None) -> None:
        consumers = output.consumers
        if not consumers:
            return
        if output.lag:
            output.lag -= 1
            return
        register = output.free.popleft()
        if not output.free:
            self._missing_outputs += 1
        self._tell(output, register, when, me)

    def _tell(self, output: Output, register: Register, when: int, me: Cause | None) -> None:
        consumers = output.consumers
        register.reading = len(consumers)
        self._reading += len(consumers)
        for post, on_register, _, known_as in consumers:
            post((on_register, (known_as, register), when, me))

    def _give_back(self, source: Input, when: int, me: Cause) -> None:
        source.post_return((source.producer_return, source.ready.popleft(), when, me))

    def _after(self, when: int, me: Cause) -> None:
        """Look for the next act, or the end."""
        self.account.enter(State.BUSY if self._flights else State.STARVED, when)
        self._look(when, me)
        if not self._zombie:
            self._close_if_input_is_over(when, me)

    def _look(self, when: int, cause: Cause | None) -> None:
        """Take a place in the thread's queue if an act is possible; else note what it waits for."""
        if self.queued or self._zombie or not self._started:
            return
        account = self.account
        if self._missing_inputs:
            return
        if self._missing_outputs:
            if account.state == State.STARVED:
                account.enter(State.BLOCKED, when)
            return
        self._cause = cause
        self._ready_at = when
        self.queued = True
        if account.state != State.BUSY:
            account.enter(State.QUEUED, when)
        self._wake(self)

    def _note(self, number: int, started: int, ended: int, cause: Cause | None) -> None:
        self.acts = number + 1
        self.account.acts += 1
        if self.account.records is not None:
            self.account.records.append(ActRecord(number, started, ended, cause))

    # --- asynchronous acts -----------------------------------------------------------------------

    def _launch(self, inputs: dict[str, Register], outputs: dict[str, Register], started: int) -> None:
        flight = Flight(self.acts, started, self._cause)
        self.acts += 1
        for source in self.inputs:
            flight.inputs.append((source, source.ready.popleft()))
            self._missing_inputs += not source.ready
        for output in self.outputs:
            if output.consumers:
                flight.outputs.append((output, output.free.popleft()))
                self._missing_outputs += not output.free
        self._flights.append(flight)

        def done(
            *, started: int | None = None, after: Cause | None = None, error: BaseException | None = None
        ) -> None:
            if error is not None:
                self._on_failed(self, error)
                return
            flight.ended = monotonic_ns()
            if after is not None:
                flight.cause = after
            if started is not None:
                flight.started = started
            self._post((self._on_done, flight, flight.ended, None))

        try:
            self.task.kernel.submit(inputs, outputs, flight.number, done)  # type: ignore[union-attr]
        except Exception as error:
            self._on_failed(self, error)
            return
        self._look(started, (self.task.name, flight.number))

    def _on_done(self, flight: Flight, when: int, cause: Cause | None) -> None:
        flight.done = True
        # What leaves now was held up by this act, also where it had ended before.
        me = (self.task.name, flight.number)
        while self._flights and self._flights[0].done:
            first = self._flights.popleft()
            self.account.acts += 1
            if self.account.records is not None:
                self.account.records.append(ActRecord(first.number, first.started, first.ended, first.cause))
            for output, register in first.outputs:
                self._tell(output, register, when, me)
            for source, register in first.inputs:
                source.post_return((source.producer_return, register, when, me))
        if not self._flights:
            self._after(when, (self.task.name, flight.number))

    # --- the end ---------------------------------------------------------------------------------

    def _close_if_input_is_over(self, when: int, cause: Cause | None) -> None:
        if not self.inputs or self._flights:
            return
        over = [source.ended and not source.ready for source in self.inputs]
        if all(over) if self.task.kind is Kind.INPUT_WISE else any(over):
            self._close(when, cause)

    def _close(self, when: int, cause: Cause | None) -> None:
        """Pass the end on; from now only what is lent out comes back, and what still comes is returned at once."""
        task = self.task
        if (
            task.kind is Kind.ACCUMULATE
            and task.keep_partial
            and self.acts % task.times
            and not self._missing_outputs
        ):
            for output in self.outputs:
                self._send(output, when, cause)
        self._zombie = True
        for source in self.inputs:
            while source.ready:
                source.post_return((source.producer_return, source.ready.popleft(), when, cause))
        for output in self.outputs:
            for post, _, on_end, known_as in output.consumers:
                post((on_end, known_as, when, cause))
        self.account.enter(State.STARVED, when)
        self._end_if_all_is_back()

    def _end_if_all_is_back(self) -> None:
        if not self.finished and self._open_inputs == 0 and self._reading == 0 and not self._flights:
            self.finished = True
            self._on_finished(self)
