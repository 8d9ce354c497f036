"""The network of one machine: notices, pulls and payloads over connections by class, on one thread.

Messages between machines go by pull (OneFlow, arXiv 2110.15032, section 4.2): the notice of a readable register carries
a token of its memory and a number; the receiving machine asks for the bytes when it has a free register of its own. So
no payload leaves a machine before there is room for it.
"""

import contextlib
import json
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tdcs_train.actors.network.connection import Connection, Payload, refuse
from tdcs_train.actors.network.frames import Frame, Kind
from tdcs_train.actors.network.meeting import digest_of, meet
from tdcs_train.actors.network.peer import Peer
from tdcs_train.actors.plan import ActorPlan
from tdcs_train.actors.register import Register
from tdcs_train.actors.task import Done
from tdcs_train.peers.errors import PeerError

LAST_WORDS_SECONDS = 1.0
"""How long a machine that has closed one of its connections may still say why."""


class Notice(Register):
    """What is known of a register of another machine before its bytes are here."""

    __slots__ = ("number",)

    def __init__(self, *, name: str, token: int, number: int) -> None:
        super().__init__(name=name, index=token, memory=memoryview(b""))
        self.number = number
        """Of the register among all of its descriptor for this machine."""


Arrived = Callable[[Notice], None]
"""Called with a notice, on the network's thread."""


class Network:
    """The connections of a machine to those that it shares registers with.

    Args:
        plan: The same on all machines.
        machine: Which one this is.
        addresses: Host and port of every machine; this one listens at its own.
        timeout: Seconds to wait for the others at the start, and later for any sign of life of theirs.
    """

    def __init__(
        self,
        plan: ActorPlan,
        machine: int,
        addresses: Mapping[int, tuple[str, int]],
        *,
        timeout: float = 60.0,
    ) -> None:
        self.machine = machine
        self.timeout = timeout
        self.failed: Callable[[BaseException], None] = lambda error: None
        self._names = list(plan.registers)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._arrived: dict[int, Arrived] = {}
        self._ended: dict[int, Callable[[], None]] = {}
        self._returned: dict[tuple[int, int], Callable[[Register], None]] = {}
        self._lent: dict[tuple[int, int, int, int], Register] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self._pulls: dict[tuple[int, int, int], tuple[memoryview, Done, int]] = {}
        self._priorities = [spec.priority for spec in plan.registers.values()]
        self._posted: deque[tuple[int, Frame]] = deque()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._gone: list[Connection] = []
        self._closing = False
        self._abort = ""
        self._thread = threading.Thread(target=self._run, name="actors-network", daemon=True)
        others = _neighbours(plan, machine)
        self.peers: dict[int, Peer] = meet(
            others, machine=machine, addresses=addresses, digest=digest_of(plan), timeout=timeout
        )

    # --- what actors call ------------------------------------------------------------------------

    def listen(self, name: str, arrived: Arrived, ended: Callable[[], None]) -> None:
        """Have notices of a register of another machine."""
        self._arrived[self._places[name]] = arrived
        self._ended[self._places[name]] = ended

    def lend(self, name: str, machine: int, returned: Callable[[Register], None]) -> None:
        """Have the returns of a register that a machine reads."""
        self._returned[machine, self._places[name]] = returned

    def notice(self, machine: int, register: Register) -> None:
        """Tell a machine that a register can be read."""
        place = self._places[register.name]
        number = self._numbers.get((machine, place), 0)
        self._numbers[machine, place] = number + 1
        self._lent[machine, place, register.index, number] = register
        body = json.dumps({"length": register.length, "value": register.value}).encode()
        self._post(machine, Frame(Kind.NOTICE, place, register.index, number, body=body))

    def end(self, machine: int, name: str) -> None:
        """Tell a machine that no more of a register will come."""
        self._post(machine, Frame(Kind.END, self._places[name]))

    def pull(self, machine: int, notice: Notice, target: Register, done: Done) -> None:
        """Ask for the bytes of a notice; `done` is called when they are in the target."""
        place = self._places[notice.name]
        target.length, target.value = notice.length, notice.value
        if not notice.length:
            done()
            return
        self._pulls[place, notice.index, notice.number] = (
            target.memory[: notice.length],
            done,
            notice.length,
        )
        self._post(machine, Frame(Kind.PULL, place, notice.index, notice.number))

    def give_back(self, machine: int, notice: Notice) -> None:
        """Tell a machine that its register has been read."""
        self._post(machine, Frame(Kind.RETURN, self._places[notice.name], notice.index, notice.number))

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Begin; `failed` gets the error that ends it."""
        self.failed = failed
        self._thread.start()

    def close(self, *, reason: str = "") -> None:
        """End well, or with a reason that the others fail with; waits for them as long as the timeout at most."""
        self._abort = reason
        self._closing = True
        self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self.timeout)
        self._close_sockets()

    @property
    def payload_sent(self) -> int:
        """Bytes of registers that have left this machine."""
        return sum(peer.payload_sent for peer in self.peers.values())

    # --- the thread ------------------------------------------------------------------------------

    def _post(self, machine: int, frame: Frame) -> None:
        self._posted.append((machine, frame))
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_write.send(b"\0")

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                self._loop(selector)
        except BaseException as error:
            self.failed(error)

    def _loop(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._wake_read, selectors.EVENT_READ)
        for peer in self.peers.values():
            for connection in peer.connections:
                selector.register(connection.socket, selectors.EVENT_READ, (peer, connection))
        writing: dict[int, Connection | None] = dict.fromkeys(self.peers)
        next_ping, said_bye = 0.0, False
        while True:
            now = time.monotonic()
            if self._closing and not said_bye:
                said_bye = True
                kind = Kind.ABORT if self._abort else Kind.BYE
                for peer in self.peers.values():
                    peer.control.send(Frame(kind, body=self._abort.encode()[:4096]))
            self._take_posted()
            if now >= next_ping:
                next_ping = now + self.timeout / 4
                for peer in self.peers.values():
                    peer.control.send(Frame(Kind.PING))
            self._check_silence(now)
            self._choose_writers(selector, writing)
            idle = not any(writing.values())
            if said_bye and idle and (self._abort or all(peer.ended for peer in self.peers.values())):
                return
            for key, events in selector.select(min(0.25, self.timeout / 8)):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        while self._wake_read.recv(4096):
                            pass
                    continue
                peer, connection = key.data
                self._serve(peer, connection, events)
            while self._gone:
                selector.unregister(self._gone.pop().socket)

    def _take_posted(self) -> None:
        while self._posted:
            machine, frame = self._posted.popleft()
            self.peers[machine].control.send(frame)

    def _check_silence(self, now: float) -> None:
        for peer in self.peers.values():
            if not peer.ended and peer.lost and now - peer.lost[0] > LAST_WORDS_SECONDS:
                raise _ended(peer, peer.lost[1]) from peer.lost[1]
            if not peer.ended and now - peer.heard > self.timeout:
                raise PeerError(
                    f"{peer.name} has sent nothing for {self.timeout:g} s; see the log of its pod"
                )

    def _choose_writers(
        self, selector: selectors.BaseSelector, writing: dict[int, Connection | None]
    ) -> None:
        for machine, peer in self.peers.items():
            chosen = None if peer.ended else peer.sending()
            if chosen is writing[machine]:
                continue
            for connection in (writing[machine], chosen):
                if connection is not None and connection.socket in selector.get_map():
                    events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection is chosen else 0)
                    selector.modify(connection.socket, events, (peer, connection))
            writing[machine] = chosen

    def _serve(self, peer: Peer, connection: Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                connection.flush()
            if events & selectors.EVENT_READ:
                for frame, body in connection.receive(lambda head, size: self._place_of(peer, head, size)):
                    self._handle(peer, frame, body)
                peer.heard = time.monotonic()
        except OSError as error:
            self._gone.append(connection)
            if self._closing:
                peer.ended = True
            elif not peer.ended and connection is peer.control:
                raise _ended(peer, error) from error
            elif not peer.ended and peer.lost is None:
                # Its last words, why it failed, may still be on their way by the control connection.
                peer.lost = (time.monotonic(), error)

    def _place_of(self, peer: Peer, frame: Frame, length: int) -> memoryview:
        found = self._pulls.get((frame.register, frame.token, frame.number))
        if found is None or frame.offset + length > len(found[0]):
            raise refuse(peer.name, f"bytes of register {frame.register} that were not asked for")
        return found[0][frame.offset : frame.offset + length]

    def _handle(self, peer: Peer, frame: Frame, body: memoryview) -> None:
        kind = frame.kind
        if kind is Kind.DATA:
            key = (frame.register, frame.token, frame.number)
            memory, done, left = self._pulls[key]
            if left > len(body):
                self._pulls[key] = (memory, done, left - len(body))
            else:
                del self._pulls[key]
                done()
        elif kind is Kind.NOTICE:
            self._arrived_of(peer, frame)(self._noticed(peer, frame, body))
        elif kind is Kind.PULL:
            register = self._lent.get((peer.machine, frame.register, frame.token, frame.number))
            if register is None:
                raise refuse(peer.name, f"a pull of register {frame.register} that it was not offered")
            priority = self._priorities[frame.register]
            peer.connections[priority].send_payload(Payload(frame, register.memory[: register.length]))
        elif kind is Kind.RETURN:
            register = self._lent.pop((peer.machine, frame.register, frame.token, frame.number), None)
            if register is None:
                raise refuse(peer.name, f"a return of register {frame.register} that it did not have")
            self._returned[peer.machine, frame.register](register)
        elif kind is Kind.END:
            if frame.register not in self._ended:
                raise refuse(peer.name, f"the end of register {frame.register}")
            self._ended[frame.register]()
        elif kind is Kind.BYE:
            peer.ended = True
        elif kind is Kind.ABORT:
            raise PeerError(f"{peer.name} has failed: {bytes(body).decode(errors='replace')}")

    def _arrived_of(self, peer: Peer, frame: Frame) -> Arrived:
        if frame.register not in self._arrived:
            raise refuse(peer.name, f"register {frame.register}")
        return self._arrived[frame.register]

    def _noticed(self, peer: Peer, frame: Frame, body: memoryview) -> "Notice":
        try:
            said: dict[str, Any] = json.loads(bytes(body))
            length = int(said["length"])
        except (ValueError, KeyError, TypeError) as error:
            raise PeerError(f"{peer.name} sent a notice that cannot be read: {error}") from error
        notice = Notice(name=self._names[frame.register], token=frame.token, number=frame.number)
        notice.length, notice.value = length, said.get("value")
        return notice

    def _close_sockets(self) -> None:
        for peer in self.peers.values():
            for connection in peer.connections:
                connection.close()
        self._wake_read.close()
        self._wake_write.close()


def _ended(peer: Peer, error: OSError) -> PeerError:
    return PeerError(f"{peer.name} ended in the middle of the run: {error}; see the log of its pod")


def _neighbours(plan: ActorPlan, machine: int) -> set[int]:
    """The machines that share registers with one."""
    found: set[int] = set()
    for name, producer in plan.producers.items():
        readers = {task.machine for task in plan.consumers[name]}
        if producer.machine == machine:
            found |= readers
        elif machine in readers:
            found.add(producer.machine)
    return found - {machine}
