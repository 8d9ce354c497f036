"""All workers of a job measure the links between them, one pair after another, led by worker 0."""

import itertools
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any

from tdcs_train.link.measuring import LinkRate, Target, measure
from tdcs_train.link.messages import Line
from tdcs_train.peers.errors import PeerError
from tdcs_train.peers.listening import caller, listen


@dataclass(frozen=True, kw_only=True)
class Job:
    """Which worker of which job this is: what MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE say."""

    master: str
    port: int
    rank: int
    world_size: int
    timeout: float = 60.0
    """Seconds to wait for the others, and for each answer."""


def measure_links(job: Job, *, seconds: float) -> list[LinkRate]:
    """The links of each pair of workers in both directions, at worker 0; an empty list at the others.

    Raises:
        PeerError: A worker does not come, fails, or speaks another version; it is named.
    """
    target = Target(timeout=job.timeout + seconds)
    try:
        return _lead(job, target.port, seconds) if job.rank == 0 else _follow(job, target.port, seconds)
    finally:
        target.close()


def _lead(job: Job, own_port: int, seconds: float) -> list[LinkRate]:
    lines: dict[int, Line] = {}
    addresses: dict[int, tuple[str, int]] = {0: (job.master, own_port)}
    rates: list[LinkRate] = []
    try:
        _welcome(job, lines, addresses)
        for source, target in itertools.permutations(range(job.world_size), 2):
            if source == 0:
                rates.append(
                    measure(addresses[target], source=0, target=target, seconds=seconds, timeout=job.timeout)
                )
                continue
            lines[source].say(target=target, address=addresses[target], seconds=seconds)
            rates.append(_rate_of(lines[source].hear("rate")["rate"], peer=lines[source].peer))
        for line in lines.values():
            line.say(done=True)
    except PeerError as error:
        for line in lines.values():
            try:
                line.say(error=str(error))
            except PeerError:
                continue
        raise
    finally:
        for line in lines.values():
            line.close()
    return rates


def _welcome(job: Job, lines: dict[int, Line], addresses: dict[int, tuple[str, int]]) -> None:
    """Wait for all other workers; each says where it can be reached."""
    deadline = time.monotonic() + job.timeout
    try:
        listener = listen(job.port, backlog=job.world_size)
    except OSError as error:
        raise PeerError(
            f"worker 0 cannot listen at port {job.port} (MASTER_PORT): {error.strerror}"
        ) from error
    stranger = ""
    with listener:
        while missing := [str(rank) for rank in range(1, job.world_size) if rank not in lines]:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                suffix = f"; turned away: {stranger}" if stranger else ""
                raise PeerError(
                    f"worker {', '.join(missing)} of {job.world_size} did not come within {job.timeout:g} s; start "
                    f"tdcs-train link in every pod of the job{suffix}"
                )
            listener.settimeout(remaining)
            try:
                connection, (host, *_) = listener.accept()
            except TimeoutError:
                continue
            host = caller(host)
            line = Line(connection, peer=f"a caller from {host}", timeout=min(job.timeout, 5.0))
            try:
                greeting = line.hear("rank", "port", "world_size")
            except PeerError as error:
                stranger = str(error)
                line.close()
                continue
            rank = greeting["rank"]
            if (
                rank in lines
                or rank not in range(1, job.world_size)
                or greeting["world_size"] != job.world_size
            ):
                message = (
                    f"{line.peer} says that it is worker {rank} of {greeting['world_size']}; expected is each of 1 to "
                    f"{job.world_size - 1} of {job.world_size} once"
                )
                line.say(error=message)
                line.close()
                raise PeerError(message)
            connection.settimeout(job.timeout + 60)
            line.peer = f"worker {rank} ({host})"
            lines[rank], addresses[rank] = line, (host, int(greeting["port"]))


def _follow(job: Job, own_port: int, seconds: float) -> list[LinkRate]:
    line = _call(job)
    try:
        line.say(rank=job.rank, port=own_port, world_size=job.world_size)
        # Worker 0 waits for all, then has the pairs before this one's measured.
        line.socket.settimeout(job.timeout + job.world_size**2 * (seconds + 5))
        while not (order := line.hear()).get("done"):
            host, port = order["address"]
            try:
                rate = measure(
                    (host, port),
                    source=job.rank,
                    target=order["target"],
                    seconds=float(order["seconds"]),
                    timeout=job.timeout,
                )
            except PeerError as error:
                line.say(error=str(error))
                raise
            line.say(rate=asdict(rate))
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError(f"{line.peer} sent an order that cannot be read: {error}") from error
    finally:
        line.close()
    return []


def _call(job: Job) -> Line:
    deadline = time.monotonic() + job.timeout
    peer = f"worker 0 ({job.master}:{job.port})"
    while True:
        try:
            connection = socket.create_connection((job.master, job.port), timeout=2.0)
            return Line(connection, peer=peer, timeout=job.timeout)
        except OSError as error:
            if time.monotonic() > deadline:
                reason = error.strerror or error
                raise PeerError(f"{peer} does not answer within {job.timeout:g} s: {reason}") from error
            time.sleep(0.05)


def _rate_of(fields: Any, *, peer: str) -> LinkRate:
    try:
        return LinkRate(**fields)
    except TypeError as error:
        raise PeerError(f"{peer} sent a measurement that cannot be read: {error}") from error
