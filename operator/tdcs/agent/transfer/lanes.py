"""The threads that bring blocks: some for the source of a mount, one for each of its peers. They end when there is
nothing to bring for now, and are started again when there is.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tdcs.agent.backoff import pause
from tdcs.agent.mount.mount import MountWork
from tdcs.agent.transfer.peer_puller import PeerPuller
from tdcs.agent.transfer.source_puller import SourcePuller
from tdcs.engine.agents import Peer

_log: Final = logging.getLogger(__name__)

MOST_PEERS: Final = 6
"""Peers of one mount that are read from at the same time."""


class Lanes:
    """Starts threads and counts those that run. All calls in one event loop, which is set before the first.

    Args:
        sources, peers: what a thread does.
        ended: called in the loop whenever a thread has ended.
        clock: seconds that only grow.
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
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self, mount: MountWork) -> None:
        """Start the threads that a mount lacks."""
        if mount.pieces_waiting and (mount.source is None or mount.forgotten):
            self._sources.abandon(mount)
        for _ in range(mount.source_lanes_wanted()):
            mount.source_lanes += 1
            self._thread(self._read_source, mount)
        for peer in mount.peers_wanted(most=MOST_PEERS):
            mount.health[peer.node].lanes += 1
            self._thread(self._read_peer, mount, peer)

    def _thread(self, target: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, name=target.__name__, daemon=True).start()

    def _read_source(self, mount: MountWork) -> None:
        try:
            self._sources.run(mount)
        except Exception:
            _log.exception("reading the source of %s failed", mount.path)
            mount.source_until = self._clock() + pause(1)
        finally:
            self._call(self._source_ended, mount)

    def _source_ended(self, mount: MountWork) -> None:
        mount.source_lanes -= 1
        self._ended()

    def _read_peer(self, mount: MountWork, peer: Peer) -> None:
        try:
            self._peers.run(mount, peer)
        except Exception:
            _log.exception("reading %s from node %s failed", mount.path, peer.node)
            mount.peer_failed(peer.node)
        finally:
            self._call(self._peer_ended, mount, peer.node)

    def _peer_ended(self, mount: MountWork, node: str) -> None:
        if (health := mount.health.get(node)) is not None:
            health.lanes = max(0, health.lanes - 1)
        self._ended()

    def _call(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run something in the loop, from a thread."""
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                self.loop.call_soon_threadsafe(action, *arguments)
