"""Runs the actors of a plan."""

import sys
import threading
from collections.abc import Mapping
from time import monotonic, monotonic_ns

from tdcs_train.actors.account import Account, ActorTimes, times_of
from tdcs_train.actors.actor import Actor, Input, Output
from tdcs_train.actors.plan import ActorPlan
from tdcs_train.actors.register import Register, allocate
from tdcs_train.actors.task import Task
from tdcs_train.actors.thread import ActorThread
from tdcs_train.actors.validation import check


class ActorError(RuntimeError):
    """An actor's kernel failed; its cause is the kernel's error."""


class Runtime:
    """The actors of a plan: made at once, started, and over when the last one has ended.

    Args:
        plan: Checked before anything is made.
        traced: Keep a record of every act.
        memory: Where to put the registers, `plan.memory_bytes` of it; new memory otherwise.
        patience: Seconds after which an act that has not returned ends the run, with its actor's name; None: no limit,
            as for acts that wait for others. Acts that pools work on are not watched.
    """

    def __init__(
        self,
        plan: ActorPlan,
        *,
        traced: bool = False,
        memory: memoryview | None = None,
        patience: float | None = None,
    ) -> None:
        check(plan)
        self.plan = plan
        self.actors: dict[str, Actor] = {}
        self._traced = traced
        self._threads: dict[int, ActorThread] = {}
        self._patience = patience
        self._stuck: set[ActorThread] = set()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._stopped_by: str = ""
        self._build(memory)
        self._living = len(self.actors)

    def _build(self, memory: memoryview | None) -> None:
        registers = allocate(self.plan.held, memory)
        for task in self.plan.tasks:
            self._make(task, registers)
        for actor in self.actors.values():
            for output in actor.outputs:
                self._join_all(actor, output)

    def _make(self, task: Task, registers: Mapping[str, list[Register]]) -> None:
        thread = self._thread(task)
        self.actors[task.name] = Actor(
            task,
            inputs=[Input(name) for name in task.consumes],
            outputs=[Output(spec, registers[spec.name]) for spec in task.produces],
            post=thread.channel.put,
            wake=thread.wake,
            finished=self._one_finished,
            failed=self._failed,
            traced=self._traced,
        )

    def _join_all(self, producer: Actor, output: Output) -> None:
        """Join a register to its consumers."""
        name = output.spec.name
        writer = self._thread(producer.task)
        for task in self.plan.consumers[name]:
            consumer = self.actors[task.name]
            end = next(end for end in consumer.inputs if end.name == name)
            reader = self._thread(task)
            output.consumers.append((reader.post_from(writer), consumer.on_register, consumer.on_end, end))
            end.post_return = writer.post_from(reader)
            end.producer_return = producer.on_return

    def _thread(self, task: Task) -> ActorThread:
        if task.thread not in self._threads:
            self._threads[task.thread] = ActorThread(f"actors-{task.thread}")
        return self._threads[task.thread]

    def start(self) -> None:
        """Start the threads and the actors."""
        for thread in self._threads.values():
            thread.start()
        for actor in self.actors.values():
            self._thread(actor.task).channel.put((actor.on_start, None, monotonic_ns(), None))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all actors have ended; False after `timeout` seconds.

        Raises:
            ActorError: A kernel failed, or did not return in time; all actors have been stopped.
        """
        over = self._over.wait(timeout) if self._patience is None else self._watched(timeout, self._patience)
        if self._error is not None:
            raise ActorError(f"the actor {self._stopped_by} failed: {self._error}") from self._error
        return over

    def _watched(self, timeout: float | None, patience: float) -> bool:
        """As `Event.wait`, and ends the run when an act goes on for longer than `patience` seconds."""
        until = None if timeout is None else monotonic() + timeout
        since: dict[ActorThread, tuple[Actor | None, int, float]] = {}
        while True:
            pause = patience / 4 if until is None else min(patience / 4, until - monotonic())
            if pause <= 0 or self._over.wait(pause):
                return self._over.is_set()
            for thread in self._threads.values():
                actor, now = thread.acting, monotonic()
                acts = actor.acts if actor is not None else 0
                previous = since.get(thread)
                if previous is None or previous[:2] != (actor, acts):
                    since[thread] = (actor, acts, now)
                elif actor is not None and now - previous[2] >= patience:
                    self._stuck.add(thread)
                    self._end_with(
                        TimeoutError(f"its act {acts} has not returned for {patience:g} s"), actor.task.name
                    )

    def run(self) -> None:
        """Start, and wait for the end."""
        self.start()
        try:
            self.wait()
        finally:
            self.stop()

    def stop(self, *, wait: bool = True) -> None:
        """End the threads after the acts that are running; `wait` for those that return."""
        self._over.set()
        for thread in self._threads.values():
            thread.stop()
        if (
            not wait or sys.is_finalizing()
        ):  # an interpreter that ends has frozen these threads: they never end
            return
        for thread in self._threads.values():
            if thread not in self._stuck and thread is not threading.current_thread() and thread.is_alive():
                thread.join()

    def accounts(self) -> Mapping[str, Account]:
        """What each actor did so far."""
        return {name: actor.account for name, actor in self.actors.items()}

    def times(self) -> Mapping[str, ActorTimes]:
        """Busy, starved, blocked and queued time of each actor so far."""
        return {name: times_of(actor.account) for name, actor in self.actors.items()}

    def _one_finished(self, actor: Actor) -> None:
        with self._lock:
            self._living -= 1
            if self._living == 0:
                self._over.set()

    def _failed(self, actor: Actor, error: BaseException) -> None:
        self._end_with(error, actor.task.name)

    def _end_with(self, error: BaseException, who: str) -> None:
        with self._lock:
            if self._error is None and not self._over.is_set():
                self._error, self._stopped_by = error, who
        for thread in self._threads.values():
            thread.stop()
        self._over.set()
