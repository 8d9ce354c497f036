"""The ends of a register descriptor that two machines share, as actors see them."""

from time import monotonic_ns

from tdcs_train.actors.actor import Actor, Input, Message, Output, Post
from tdcs_train.actors.network.network import Network, Notice
from tdcs_train.actors.register import Register
from tdcs_train.actors.task import Cause, Done, Registers, RegisterSpec, Task

PULL_THREAD = -1
"""The thread of the actors that pull; their acts are waiting for the network."""


class PullKernel:
    """Pulls the bytes of a notice into an own register."""

    def __init__(self, network: Network, machine: int, name: str) -> None:
        self._network, self._machine, self._name = network, machine, name

    def submit(self, inputs: Registers, outputs: Registers, number: int, done: Done) -> None:
        """Ask for the bytes."""
        notice = inputs[self._name]
        assert isinstance(notice, Notice)
        self._network.pull(self._machine, notice, outputs[self._name], done)


def pull_task(spec: RegisterSpec, *, producer: Task, machine: int, network: Network) -> Task:
    """The actor that copies a register of another machine to this one."""
    own = RegisterSpec(name=spec.name, count=spec.pull_count, size=spec.size)
    return Task(
        name=f"pull {spec.name}",
        kernel=PullKernel(network, producer.machine, spec.name),
        consumes=(spec.name,),
        produces=(own,),
        machine=machine,
        thread=PULL_THREAD,
    )


def receive(network: Network, puller: Actor, end: Input, *, machine: int, post: Post) -> None:
    """Join the actor that pulls to a producer on another machine."""

    def arrived(notice: Notice) -> None:
        post((puller.on_register, (end, notice), monotonic_ns(), None))

    def ended() -> None:
        post((puller.on_end, end, monotonic_ns(), None))

    def give_back(message: Message) -> None:
        notice = message[1]
        assert isinstance(notice, Notice)
        network.give_back(machine, notice)

    end.post_return = give_back
    end.producer_return = puller.on_return
    network.listen(end.name, arrived, ended)


def send(network: Network, producer: Actor, output: Output, *, machine: int, post: Post) -> None:
    """Join a producer to its consumers on another machine, which count as one."""

    def on_register(payload: tuple[None, Register], when: int, cause: Cause | None) -> None:
        network.notice(machine, payload[1])

    def on_end(payload: None, when: int, cause: Cause | None) -> None:
        network.end(machine, output.spec.name)

    def returned(register: Register) -> None:
        post((producer.on_return, register, monotonic_ns(), None))

    output.consumers.append((_at_once, on_register, on_end, None))
    network.lend(output.spec.name, machine, returned)


def _at_once(message: Message) -> None:
    handler, payload, when, cause = message
    handler(payload, when, cause)
