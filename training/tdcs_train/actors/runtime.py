"""Runs the actors of one machine."""

import threading
from collections.abc import Callable, Mapping
from time import monotonic_ns

from tdcs_train.actors.account import Account, ActorTimes, times_of
from tdcs_train.actors.actor import Actor, Input, Output
from tdcs_train.actors.plan import ActorPlan
from tdcs_train.actors.register import allocate
from tdcs_train.actors.task import Task
from tdcs_train.actors.thread import ActorThread
from tdcs_train.actors.validation import check


class ActorError(RuntimeError):
    """An actor's kernel failed; its cause is the kernel's error."""


class Runtime:
    """The actors of a plan on this machine: made at once, started, and over when the last one has ended.

    Args:
        plan: Checked before anything is made.
        traced: Keep a record of every act.
        network: What carries registers to and from other machines, if the plan has any.
    """

    def __init__(self, plan: ActorPlan, *, traced: bool = False) -> None:
        check(plan)
        self.plan = plan
        self.actors: dict[str, Actor] = {}
        self._threads: dict[int, ActorThread] = {}
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._stopped_by: str = ""
        self._stops: list[Callable[[], None]] = []
        self._build(traced)
        self._living = len(self.actors)

    def _build(self, traced: bool) -> None:
        registers = allocate(self.plan.held(0))
        inputs: dict[tuple[str, str], Input] = {}
        for task in self.plan.tasks:
            thread = self._thread(task)
            own = [Input(name) for name in task.consumes]
            inputs.update({(task.name, each.name): each for each in own})
            self.actors[task.name] = Actor(
                task,
                inputs=own,
                outputs=[Output(spec, registers[spec.name]) for spec in task.produces],
                post=thread.channel.put,
                wake=thread.wake,
                finished=self._one_finished,
                failed=self._failed,
                traced=traced,
            )
        for actor in self.actors.values():
            for output in actor.outputs:
                for consumer in self.plan.consumers[output.spec.name]:
                    self._join(
                        actor, output, self.actors[consumer.name], inputs[consumer.name, output.spec.name]
                    )

    def _join(self, producer: Actor, output: Output, consumer: Actor, end: Input) -> None:
        writer, reader = self._thread(producer.task), self._thread(consumer.task)
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
            ActorError: A kernel failed; all actors have been stopped.
        """
        over = self._over.wait(timeout)
        if self._error is not None:
            raise ActorError(f"the actor {self._stopped_by} failed: {self._error}") from self._error
        return over

    def run(self) -> None:
        """Start, and wait for the end."""
        self.start()
        self.wait()
        self.stop()

    def stop(self) -> None:
        """End the threads after the acts that are running."""
        self._over.set()
        for thread in self._threads.values():
            thread.stop()
        for thread in self._threads.values():
            if thread is not threading.current_thread() and thread.is_alive():
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
        with self._lock:
            if self._error is None:
                self._error, self._stopped_by = error, actor.task.name
        for thread in self._threads.values():
            thread.stop()
        self._over.set()
