"""How the workers of a job find each other: a store at worker 0 (MASTER_ADDR), then connections between them."""

import contextlib
import datetime
import json
import os
import platform
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as distributed

from tdcs_train import __version__
from tdcs_train.peers import frames
from tdcs_train.peers.connection import Connection
from tdcs_train.peers.errors import FINAL, PeerError
from tdcs_train.peers.frames import PROTOCOL, Frame, Kind
from tdcs_train.peers.listening import caller, listen

VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Membership:
    """A worker's part in a job. `facts` must be equal at all workers: the digest of the plan, the mode."""

    master: str
    port: int
    rank: int
    world_size: int
    facts: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 120.0
    """Seconds to wait for the others, and later for each packet."""


def membership_from(
    environment: Mapping[str, str] = os.environ, *, facts: Mapping[str, str], timeout: float
) -> Membership:
    """The membership that a job operator gives by environment variables, as for torch.distributed.

    Raises PeerError that names the variable that is missing, no number, or one that cannot be.
    """
    if missing := [name for name in VARIABLES if not environment.get(name)]:
        raise PeerError(
            f"the variable {missing[0]} is not set; a job with framework PyTorch sets it, as torchrun does"
        )
    numbers = {}
    for name in VARIABLES[1:]:
        try:
            numbers[name] = int(environment[name])
        except ValueError:
            raise PeerError(f"the variable {name} is {environment[name]!r}; it must be a number") from None
    port, rank, world_size = (numbers[name] for name in VARIABLES[1:])
    if not 0 < port < 65536:
        raise PeerError(f"the variable MASTER_PORT is {port}; it must be a number from 1 to 65535")
    if not 0 <= rank < world_size:
        raise PeerError(
            f"the variable RANK is {rank}; it must be a number from 0, and below WORLD_SIZE, {world_size}"
        )
    return Membership(
        master=environment["MASTER_ADDR"],
        port=port,
        rank=rank,
        world_size=world_size,
        facts=facts,
        timeout=timeout,
    )


class Rendezvous:
    """The meeting of all workers of a job. It stays open while they work, for short notes between them."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self._deadline = time.monotonic() + membership.timeout
        self._compared = 0
        self._store = self._open()
        self._listener = listen(backlog=64)
        entry = {
            "host": _own_address(membership.master),
            "port": self._listener.getsockname()[1],
            "facts": {**membership.facts, "protocol": str(PROTOCOL), "tdcs-train": __version__},
            "node": platform.node(),
        }
        self.note(f"worker/{membership.rank}", entry)
        self._workers = [self._present(rank) for rank in range(membership.world_size)]
        self._compare(entry["facts"])

    def note(self, key: str, content: Any) -> None:
        """Leaves a note for the other workers."""
        try:
            self._store.set(key, json.dumps(content))
        except (RuntimeError, distributed.DistError) as error:
            raise self._master_lost(error) from error

    def read(self, key: str, *, awaited: str, connections: Sequence[Connection] = ()) -> Any:
        """The note of that key; waits until it is there, or one of the connections has ended without it."""
        deadline = time.monotonic() + self.membership.timeout
        peer_error: PeerError | None = None
        while time.monotonic() < deadline:
            try:
                if self._store.check([key]):
                    return json.loads(self._store.get(key))
            except (RuntimeError, distributed.DistError) as error:
                raise peer_error or self._master_lost(error) from error
            if peer_error is not None:
                raise peer_error
            time.sleep(_LOOK_SECONDS)
            # Before the next look at the note: a peer that ended well has left its own, and has seen all others.
            peer_error = next(
                (end for connection in connections if (end := connection.end()) is not None), None
            )
        raise PeerError(f"{awaited} did not come within {self.membership.timeout:g} s")

    def connect(self, peers: Mapping[int, str], *, purpose: str) -> dict[int, Connection]:
        """Connections to other workers, by rank; each of them must call it too. `peers` gives their names in errors.

        The worker with the greater rank calls the other. Raises PeerError.
        """
        by_rank: dict[int, Connection] = {}
        own_rank = self.membership.rank
        deadline = time.monotonic() + self.membership.timeout
        for rank in sorted(peer for peer in peers if peer < own_rank):
            by_rank[rank] = self._opened(self._call(rank, peers[rank], purpose, deadline), peers[rank])
        missing = {rank for rank in peers if rank > own_rank}
        while missing:
            rank, caller = self._answer(missing, peers, purpose, deadline)
            missing.discard(rank)
            by_rank[rank] = self._opened(caller, peers[rank])
        return by_rank

    def close(self) -> None:
        """Ends it. Worker 0 has the store and waits a moment for notes that others still read."""
        self._listener.close()
        with contextlib.suppress(RuntimeError, PeerError, distributed.DistError):
            self.note(f"gone/{self.membership.rank}", True)
            if self.membership.rank == 0:
                until = time.monotonic() + 5.0
                keys = [f"gone/{rank}" for rank in range(self.membership.world_size)]
                while time.monotonic() < until and not self._store.check(keys):
                    time.sleep(_LOOK_SECONDS)

    def compare(self, facts: Mapping[str, str]) -> None:
        """Compares further facts, which must be equal at all workers."""
        self._compared += 1
        key = f"facts/{self._compared}"
        self.note(f"{key}/{self.membership.rank}", dict(facts))
        for worker, rank in zip(self._workers, range(self.membership.world_size), strict=True):
            worker["facts"] = self.read(f"{key}/{rank}", awaited=f"the facts of rank {rank}")
        self._compare(facts)

    def _open(self) -> Any:
        m = self.membership
        # torchrun's agent listens at MASTER_PORT itself, for this run and those after a restart.
        has_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        try:
            store = distributed.TCPStore(
                m.master,
                m.port,
                m.world_size,
                is_master=m.rank == 0 and not has_agent,
                timeout=datetime.timedelta(seconds=m.timeout),
                wait_for_workers=False,
                use_libuv=False,  # Debian's PyTorch is built without it
            )
        except (RuntimeError, ValueError, distributed.DistError) as error:
            raise self._master_lost(error) from error
        if not has_agent:
            return store
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return distributed.PrefixStore(f"tdcs-train/{attempt}", store)

    def _master_lost(self, error: Exception) -> PeerError:
        m = self.membership
        fault = "cannot be opened" if m.rank == 0 else "does not answer"
        reason = str(error).splitlines()[0][:200]
        return PeerError(f"the rendezvous at {m.master}:{m.port} (MASTER_ADDR, worker 0) {fault}: {reason}")

    def _present(self, rank: int) -> dict[str, Any]:
        key = f"worker/{rank}"
        while time.monotonic() < self._deadline:
            try:
                if self._store.check([key]):
                    entry: dict[str, Any] = json.loads(self._store.get(key))
                    return entry
            except (RuntimeError, distributed.DistError) as error:
                raise self._master_lost(error) from error
            time.sleep(_LOOK_SECONDS)
        m = self.membership
        raise PeerError(
            f"rank {rank} of {m.world_size} did not come within {m.timeout:g} s; see the log of its pod"
        )

    def _compare(self, own: Mapping[str, str]) -> None:
        for rank, worker in enumerate(self._workers):
            for name, value in own.items():
                peer_value = worker["facts"].get(name)
                if peer_value != value:
                    raise PeerError(
                        f"rank {rank} ({worker['node']}) has {name} {peer_value}, rank {self.membership.rank} has "
                        f"{value}; all workers must have the same ({FINAL})"
                    )

    def _opened(self, connection: socket.socket, peer: str) -> Connection:
        return Connection(connection, peer=peer, timeout=self.membership.timeout)

    def _call(self, rank: int, peer: str, purpose: str, deadline: float) -> socket.socket:
        worker = self._workers[rank]
        address = (worker["host"], worker["port"])
        try:
            connection = socket.create_connection(address, timeout=max(0.1, deadline - time.monotonic()))
            frames.write(connection, Frame(Kind.HELLO, {"rank": self.membership.rank, "purpose": purpose}))
            frames.read(connection, peer=peer)
        except OSError as error:
            raise PeerError(f"{peer} at {address[0]}:{address[1]} does not answer: {error}") from error
        return connection

    def _answer(
        self, waiting: set[int], peers: Mapping[int, str], purpose: str, deadline: float
    ) -> tuple[int, socket.socket]:
        """The next worker that calls; what is no worker of this job is turned away."""
        while True:
            remaining = deadline - time.monotonic()
            missing = ", ".join(peers[rank] for rank in sorted(waiting))
            if remaining <= 0:
                raise PeerError(
                    f"{missing} did not connect within {self.membership.timeout:g} s; see its log"
                )
            self._listener.settimeout(remaining)
            try:
                connection, (host, *_) = self._listener.accept()
            except TimeoutError:
                continue
            connection.settimeout(min(remaining, 5.0))
            try:
                hello = frames.read(connection, peer=f"a caller from {caller(host)}")
                rank = int(hello.header.get("rank", -1))
                if hello.kind is Kind.HELLO and rank in waiting and hello.header.get("purpose") == purpose:
                    frames.write(connection, Frame(Kind.HELLO, {"rank": self.membership.rank}))
                    return rank, connection
            except (OSError, PeerError, ValueError, TypeError):
                pass  # a port scan or a worker of another job must not end this one
            connection.close()


def _own_address(master: str) -> str:
    """The address by which this machine reaches worker 0, and others reach this machine."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise PeerError(f"MASTER_ADDR {master} cannot be reached: {error}") from error


def abort(connections: Sequence[Connection], reason: str) -> None:
    """Ends connections such that each peer fails with the reason.

    All peers are told first: closing waits for the one that has stalled, and the others would take this worker for it.
    """
    for connection in connections:
        connection.announce_abort(reason)
    for connection in connections:
        connection.close(reason=reason)
