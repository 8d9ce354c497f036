"""The threads that bring blocks: some for the source of a mount, one for each of its peers. They end when there is
nothing to bring for now, and are started again when there is.

The agent has a bound of each kind. While mounts want more than that, a thread ends after its turn, and the mounts with
the fewest go first.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tdcs.model.agent_state import Peer
from tdcs.node.agent.backoff import pause
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.peer_book import PeerBook
from tdcs.node.agent.mount.source_state import SourceState
from tdcs.node.agent.transfer.peer_puller import PeerPuller
from tdcs.node.agent.transfer.source_puller import SourcePuller

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LaneBound:
    """A bound of threads of one kind.

    Attributes:
        most: of all mounts together.
        shared: beyond so many a mount gets its first one only: a source that hangs never holds all of them.
    """

    most: int
    shared: int


@dataclass(frozen=True, kw_only=True)
class LaneShares:
    """What may be started now.

    Attributes:
        of: threads by mount.
        crowded: whether some mount wants more than it gets.
    """

    of: Mapping[str, int]
    crowded: bool


def lanes_to_start(
    *, lanes_by_mount: Mapping[str, int], running: Mapping[str, int], total: int, bound: LaneBound
) -> LaneShares:
    """Threads for the mounts that have fewest, one after the other; among equals in the order of `lanes_by_mount`.

    Args:
        lanes_by_mount: how many more each mount could use.
        total: all that run, also for mounts that are gone.
    """
    granted: dict[str, int] = {}
    waiting = [
        (running.get(path, 0), place, path, count)
        for place, (path, count) in enumerate(lanes_by_mount.items())
        if count
    ]
    heapq.heapify(waiting)
    while waiting:
        threads, place, path, count = heapq.heappop(waiting)
        if total >= (bound.shared if threads else bound.most):
            return LaneShares(of=granted, crowded=True)
        granted[path] = granted.get(path, 0) + 1
        total += 1
        if count > 1:
            heapq.heappush(waiting, (threads + 1, place, path, count - 1))
    return LaneShares(of=granted, crowded=False)


MOST_PEERS: Final = 6
"""Peers of one mount that are read from at the same time."""
SOURCE_LANES: Final = LaneBound(most=64, shared=48)
PEER_LANES: Final = LaneBound(most=24, shared=18)

_SOURCE_TURN: Final = 1.0
_PEER_TURN: Final = 5.0
"""Seconds for which a thread may go on while mounts wait for one. A peer sends its list again with each turn."""
_NO_THREAD_PAUSE: Final = 1.0


class Lanes:
    """Starts threads and counts those that run. All calls in one event loop, which is set before the first.

    Args:
        ended: called in the loop whenever a thread has ended.
    """

    def __init__(
        self,
        *,
        sources: SourcePuller,
        peers: PeerPuller,
        ended: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._sources: Final = sources
        self._peers: Final = peers
        self._ended: Final = ended
        self._clock: Final = clock
        self._until = 0.0
        self._source_threads = self._peer_threads = 0
        self._source_crowded = self._peer_crowded = False
        self._served: dict[str, float] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self, mounts: Collection[MountWork]) -> None:
        """Start the threads that these mounts lack, as far as the bounds go."""
        for mount in mounts:
            if mount.source.pieces_waiting and (mount.source.reader is None or mount.forgotten):
                self._sources.abandon(mount)
        if self._clock() < self._until:
            return
        by_path = {mount.path: mount for mount in mounts}
        self._served = {path: at for path, at in self._served.items() if path in by_path}
        waited_longest = sorted(by_path.values(), key=lambda mount: self._served.get(mount.path, 0.0))
        try:
            self._start_sources(waited_longest)
            self._start_peers(waited_longest)
        except RuntimeError as error:  # the process may have no more threads
            self._until = self._clock() + _NO_THREAD_PAUSE
            _log.warning("no thread to bring blocks can be started for now: %s", error)

    def _start_sources(self, mounts: Collection[MountWork]) -> None:
        shares = lanes_to_start(
            lanes_by_mount={mount.path: mount.source_lanes_wanted() for mount in mounts},
            running={mount.path: mount.source.lanes for mount in mounts},
            total=self._source_threads,
            bound=SOURCE_LANES,
        )
        self._source_crowded = shares.crowded
        for mount in mounts:
            for _ in range(shares.of.get(mount.path, 0)):
                over = self._turn(_SOURCE_TURN, lambda: self._source_crowded)
                self._thread(self._read_source, mount, over)
                mount.source.lanes += 1
                self._source_threads += 1
                self._served[mount.path] = self._clock()

    def _start_peers(self, mounts: Collection[MountWork]) -> None:
        peers_by_mount = {mount.path: mount.peers_wanted(most=MOST_PEERS) for mount in mounts}
        shares = lanes_to_start(
            lanes_by_mount={path: len(peers) for path, peers in peers_by_mount.items()},
            running={mount.path: mount.peers.lanes for mount in mounts},
            total=self._peer_threads,
            bound=PEER_LANES,
        )
        self._peer_crowded = shares.crowded
        for mount in mounts:
            for peer in peers_by_mount[mount.path][shares.of.get(mount.path, 0) :]:
                # It waits for a thread of this agent: that says nothing of the peer.
                mount.peers.health[peer.node].progress_at = self._clock()
        for mount in mounts:
            for peer in peers_by_mount[mount.path][: shares.of.get(mount.path, 0)]:
                over = self._turn(_PEER_TURN, lambda: self._peer_crowded)
                self._thread(self._read_peer, mount, peer, over)
                mount.peers.health[peer.node].lanes += 1
                self._peer_threads += 1
                self._served[mount.path] = self._clock()

    def _turn(self, seconds: float, crowded: Callable[[], bool]) -> Callable[[], bool]:
        """Whether a thread that starts now shall end, for others that wait."""
        ends_at = self._clock() + seconds
        return lambda: crowded() and self._clock() >= ends_at

    def _thread(self, target: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, name=target.__name__, daemon=True).start()

    def _read_source(self, mount: MountWork, over: Callable[[], bool]) -> None:
        try:
            self._sources.run(mount, over=over)
        except Exception:
            _log.exception("reading the source of %s failed", mount.path)
            mount.source.until = self._clock() + pause(1)
        finally:
            self._call(self._source_ended, mount.source)

    def _source_ended(self, source: SourceState) -> None:
        source.lanes -= 1
        self._source_threads -= 1
        self._ended()

    def _read_peer(self, mount: MountWork, peer: Peer, over: Callable[[], bool]) -> None:
        try:
            self._peers.run(mount, peer, over=over)
        except Exception:
            _log.exception("reading %s from node %s failed", mount.path, peer.node)
            mount.peers.failed(peer.node)
        finally:
            self._call(self._peer_ended, mount.peers, peer.node)

    def _peer_ended(self, peers: PeerBook, node: str) -> None:
        self._peer_threads -= 1
        if (health := peers.health.get(node)) is not None:
            health.lanes = max(0, health.lanes - 1)
        self._ended()

    def _call(self, action: Callable[..., None], *arguments: Any) -> None:
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                self.loop.call_soon_threadsafe(action, *arguments)
