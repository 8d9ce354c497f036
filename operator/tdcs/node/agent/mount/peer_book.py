"""The agents that a mount's blocks come from: who they are, how it goes with each, and which of them are asked next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tdcs.model import slots
from tdcs.model.agent_state import NO_SLOTS, Peer
from tdcs.model.sorted_numbers import union
from tdcs.node.agent.backoff import pause
from tdcs.node.agent.mount.block_rows import Mask, Numbers
from tdcs.node.agent.mount.transfer_limits import Rate


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long others are waited for, in seconds.

    Attributes:
        answer: a peer that sends nothing for so long is taken for dead.
        silent: one that was asked and has not answered for so long is passed over: its slots are read from the source.
        stalled: the same for one that answers, but has had nothing new for so long.
        refused: a source that refuses one file after the other is given a pause of so long at most.
        away: a source that answers nothing for so long is reported as away.
    """

    answer: float = 30.0
    silent: float = 30.0
    stalled: float = 120.0
    refused: float = 10.0
    away: float = 10.0


@dataclass
class PeerHealth:
    """How it went with a peer lately. Times are seconds of the monotonic clock."""

    failures: int = 0
    pause_until: float = 0.0
    silent_since: float | None = None
    empty_since: float | None = None
    """Since when it answers, and has nothing of what is missing."""
    progress_at: float = 0.0
    lanes: int = 0


class PeerBlocks:
    """Blocks that a peer has, of those that are to come from peers. For one thread.

    One that the peer did not give is asked for again after a pause that grows: it says what has come there once, and
    what it could not give may be there, or be right, by then.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._blocks: Numbers = np.zeros(0, dtype=np.int64)
        self._removed: set[int] = set()
        self._refusals = 0
        self._again_at = 0.0

    def add(self, blocks: Numbers) -> None:
        """These too; ascending."""
        if len(blocks):
            self._removed.difference_update(blocks.tolist() if self._removed else ())
            self._blocks = union(self._blocks, blocks)

    def remove(self, block: int) -> None:
        """It did not give this one."""
        if not self._removed:
            self._refusals += 1
            self._again_at = self._clock() + pause(self._refusals)
        self._removed.add(block)

    def ask_again(self) -> None:
        """Take it to have what it did not give, when the time for that has come."""
        if self._removed and self._clock() >= self._again_at:
            self._removed.clear()

    def among(self, blocks: Numbers) -> Mask:
        """Which of these, ascending, it has."""
        if not len(self._blocks):
            return np.zeros(len(blocks), dtype=np.bool_)
        places = np.minimum(np.searchsorted(self._blocks, blocks), len(self._blocks) - 1)
        mask = self._blocks[places] == blocks
        if self._removed:
            mask &= ~np.isin(blocks, np.fromiter(self._removed, dtype=np.int64))
        return np.asarray(mask)


_MOST_PAUSE: Final = 15.0


class PassedOver(NamedTuple):
    """Slots that are awaited from peers no more: `lonely` may be read from the source, and of `empty` all peers say
    that they do not have it."""

    lonely: bytes
    empty: bytes


class PeerBook:
    """The peers of one mount. The threads that read from peers each note what is of their own; whoever changes or
    compares all of them holds the mount's lock.

    Attributes:
        by_node: the peers of the last assignment.
        health: by node, also of peers that are none any more while a thread reads from them.
        bytes: what came from peers.
        cross_zone: bytes of these that came from other zones.
    """

    def __init__(self, *, patience: Patience, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._patience: Final = patience
        self._waiting_since: float | None = None
        self._wrong: Final[dict[int, int]] = {}
        self.by_node: dict[str, Peer] = {}
        self.health: dict[str, PeerHealth] = {}
        self.bytes: Final = Rate()
        self.cross_zone: Final = Rate()

    def assign(self, peers: Sequence[Peer]) -> None:
        now = self._clock()
        self.by_node = {peer.node: peer for peer in peers}
        # A peer that goes and comes back has the thread still that reads from it.
        busy = {node: health for node, health in self.health.items() if health.lanes}
        self.health = busy | {
            node: self.health.get(node) or PeerHealth(progress_at=now) for node in self.by_node
        }

    @property
    def lanes(self) -> int:
        return sum(health.lanes for health in self.health.values())

    def next(self, missing: bytes, *, most: int) -> list[Peer]:
        """Peers that should be asked now for some of these slots, those with complete ones first."""
        now = self._clock()
        candidates = sorted(
            (-slots.count(slots.intersection(missing, peer.complete)), node)
            for node, peer in self.by_node.items()
            if not self.health[node].lanes
            and now >= self.health[node].pause_until
            and slots.intersection(missing, peer.slots) != NO_SLOTS
        )
        return [self.by_node[node] for _, node in candidates[: max(0, most - self.lanes)]]

    def waits(self, node: str) -> None:
        """A peer answers, and has nothing of what is missing yet."""
        if (health := self.health.get(node)) is not None:
            health.silent_since = None
            health.empty_since = self._clock() if health.empty_since is None else health.empty_since

    def has_some(self, node: str) -> None:
        """A peer has some of what is missing; whether there is room for it is not known yet."""
        if (health := self.health.get(node)) is not None:
            health.empty_since = None

    def gave(self, peer: Peer, length: int) -> None:
        """A peer gave a block. (One that only promises some has not done anything yet.)"""
        self.bytes.add(length)
        if peer.cross_zone:
            self.cross_zone.add(length)
        if (health := self.health.get(peer.node)) is not None:
            health.failures, health.silent_since, health.progress_at = 0, None, self._clock()

    def failed(self, node: str) -> None:
        now = self._clock()
        if (health := self.health.get(node)) is not None:
            health.failures += 1
            health.empty_since = None
            health.pause_until = now + pause(health.failures, most=_MOST_PAUSE)
            health.silent_since = now if health.silent_since is None else health.silent_since

    def is_wrong_again(self, identity: int) -> bool:
        """A peer gave something else instead of a block; whether that was the second time."""
        if self._wrong.pop(identity, 0):
            return True
        self._wrong[identity] = 1
        return False

    def came(self, identity: int) -> None:
        self._wrong.pop(identity, None)

    def passed_over(self, missing: bytes) -> PassedOver | None:
        """Which of these slots, that only peers may give so far, no peer has given for a bounded time; None before."""
        now = self._clock()
        if missing == NO_SLOTS:
            self._waiting_since = None
            return None
        if self._waiting_since is None:
            self._waiting_since = now
        since = self._waiting_since
        if now - since < self._patience.silent:
            return None
        lonely = empty = missing
        for node, peer in self.by_node.items():
            health = self.health[node]
            silent = health.silent_since is not None and now - health.silent_since > self._patience.silent
            if not silent and now - max(health.progress_at, since) <= self._patience.stalled:
                lonely = slots.difference(lonely, peer.slots)
            # One that is silent, or was not asked yet, may have some: a move away from it is not over.
            empty_at = now if health.empty_since is None else max(health.empty_since, since)
            if now - empty_at <= self._patience.stalled:
                empty = slots.difference(empty, peer.slots)
        return PassedOver(lonely, empty)
