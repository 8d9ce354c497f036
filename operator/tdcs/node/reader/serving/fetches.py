"""Fetches pieces of blocks from other nodes: from the agent that has the slot, else another one, else the source.

All of it runs in the loop of one process; nothing here waits. A peer that is silent or slow for a while is overtaken:
another one is asked as well, and the first answer counts.
"""

import logging
import math
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import xxhash

from tdcs.node.reader.counters import Count, Counters
from tdcs.node.reader.serving.content_buffer import ContentBuffer
from tdcs.node.reader.serving.fetch import (
    BlockQuestion,
    Fetch,
    Question,
    ReadOnQuestion,
    SourceQuestion,
)
from tdcs.node.reader.serving.open_versions import OpenVersion
from tdcs.node.reader.serving.poller import Poller
from tdcs.node.reader.serving.read import Key, Read
from tdcs.node.wire import frames
from tdcs.node.wire.connection import PeerConnection, kept
from tdcs.node.wire.frames import FrameError, Piece, SourceWanted

_log: Final = logging.getLogger(__name__)

OVERTAKE_SECONDS: Final = 0.7
"""A peer that sends nothing for so long while it is asked for something is overtaken."""
SLOW_SECONDS: Final = 2.0
"""So is one that a read has waited for so long, although something comes."""
SILENT_SECONDS: Final = 6.0
"""After so long its connection is closed."""
_SOURCE_SECONDS: Final = 20.0
"""The source may need longer before an agent hears from it."""
_PAUSE_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.2
_MOST_RETRY_SECONDS: Final = 2.0
_IDLE_SECONDS: Final = 30.0
_SAY_SECONDS: Final = 0.2
"""So often at most this node's own agent is told where a version is read."""
_LANES: Final = 2
SOURCE_LANES: Final = 8
LANES_AT_SOURCE: Final = 64
"""To one agent, of all versions together: it has places for 256 connections. Each version may have another one while it
has fewer than are left, and always one."""
_LOG_SECONDS: Final = 5.0


class Lane(NamedTuple):
    """Connections of one kind to an agent. Each answers in turn, and a source may be
    slow for as long as it likes, so each version has its own, and another one for what is fetched ahead: a read waits
    neither behind another job's nor behind what may never be read."""

    address: str
    at_source: bool
    version: int
    ahead: bool


class Answers(Protocol):
    """Takes what was fetched, or the reason why it cannot be."""

    def piece(self, waiter: Read, index: int, content: memoryview, *, key: Key, origin: Count) -> None:
        """A piece is there; its bytes may be overwritten afterwards, unless they are `kept`."""
        ...

    def failed(self, waiter: Read, *, stale: bool, reason: str) -> None: ...


class Fetches:
    """All fetches of a process.

    Args:
        answers: takes results.
        buffer: of what was fetched ahead or not read to its end.
        counters: what happened.
        patience_seconds: a read that no agent and no source can answer for so long fails.
        tls: gives the context of the time, with which agents are asked; None: plain TCP.
    """

    def __init__(
        self,
        *,
        poller: Poller,
        answers: Answers,
        buffer: ContentBuffer,
        counters: Counters,
        patience_seconds: float,
        tls: Callable[[], ssl.SSLContext] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._poller: Final = poller
        self._answers: Final = answers
        self._buffer: Final = buffer
        self._counters: Final = counters
        self._patience: Final = patience_seconds
        self._clock: Final = clock
        self._tls: Final = tls
        self._running: Final[dict[Key, Fetch]] = {}
        self._lanes: Final[dict[Lane, list[PeerConnection[Question]]]] = {}
        self._paused: Final[dict[str, float]] = {}
        self._unsent: Final[dict[int, PeerConnection[Question]]] = {}
        self._waiting: Final[list[Fetch]] = []
        self._logged_at = 0.0
        self._said_at: Final[dict[int, float]] = {}
        self.ahead: Final[dict[int, int]] = {}
        """Bytes that are being fetched ahead, by version."""

    def has(self, key: Key) -> bool:
        return key in self._running

    def want(self, version: OpenVersion, key: Key, *, waiter: tuple[Read, int] | None) -> None:
        """Have a piece fetched; without a waiter it goes to the buffer."""
        running = self._running.get(key)
        if running is not None:
            if waiter is not None:
                running.waiting.append(waiter)
            return
        fetch = self._new(version, key)
        if waiter is not None:
            fetch.waiting.append(waiter)
            self._say_where(version, key)
        else:
            fetch.ahead = True
            self.ahead[key.version] = self.ahead.get(key.version, 0) + key.length
            self._counters.add(key.version, Count.AHEAD)
        self._running[key] = fetch
        self._candidates(version, fetch)
        self._ask_next(fetch)

    def _say_where(self, version: OpenVersion, key: Key) -> None:
        """Tell this node's own agent from where a pod reads on, while it may be bringing what comes next."""
        now, number, address = self._clock(), key.version, version.loads_here
        if not address or now - self._said_at.get(number, -math.inf) < _SAY_SECONDS:
            return
        self._said_at[number] = now
        lane = Lane(address, at_source=False, version=number, ahead=True)
        connection = self._lane(lane, now=now)
        if connection is None:
            return
        fetch = self._new(version, key)
        fetch.done = True
        connection.ask(ReadOnQuestion(fetch, fetch.block), now=now)
        self._unsent[connection.fd] = connection

    def leave(self, waiter: Read) -> None:
        """A read waits for nothing any more."""
        for key, _, _ in waiter.ranges:
            running = self._running.get(key)
            if running is not None:
                running.waiting = [entry for entry in running.waiting if entry[0] is not waiter]

    def flush(self) -> None:
        if not self._unsent:
            return
        unsent = list(self._unsent.values())
        self._unsent.clear()
        for connection in unsent:
            try:
                connection.flush()
            except OSError as error:
                self._broken(connection, str(error))
            else:
                self._poller.change(connection)

    def ready(self, connection: PeerConnection[Question], *, has_error: bool = False) -> None:
        """Something can be read from a connection, or written to it. `has_error`: the kernel reports an error of it."""
        try:
            connection.ready(now=self._clock(), has_error=has_error)
        except (OSError, FrameError, ValueError) as error:
            self._broken(connection, str(error))
        else:
            self._poller.change(connection)

    def tick(self, version_of: Callable[[int], OpenVersion | None]) -> None:
        """Overtake slow peers, close idle connections, ask again. A few times a second."""
        now = self._clock()
        for address in [address for address, until in self._paused.items() if until <= now]:
            del self._paused[address]
        for number in [number for number, at in self._said_at.items() if now - at >= _SAY_SECONDS]:
            del self._said_at[number]
        for lane, lanes in list(self._lanes.items()):
            for connection in list(lanes):
                self._look_at(connection, lane.address, lane.at_source, now)
        waiting, self._waiting[:] = list(self._waiting), []
        for fetch in waiting:
            version = version_of(fetch.key.version)
            if now < fetch.retry_at and version is not None:
                self._waiting.append(fetch)
            elif version is None:
                self._fail(fetch, stale=True)
            else:
                self._candidates(version, fetch)
                self._ask_next(fetch)

    def _look_at(
        self, connection: PeerConnection[Question], address: str, at_source: bool, now: float
    ) -> None:
        if not connection.expected:
            if now - connection.used_at > _IDLE_SECONDS:
                self._close(connection)
            return
        silent = now - connection.progress_at
        if silent > (_SOURCE_SECONDS if at_source else SILENT_SECONDS):
            self._broken(connection, f"it sent nothing for {silent:.1f} s")
        elif not at_source:
            for question in list(connection.expected):
                fetch = question.fetch
                slow = bool(fetch.waiting) and now - fetch.asked_at.get(address, now) > SLOW_SECONDS
                if not slow and silent <= OVERTAKE_SECONDS:
                    continue
                self._paused[address] = now + _PAUSE_SECONDS
                if not fetch.done and list(fetch.asked_at) == [address] and (fetch.holders or fetch.sources):
                    self._counters.add(fetch.key.version, Count.OVERTAKEN)
                    self._ask_next(fetch)

    def _new(self, version: OpenVersion, key: Key) -> Fetch:
        return Fetch(
            key=key,
            block=version.block_ids[key.block],
            size=version.block_lengths[key.block],
            source=lambda: _at_source(version, key),
        )

    def _candidates(self, version: OpenVersion, fetch: Fetch) -> None:
        slot = version.block_slots[fetch.key.block]
        fetch.holders, fetch.sources = version.holders(slot), version.source_readers(slot)
        fetch.across_zones = version.across_zones
        if self._paused:
            fetch.holders, fetch.sources = self._paused_last(fetch.holders), self._paused_last(fetch.sources)

    def _paused_last(self, addresses: Sequence[str]) -> list[str]:
        """Those that were silent lately are not left out: they come last."""
        now = self._clock()
        return sorted(addresses, key=lambda address: self._paused.get(address, 0.0) > now)

    def _ask_next(self, fetch: Fetch) -> None:
        now = self._clock()
        while (next_holder := fetch.next_holder()) is not None:
            address, at_source = next_holder
            if address in fetch.asked_at:
                continue
            lane = Lane(address, at_source, fetch.key.version, fetch.ahead)
            connection = self._lane(lane, now=now)
            if connection is None:
                fetch.reasons.append(f"{address} cannot be reached")
                continue
            fetch.asked_at[address] = now
            kind = SourceQuestion if at_source else BlockQuestion
            connection.ask(kind(fetch, fetch.block, fetch.key.length), now=now)
            self._unsent[connection.fd] = connection
            return
        if not fetch.asked_at:
            self._none_left(fetch, now)

    def _none_left(self, fetch: Fetch, now: float) -> None:
        # Each read has its own patience, from when it came: it may have waited for its turn, or joined what was begun.
        patient: list[tuple[Read, int]] = []
        late: list[tuple[Read, int]] = []
        for waiter in fetch.waiting:
            (patient if now - waiter[0].began <= self._patience else late).append(waiter)
        if fetch.changed:
            self._fail(fetch, stale=True)
        elif not patient:
            self._fail(fetch, stale=False)
        else:
            fetch.waiting = patient
            self._answer_failed(fetch, late, stale=False)
            fetch.retries += 1
            pause = min(_RETRY_SECONDS * 2 ** (fetch.retries - 1), _MOST_RETRY_SECONDS)
            fetch.retry_at = now + pause
            self._waiting.append(fetch)

    def _lane(self, lane: Lane, *, now: float) -> PeerConnection[Question] | None:
        lanes = self._lanes.get(lane, [])
        for connection in lanes:
            if not connection.expected:
                return connection
        best = min(lanes, key=lambda connection: connection.outstanding_bytes, default=None)
        if best is not None and len(lanes) >= self._most_lanes(lane):
            return best
        try:
            connection = PeerConnection(
                address=lane.address,
                deliver=self._deliver,
                now=now,
                tls=self._tls() if self._tls is not None else None,
            )
        except (OSError, ValueError) as error:
            self._note(f"the agent at {lane.address} cannot be reached: {error}")
            return best
        lanes.append(connection)
        self._lanes[lane] = lanes
        self._poller.add(connection)
        return connection

    def _most_lanes(self, lane: Lane) -> int:
        if not lane.at_source:
            return _LANES
        at_source = ((key, len(lanes)) for key, lanes in self._lanes.items() if key.at_source)
        free_lanes = LANES_AT_SOURCE - sum(count for key, count in at_source if key.address == lane.address)
        return min(SOURCE_LANES, free_lanes)

    def _deliver(
        self, connection: PeerConnection[Question], question: Question, piece: Piece, content: memoryview
    ) -> None:
        fetch, at_source = question.fetch, isinstance(question, SourceQuestion)
        fetch.asked_at.pop(connection.address, None)
        if fetch.done:
            return
        reason = self._refusal(fetch, piece, content, at_source=at_source)
        if reason:
            fetch.reasons.append(f"{connection.address}: {reason}")
            self._ask_next(fetch)
            return
        if connection.address in fetch.across_zones:
            self._counters.add(fetch.key.version, Count.ZONE_BYTES, piece.length)
        self._finish(fetch)
        origin = Count.SOURCE_READS if at_source else Count.PEER_READS
        for waiter, index in fetch.waiting:
            self._answers.piece(waiter, index, content, key=fetch.key, origin=origin)
        if not fetch.waiting:
            self._buffer.put(fetch.key, kept(content))

    def _refusal(self, fetch: Fetch, piece: Piece, content: memoryview, *, at_source: bool) -> str:
        """Why an answer is not what was asked for; empty when it is."""
        if piece.length == frames.REFUSED:
            fetch.changed = fetch.changed or piece.hash == frames.CHANGED
            return bytes(content).decode("utf-8", "replace")
        if piece.length < 0:
            return "it does not have the block"
        wrong = ""
        if piece.length != fetch.key.length or (not at_source and piece.size != fetch.size):
            wrong = f"its block {piece.block} has {piece.size} bytes, and {fetch.size} are in the manifest"
        elif xxhash.xxh3_64_intdigest(content) != piece.hash:
            wrong = f"the bytes of block {piece.block} that came are damaged"
        if wrong:
            self._counters.add(fetch.key.version, Count.REFUSED)
            self._note(f"an answer is not used: {wrong}")
        return wrong

    def _finish(self, fetch: Fetch) -> None:
        fetch.done = True
        del self._running[fetch.key]
        if fetch.ahead:
            ahead_bytes = self.ahead[fetch.key.version] - fetch.key.length
            if ahead_bytes:
                self.ahead[fetch.key.version] = ahead_bytes
            else:
                del self.ahead[fetch.key.version]

    def _fail(self, fetch: Fetch, *, stale: bool) -> None:
        self._finish(fetch)
        self._answer_failed(fetch, fetch.waiting, stale=stale)

    def _answer_failed(self, fetch: Fetch, waiting: Sequence[tuple[Read, int]], *, stale: bool) -> None:
        reason = "; ".join(dict.fromkeys(fetch.reasons[-4:])) or "no agent is known that has it"
        for waiter, _ in waiting:
            self._answers.failed(waiter, stale=stale, reason=reason)

    def _broken(self, connection: PeerConnection[Question], reason: str) -> None:
        self._close(connection)
        if (
            not connection.expected
        ):  # agents end connections that ask for nothing, when others need the places
            return
        self._paused[connection.address] = self._clock() + _PAUSE_SECONDS
        self._note(f"the connection to the agent at {connection.address} ended: {reason}")
        questions = deque(connection.expected)
        connection.expected.clear()
        for question in questions:
            fetch = question.fetch
            if not fetch.done and fetch.asked_at.pop(connection.address, None) is not None:
                fetch.reasons.append(f"{connection.address}: {reason}")
                if not fetch.asked_at:
                    self._ask_next(fetch)

    def _close(self, connection: PeerConnection[Question]) -> None:
        for lane, lanes in list(self._lanes.items()):
            if connection in lanes:
                lanes.remove(connection)
                if not lanes:
                    del self._lanes[lane]
        self._unsent.pop(connection.fd, None)
        self._poller.remove(connection)
        connection.close()

    def _note(self, text: str) -> None:
        now = self._clock()
        if now - self._logged_at > _LOG_SECONDS:
            self._logged_at = now
            _log.warning("%s; others are asked", text)


def _at_source(version: OpenVersion, key: Key) -> SourceWanted:
    manifest = version.manifest
    file = manifest.file_of(key.block)
    first = manifest.blocks_of(file).start
    return SourceWanted(
        mount=version.registration.path,
        path=manifest.file_path(file),
        block=int(manifest.block_ids[key.block]),
        offset=int(manifest.block_lengths[first : key.block].sum()) + key.offset,
        length=key.length,
        size=int(manifest.lengths[file]),
        tag=manifest.tag(file),
    )
