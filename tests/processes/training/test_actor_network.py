"""Registers between machines: pulled when there is room, urgent ones first, and peers that fail."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import numpy
import pytest

from tdcs_train.actors import END, ActorPlan, Kind, RegisterSpec, Runtime, Task
from tdcs_train.actors.network import frames
from tdcs_train.actors.network.classes import DSCP, prepare
from tdcs_train.actors.network.connection import Connection, Payload
from tdcs_train.actors.network.meeting import digest_of
from tdcs_train.actors.network.network import Network
from tdcs_train.actors.network.peer import Peer
from tdcs_train.actors.task import End, Registers
from tdcs_train.peers.errors import PeerError

WAIT = 20.0
SIZE = 600_000
"""More than two slices."""


def addresses(count: int) -> dict[int, tuple[str, int]]:
    """Free ports on loopback."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return {machine: ("127.0.0.1", each.getsockname()[1]) for machine, each in enumerate(sockets)}


def fill(count: int) -> Callable[[Registers, Registers, int], End | None]:
    """A source of registers full of their number."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> End | None:
        if number >= count:
            return END
        (register,) = outputs.values()
        numpy.frombuffer(register.memory, dtype=numpy.uint8)[:] = number
        register.length, register.value = len(register.memory), {"number": number}
        return None

    return kernel


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.005)


@contextlib.contextmanager
def machines(plan: ActorPlan, *, timeout: float = 10) -> Iterator[list[Runtime]]:
    """A runtime for each machine of the plan in this process, started."""
    places = addresses(len(plan.machines))
    networks: dict[int, Network] = {}

    def meet(machine: int) -> None:
        networks[machine] = Network(plan, machine, places, timeout=timeout)

    threads = [threading.Thread(target=meet, args=(machine,)) for machine in plan.machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    runtimes = [Runtime(plan, machine=machine, network=networks[machine]) for machine in plan.machines]
    for runtime in runtimes:
        runtime.start()
    try:
        yield runtimes
    finally:
        closing = [threading.Thread(target=runtime.stop) for runtime in runtimes]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(WAIT)
            assert not thread.is_alive()


def test_registers_arrive_whole_and_in_order_and_all_actors_end() -> None:
    seen: list[tuple[object, bool]] = []

    def check(inputs: Registers, outputs: Registers, number: int) -> None:
        content = numpy.frombuffer(inputs["x"].memory, dtype=numpy.uint8)[: inputs["x"].length]
        seen.append((inputs["x"].value, len(content) == SIZE and bool((content == number).all())))
        outputs["answer"].value = -number

    answers: list[object] = []
    plan = ActorPlan(
        (
            Task(name="fill", kernel=fill(30), produces=(RegisterSpec(name="x", size=SIZE),)),
            Task(name="here", kernel=lambda *_: None, consumes=("x",), thread=2),
            Task(
                name="check",
                kernel=check,
                consumes=("x",),
                produces=(RegisterSpec(name="answer"),),
                machine=1,
            ),
            Task(
                name="answers",
                kernel=lambda inputs, outputs, number: answers.append(inputs["answer"].value),
                consumes=("answer",),
                thread=1,
            ),
        )
    )
    with machines(plan) as runtimes:
        for runtime in runtimes:
            assert runtime.wait(WAIT)
        sent = runtimes[0]._network.payload_sent  # type: ignore[union-attr]
    assert seen == [({"number": number}, True) for number in range(30)]
    assert answers == [-number for number in range(30)]
    assert sent == 30 * SIZE


def test_no_payload_leaves_while_the_receiver_has_no_free_register() -> None:
    gate = threading.Semaphore(0)
    began: list[int] = []

    def slow(inputs: Registers, outputs: Registers, number: int) -> None:
        began.append(number)
        assert gate.acquire(timeout=WAIT)

    plan = ActorPlan(
        (
            Task(
                name="fill",
                kernel=fill(20),
                produces=(RegisterSpec(name="x", size=SIZE, count=6, pull_count=2),),
            ),
            Task(name="slow", kernel=slow, consumes=("x",), machine=1),
        )
    )
    with machines(plan) as runtimes:
        network = runtimes[0]._network
        assert network is not None
        for done in range(5):
            wait_for(lambda done=done: began == list(range(done + 1)))  # type: ignore[misc]
            # Two registers there: one is worked on, one has arrived. The producer has got these back and filled all.
            wait_for(lambda done=done: network.payload_sent == (done + 2) * SIZE)  # type: ignore[misc]
            wait_for(lambda done=done: runtimes[0].accounts()["fill"].acts == done + 8)  # type: ignore[misc]
            time.sleep(0.05)
            assert network.payload_sent == (done + 2) * SIZE
            gate.release()
        gate.release(20)
        assert all(runtime.wait(WAIT) for runtime in runtimes)


def test_the_memory_of_a_run_on_two_machines_is_that_of_the_plan() -> None:
    plan = ActorPlan(
        (
            Task(
                name="fill",
                kernel=fill(5),
                produces=(RegisterSpec(name="x", size=SIZE, count=3, pull_count=2),),
            ),
            Task(
                name="sum", kernel=lambda *_: None, consumes=("x",), machine=1, kind=Kind.ACCUMULATE, times=5
            ),
        )
    )
    with machines(plan) as runtimes:
        held = [
            sum(
                len(register.memory)
                for actor in runtime.actors.values()
                for out in actor.outputs
                for register in out.registers
            )
            for runtime in runtimes
        ]
        assert all(runtime.wait(WAIT) for runtime in runtimes)
    assert held == [3 * SIZE, 2 * SIZE]
    assert [plan.memory_bytes(machine) for machine in (0, 1)] == pytest.approx(held, rel=0.001)


def test_an_urgent_register_overtakes_one_that_is_on_its_way() -> None:
    large, small = memoryview(bytes(40_000_000)), memoryview(bytes(600_000))
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:
        ours = [stack.enter_context(socket.create_connection(server.getsockname())) for _ in range(5)]
        theirs = [stack.enter_context(server.accept()[0]) for _ in range(5)]
        peer = Peer(1, "machine 1", ours)
        low, high = peer.connections[0], peer.connections[3]
        low.send_payload(Payload(frames.Frame(frames.Kind.PULL), large))
        for _ in range(3):
            assert peer.sending() is low
            low.flush()
        # The reader is slow: the kernel takes no more than a part of the large one.
        under_way = low.payload_sent
        assert 0 < under_way < len(large)
        high.send_payload(Payload(frames.Frame(frames.Kind.PULL), small))
        peer.control.send(frames.Frame(frames.Kind.PING))
        order = []
        while peer.sending() is not low:
            chosen = peer.sending()
            assert chosen is not None
            order.append(peer.connections.index(chosen))
            chosen.flush()
            theirs[3].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while theirs[3].recv(1 << 20):
                    pass
        assert order[0] == 4
        assert set(order[1:]) == {3}
        assert high.payload_sent == len(small)
        assert low.payload_sent == under_way


def test_frames_that_came_before_the_end_of_a_connection_are_not_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        connection = Connection(ours, peer="machine 1")
        theirs.sendall(frames.Frame(frames.Kind.ABORT, body=b"disk full").head() + b"disk full")
        theirs.close()
        with ours:
            ((frame, body),) = connection.receive(lambda head, length: memoryview(b""))
            assert (frame.kind, bytes(body)) == (frames.Kind.ABORT, b"disk full")
            with pytest.raises(ConnectionResetError):
                connection.receive(lambda head, length: memoryview(b""))


def test_each_class_has_its_mark_and_little_unsent_data() -> None:
    for priority, mark in enumerate(DSCP):
        with socket.socket() as connection:
            prepare(connection, priority)
            assert connection.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == mark << 2
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 64 * 1024
            assert not connection.getblocking()
    assert len(set(DSCP)) == len(DSCP)
    assert frames.SLICE_BYTES <= 256 * 1024


def two_machines() -> ActorPlan:
    """A source that never ends, and a sink on another machine."""
    return ActorPlan(
        (
            Task(name="fill", kernel=lambda *_: None, produces=(RegisterSpec(name="x"),)),
            Task(name="sink", kernel=lambda *_: None, consumes=("x",), machine=1),
        )
    )


def hello(machine: int, priority: int, plan: str) -> bytes:
    """A greeting in bytes."""
    body = b'{"machine": %d, "class": %d, "plan": "%s"}' % (machine, priority, plan.encode())
    return frames.Frame(frames.Kind.HELLO, body=body).head() + body


@contextlib.contextmanager
def fake_machine_1(
    behave: Callable[[list[socket.socket]], None], *, greetings: Callable[[str], list[bytes]]
) -> Iterator[Network]:
    """The network of machine 0 with a fake machine 1 that says something else."""
    plan = two_machines()
    places = addresses(2)

    def fake() -> None:
        sockets = []
        for greeting in greetings(digest_of(plan)):
            while True:
                try:
                    sockets.append(socket.create_connection(places[0]))
                    break
                except OSError:
                    time.sleep(0.01)
            sockets[-1].sendall(greeting)
            sockets[-1].settimeout(3)
            with contextlib.suppress(OSError):
                sockets[-1].recv(4096)
        behave(sockets)
        for each in sockets:
            each.close()

    thread = threading.Thread(target=fake, daemon=True)
    thread.start()
    try:
        network = Network(plan, 0, places, timeout=1.0)
        yield network
        network.close()
    finally:
        thread.join(WAIT)


def good_greetings(digest: str) -> list[bytes]:
    """What machine 1 says on its five connections."""
    return [hello(1, priority, digest) for priority in range(5)]


BAD_GREETINGS = {
    "another protocol": (
        lambda digest: [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b" " * 40],
        "does not speak the protocol",
    ),
    "another version": (
        lambda digest: [struct.pack("!4sB", b"TDCA", 9) + hello(1, 0, digest)[5:]],
        "speaks version 9 of the protocol, this machine version 1",
    ),
    "another plan": (lambda digest: [hello(1, 0, "other")], "runs another plan"),
    "another machine": (lambda digest: [hello(7, 0, digest)], "says that it is machine 7"),
    "nonsense": (
        lambda digest: [frames.Frame(frames.Kind.HELLO, body=b"[]").head() + b"[]"],
        "cannot be read",
    ),
    "no greeting": (lambda digest: [frames.Frame(frames.Kind.PING).head()], "cannot be read"),
    "nothing": (lambda digest: [b""], "has said nothing for"),
    "nobody": (lambda digest: [], r"machine 1 \(127.0.0.1:\d+\) did not come within 1 s"),
}


@pytest.mark.parametrize("what", BAD_GREETINGS)
def test_a_machine_that_does_not_fit_is_refused_by_name_in_bounded_time(what: str) -> None:
    greetings, message = BAD_GREETINGS[what]
    before = time.monotonic()
    with (
        pytest.raises(PeerError, match=message),
        fake_machine_1(lambda sockets: time.sleep(1.5), greetings=greetings),
    ):
        pass
    assert time.monotonic() - before < 8


def send_frame(*parts: object) -> Callable[[list[socket.socket]], None]:
    """A peer that sends a frame on its control connection and waits."""

    def behave(sockets: list[socket.socket]) -> None:
        frame = frames.Frame(*parts)  # type: ignore[arg-type]
        sockets[4].sendall(frame.head() + bytes(frame.body))
        time.sleep(0.5)

    return behave


def noise(sockets: list[socket.socket]) -> None:
    """A peer that sends what is no frame."""
    sockets[4].sendall(b"noise" * 20)
    time.sleep(0.5)


BAD_PEERS = {
    "that dies": (lambda sockets: None, "ended in the middle of the run"),
    "that stalls": (lambda sockets: time.sleep(2.5), "has sent nothing for 1 s"),
    "that fails": (
        send_frame(frames.Kind.ABORT, 0, 0, 0, 0, b"disk full"),
        "machine 1 .* has failed: disk full",
    ),
    "that pulls what it was not offered": (send_frame(frames.Kind.PULL, 0, 1, 7), "a pull of register 0"),
    "that returns what it has not": (send_frame(frames.Kind.RETURN, 0, 1, 7), "a return of register 0"),
    "that sends bytes unasked": (send_frame(frames.Kind.DATA, 0, 0, 0, 0, b"x"), "were not asked for"),
    "that offers what nobody reads": (send_frame(frames.Kind.NOTICE, 9, 0, 0, 0, b"{}"), "register 9"),
    "that sends noise": (
        noise,
        "does not speak the protocol",
    ),
}


@pytest.mark.parametrize("what", BAD_PEERS)
def test_a_machine_is_named_when_it_is_one(what: str) -> None:
    behave, message = BAD_PEERS[what]
    with fake_machine_1(behave, greetings=good_greetings) as network:
        failed: list[BaseException] = []
        network.start(failed.append)
        wait_for(lambda: bool(failed))
        assert isinstance(failed[0], PeerError)
        with pytest.raises(PeerError, match=message):
            raise failed[0]


def test_the_others_learn_why_a_machine_failed() -> None:
    def fail(inputs: Registers, outputs: Registers, number: int) -> None:
        if number == 3:
            raise OSError("no space left")

    plan = ActorPlan(
        (
            Task(name="fill", kernel=fill(50), produces=(RegisterSpec(name="x", size=100),)),
            Task(name="write", kernel=fail, consumes=("x",), machine=1),
        )
    )
    with machines(plan, timeout=5) as runtimes:
        with pytest.raises(Exception, match="the actor write failed: no space left"):
            runtimes[1].wait(WAIT)
        runtimes[1].stop()
        with pytest.raises(PeerError, match=r"machine 1 .* has failed: .*no space left"):
            runtimes[0].wait(WAIT)
