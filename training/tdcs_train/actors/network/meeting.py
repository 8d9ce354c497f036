"""How machines meet: each pair joined by a connection for every class, the higher number calling the lower one."""

import contextlib
import hashlib
import json
import socket
import time
from collections.abc import Iterable, Mapping

from tdcs_train.actors.network.classes import CLASSES, CONTROL
from tdcs_train.actors.network.frames import HEAD, MAGIC, Frame, Kind, parse_head
from tdcs_train.actors.network.peer import Peer
from tdcs_train.actors.plan import ActorPlan
from tdcs_train.peers.errors import PeerError
from tdcs_train.peers.listening import listen_at

Address = tuple[str, int]


class StrangerError(PeerError):
    """A caller that is no machine of any plan, as a port scan."""


def digest_of(plan: ActorPlan) -> str:
    """Equal for plans that can work together."""
    described = [
        [task.name, task.machine, task.kind.value, task.times, task.consumes]
        + [
            [spec.name, spec.count, spec.size, spec.pull_count, spec.priority, spec.lag]
            for spec in task.produces
        ]
        for task in plan.tasks
    ]
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]


def call(address: tuple[str, int], *, name: str, deadline: float) -> socket.socket:
    """A connection to a machine that may not listen yet.

    Raises:
        PeerError: It does not answer until the deadline.
    """
    while True:
        rest = deadline - time.monotonic()
        try:
            return socket.create_connection(address, timeout=max(0.1, min(rest, 2.0)))
        except OSError as error:
            if rest <= 0.1:
                raise PeerError(f"{name} does not answer: {error}; see the log of its pod") from error
            time.sleep(0.05)


def greet(connection: socket.socket, *, machine: int, priority: int, digest: str) -> None:
    """Say who this is."""
    body = json.dumps({"machine": machine, "class": priority, "plan": digest}).encode()
    connection.sendall(Frame(Kind.HELLO, body=body).head() + body)


def greeting(connection: socket.socket, *, name: str, digest: str, timeout: float) -> tuple[int, int]:
    """The machine and the class that the other end says.

    Raises:
        PeerError: It speaks another protocol or version, or has another plan, or says nothing in time.
    """
    connection.settimeout(timeout)
    try:
        frame, length = _first_head(connection, name)
        said = json.loads(_exactly(connection, length, name))
        machine, priority, plan = int(said["machine"]), int(said["class"]), str(said["plan"])
    except TimeoutError as error:
        raise StrangerError(f"{name} has said nothing for {timeout:g} s") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StrangerError(f"{name} sent a greeting that cannot be read: {error}") from error
    if frame.kind is not Kind.HELLO or not 0 <= priority <= CONTROL:
        raise PeerError(f"{name} began with a frame of kind {frame.kind.name}")
    if plan != digest:
        raise PeerError(
            f"{name} runs another plan ({plan}, here {digest}); start all machines with the same plan"
        )
    return machine, priority


def _first_head(connection: socket.socket, name: str) -> tuple[Frame, int]:
    raw = _exactly(connection, HEAD.size, name)
    if not raw.startswith(MAGIC):
        raise StrangerError(f"{name} does not speak the protocol of tdcs-train (it sent {raw[:4]!r})")
    return parse_head(raw, peer=name)


def _exactly(connection: socket.socket, length: int, name: str) -> bytes:
    found = b""
    while len(found) < length:
        part = connection.recv(length - len(found))
        if not part:
            raise StrangerError(f"{name} closed the connection while it was being greeted")
        found += part
    return found


def meet(
    others: Iterable[int], *, machine: int, addresses: Mapping[int, Address], digest: str, timeout: float
) -> dict[int, Peer]:
    """The other machines, once all of them are here.

    Raises:
        PeerError: One does not come in time, or does not fit. Strangers are turned away, and named if one is missing.
    """
    deadline = time.monotonic() + timeout
    names = {other: f"machine {other} ({addresses[other][0]}:{addresses[other][1]})" for other in others}
    found: dict[int, dict[int, socket.socket]] = {other: {} for other in sorted(names)}
    with contextlib.ExitStack() as failing:
        if any(other > machine for other in found):
            _answer(found, names, machine, addresses[machine], digest, deadline, timeout, failing)
        for other in found:
            for priority in range(CLASSES + 1) if other < machine else ():
                connection = failing.enter_context(
                    call(addresses[other], name=names[other], deadline=deadline)
                )
                found[other][priority] = connection
                greet(connection, machine=machine, priority=priority, digest=digest)
                rest = max(0.1, deadline - time.monotonic())
                greeting(connection, name=names[other], digest=digest, timeout=rest)
        failing.pop_all()
    return {
        other: Peer(other, names[other], [sockets[priority] for priority in range(CLASSES + 1)])
        for other, sockets in found.items()
    }


def _answer(
    found: dict[int, dict[int, socket.socket]],
    names: Mapping[int, str],
    machine: int,
    own: Address,
    digest: str,
    deadline: float,
    timeout: float,
    failing: contextlib.ExitStack,
) -> None:
    """Wait for the machines that call this one."""
    callers = [other for other in found if other > machine]
    stranger = ""
    try:
        listener = failing.enter_context(listen_at(own, backlog=64))
    except OSError as error:
        raise PeerError(f"machine {machine} cannot listen at {own[0]}:{own[1]}: {error}") from error
    while missing := [names[other] for other in callers if len(found[other]) <= CLASSES]:
        rest = deadline - time.monotonic()
        if rest <= 0:
            seen = f"; turned away: {stranger}" if stranger else ""
            raise PeerError(
                f"{', '.join(missing)} did not come within {timeout:g} s; see the log of its pod{seen}"
            )
        listener.settimeout(rest)
        try:
            connection, (host, *_) = listener.accept()
        except TimeoutError:
            continue
        failing.enter_context(connection)
        name = f"a caller from {host}"
        try:
            other, priority = greeting(connection, name=name, digest=digest, timeout=min(rest, 5.0))
        except StrangerError as error:
            stranger = str(error)
            connection.close()
            continue
        if other not in callers or priority in found[other]:
            raise PeerError(f"{name} says that it is machine {other}, which is here already or not expected")
        greet(connection, machine=machine, priority=priority, digest=digest)
        found[other][priority] = connection
    listener.close()
