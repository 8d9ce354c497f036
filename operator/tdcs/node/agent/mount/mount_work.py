"""One mount as this agent works on it: its ledger, its source, its peers, and what went wrong with them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from tdcs.model import slots
from tdcs.model.agent_state import NO_SLOTS, Assignment, FileFailure, MountState, Peer, SourceAccess
from tdcs.node.agent.backoff import FIRST_SECONDS, pause
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.failed_fetches import Failure, Mask, Numbers
from tdcs.node.agent.mount.handover import Handover
from tdcs.node.agent.mount.peer_health import Patience, PeerHealth
from tdcs.node.agent.mount.rate import Rate
from tdcs.node.agent.mount.readable import ReadableBlocks
from tdcs.node.agent.mount.source_access import open_source
from tdcs.node.agent.mount.source_pieces import SourceFailureError, SourceReader
from tdcs.node.agent.mount.transfer_limits import RateLimit
from tdcs.node.agent.mount.unanswered import UnansweredReads

_log: Final = logging.getLogger(__name__)


_REFUSALS: Final = 32
"""Files that the source refuses in a row before it is given a pause as a whole."""

_MOST_PAUSE: Final = 60.0
_ROOM_PAUSE: Final = 2.0


@dataclass
class MountWork:
    """A mount. Every access to the ledger holds `lock`.

    Attributes:
        lock: one for all mounts of the agent; what lies here and the room that it takes change together under it.
        ledger: None until the manifest is here.
        forgotten: everything of it is to be dropped.
        source_until, room_until: pulling rests until then.
        source_lanes: threads that read from the source.
        pieces_waiting: pieces of large blocks under way that no thread reads yet.
        refused: ids of blocks that a comparison found wrong.
        wrong_from_peers: how often a peer gave something else instead of a block, by its id.
        registered_at: when it was begun last to register some of its blocks.
    """

    path: str
    lock: threading.RLock
    room: Room
    clock: Callable[[], float] = time.monotonic
    patience: Patience = field(default_factory=Patience)
    ledger: Ledger | None = None
    wanted: Assignment | None = None
    forgotten: bool = False
    readable: ReadableBlocks = field(default_factory=ReadableBlocks)
    limit: RateLimit = field(default_factory=RateLimit)
    source: SourceReader | None = None
    source_bytes: Rate = field(default_factory=Rate)
    peer_bytes: Rate = field(default_factory=Rate)
    peers: dict[str, Peer] = field(default_factory=dict)
    health: dict[str, PeerHealth] = field(default_factory=dict)
    source_lanes: int = 0
    pieces_waiting: int = 0
    source_until: float = 0.0
    source_failures: int = 0
    source_failure: FileFailure | None = None
    room_until: float = 0.0
    room_failure: FileFailure | None = None
    wrong_from_peers: dict[int, int] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    registered_at: float = 0.0
    _handover: Handover = field(default_factory=Handover)
    _unanswered: UnansweredReads = field(init=False)
    _access: SourceAccess | None = None
    _waiting_since: float | None = None
    _rest_at: tuple[int, int] | None = None
    _counted: tuple[tuple[int, int], MountState] | None = None

    def __post_init__(self) -> None:
        self._unanswered = UnansweredReads(away_seconds=self.patience.away)

    def assign(self, assignment: Assignment) -> None:
        """Work by this assignment; its manifest is that of the ledger, or follows."""
        with self.lock:
            self.wanted = assignment
            self.forgotten = False
            self.limit.set(assignment.bandwidth)
            self._handover.assign(assignment, now=self.clock())
            self.peers = {peer.node: peer for peer in assignment.peers}
            # A peer that goes and comes back has the thread still that reads from it.
            busy = {node: health for node, health in self.health.items() if health.lanes}
            self.health = busy | {
                node: self.health.get(node) or PeerHealth(progress_at=self.clock()) for node in self.peers
            }
            if assignment.source != self._access:
                self._open(assignment.source)
            if self.ledger is not None and self.ledger.manifest.digest == assignment.manifest:
                self.ledger.assign(assignment)

    def _open(self, access: SourceAccess | None) -> None:
        self._access, self.source = access, None
        self.source_failures, self.source_until, self.source_failure = 0, 0.0, None
        self._unanswered = UnansweredReads(away_seconds=self.patience.away)
        if (
            self.ledger is not None
        ):  # also where a ledger of another version follows, and takes over what failed
            self.ledger.failures.retry()
        if access is None:
            return
        try:
            self.source = open_source(access)
        except (SourceFailureError, ValueError) as error:
            _log.warning("the source of %s cannot be opened: %s", self.path, error)
            self.source_failure = FileFailure(path="", code="SourceAway", reason=str(error))

    # What those who bring blocks say.

    def brought(self, ledger: Ledger, block: int) -> None:
        """A claimed block, for which room was reserved, lies in the spool now."""
        length = int(ledger.manifest.block_lengths[block])
        with self.lock:
            if self._note(ledger, block, spooled=True, registered=False):
                self.room.cancel(length)  # a look at the folders has counted it
            else:
                self.room.keep(length)
            self.room_failure = None
            identity = int(ledger.manifest.block_ids[block])
            self._unanswered.ended(identity)
            self.wrong_from_peers.pop(identity, None)
        self.readable.add((identity,))

    def located(self, ledger: Ledger, block: int, *, spooled: bool, registered: bool) -> None:
        """A claimed block lies in these folders from now on, or in none."""
        with self.lock:
            before = self._note(ledger, block, spooled=spooled, registered=registered)
            if before and not (spooled or registered):
                self.room.removed(int(ledger.manifest.block_lengths[block]))

    def _note(self, ledger: Ledger, block: int, *, spooled: bool, registered: bool) -> bool:
        """Note where a block lies, also in the ledger of a newer version; whether it was counted already."""
        before = bool(ledger.in_spool[block] or ledger.registered[block])
        ledger.located(block, spooled=spooled, registered=registered)
        current = self.ledger
        if current is not None and current is not ledger:
            number = current.manifest.block_at(int(ledger.manifest.block_ids[block]))
            if number is not None:
                before = bool(current.in_spool[number] or current.registered[number])
                current.located(number, spooled=spooled, registered=registered)
        return before

    def source_answered(self, length: int) -> None:
        """A piece came from the source; 0 bytes: it answered for a file that was not to be brought."""
        self.source_bytes.add(length)
        with self.lock:
            if self.source is None:  # it cannot be opened, or not be had: another one was read before
                return
            now = self.clock()
            self._unanswered.answered(now=now)
            if not self.source_failures and self.source_failure is None:
                return
            self.source_failures, self.source_failure = 0, None
            # A short pause stays: a source that throttles answers some requests all the time.
            self.source_until = min(self.source_until, now + FIRST_SECONDS)

    def source_refused(self, ledger: Ledger, block: int, error: SourceFailureError) -> None:
        """A block could not be read from the source."""
        now = self.clock()
        with self.lock:
            if error.code == "SourceAway":
                self._source_silent(ledger, block, error, now=now)
                return
            self._unanswered.ended(int(ledger.manifest.block_ids[block]))
            ledger.failed(block, Failure(code=error.code, reason=str(error)), now=now)
            if not error.common or now < self.source_until:
                return
            self.source_failures += 1
            if self.source_failures % _REFUSALS == 0:
                # All files, or many single ones? Go on slowly, so that those that can be had are found.
                most = self.patience.refused
                self.source_until = now + pause(
                    self.source_failures // _REFUSALS, first=min(1.0, most), most=most
                )

    def _source_silent(self, ledger: Ledger, block: int, error: SourceFailureError, *, now: float) -> None:
        """The source did not answer for a block. Mostly that is not the file's fault: it counts as missing, not as
        failed, and is tried when the source answers again. A file for which it never answers is failed."""
        if ledger.failures.failed[block]:
            ledger.failed_again(block, now=now)  # as before: this says nothing of the source
            return
        identity = int(ledger.manifest.block_ids[block])
        if self._unanswered.note(identity, now=now):
            self._unanswered.ended(identity)
            reason = f"the source answers for other files, and not for this one: {error}"
            ledger.failed(block, Failure(code="Unreadable", reason=reason), now=now)
        else:
            ledger.release([block])
        if self._unanswered.away(now=now):
            self.source_failure = FileFailure(path=ledger.path(block), code=error.code, reason=str(error))
        if error.common and now >= self.source_until:
            self.source_failures += 1
            self.source_until = now + pause(self.source_failures, most=_MOST_PAUSE)

    def doubtful(self, ledger: Ledger, block: int) -> int | None:
        """A block that lies here and can be asked of the source instead of one that was not answered, to learn whether
        the source is away; None when that is known by other reads, or nothing lies here."""
        with self.lock:
            if not self._unanswered.doubtful(int(ledger.manifest.block_ids[block])):
                return None
            here = np.flatnonzero(ledger.held & ~ledger.failures.refused)
            return int(here[0]) if len(here) else None

    def no_room(self, ledger: Ledger, blocks: Iterable[int], reason: str) -> None:
        """Blocks do not fit for now: they are given back, and tried in a moment."""
        with self.lock:
            given = list(blocks)
            ledger.release(given)
            self.room_until = self.clock() + _ROOM_PAUSE
            path = ledger.path(given[0]) if given else ""
            self.room_failure = FileFailure(path=path, code="NoRoom", reason=reason)

    def _waits_for_room(self, ledger: Ledger) -> bool:
        """Whether a block that is to be brought may find no room still: the pause goes on, or it can be tried."""
        both = (False, True)
        if all(ledger.missing_slots(from_peers=peers) == NO_SLOTS for peers in both):
            return False
        now = self.clock()
        return (
            now < self.room_until
            or bool(ledger.claimed.any())
            or any(ledger.ready(now=now, from_peers=peers) for peers in both)
        )

    def wrong_from_peer(self, ledger: Ledger, block: int, how: str) -> None:
        """What a peer gave was not the block, which is claimed; after two such answers the source is asked, or, where
        only peers may give it, they are asked again after a pause that grows."""
        with self.lock:
            identity = int(ledger.manifest.block_ids[block])
            count = self.wrong_from_peers.pop(identity, 0) + 1
            ledger.release([block])
            if count == 1:
                self.wrong_from_peers[identity] = count
            else:
                if not ledger.from_source_instead(block):
                    ledger.failed(block, Failure(code="Unreadable", reason=how), now=self.clock())

    # What comparisons find.

    def refuse(self, ids: Iterable[int]) -> None:
        """Copies of these blocks are wrong: they are dropped, and no others are brought."""
        with self.lock:
            new = set(ids)
            self.refused |= new
            if self.ledger is not None and new:
                self.ledger.refuse(self._numbers(new))

    def admit(self, ids: Iterable[int]) -> None:
        """These blocks may lie here again."""
        with self.lock:
            gone = self.refused.intersection(ids)
            self.refused -= gone
            if self.ledger is not None:
                self.ledger.refuse(self._numbers(gone), refused=False)

    def refused_here(self) -> set[int]:
        """Ids of refused blocks of which a copy lies here, or may: before a look at the folders that is not known."""
        with self.lock:
            if self.ledger is None or not self.ledger.looked_at:
                return set(self.refused)
            here = self.ledger.held | self.ledger.claimed
            numbers = [number for number in self._numbers(self.refused) if here[number]]
            return set(self.ledger.manifest.block_ids[numbers].tolist())

    def opened(self, ledger: Ledger) -> None:
        """Count by this ledger from now on."""
        with self.lock:
            before, self.ledger = self.ledger, ledger
            if before is not None:
                ledger.adopt(before)
            if self.wanted is not None and self.wanted.manifest == ledger.manifest.digest:
                ledger.assign(self.wanted)
            # What is no part of this version has other blocks in it, and is removed as a stranger.
            numbers = self._numbers(self.refused)
            self.refused.intersection_update(ledger.manifest.block_ids[numbers].tolist())
            ledger.refuse(numbers)
            # What was held before this version is news to no look at the folders. Under the lock: what others bring
            # from now on comes after it.
            here = ledger.held & ~ledger.failures.refused
            self.readable.restart(ledger.manifest.block_ids[here].tolist())

    def _numbers(self, ids: Iterable[int]) -> list[int]:
        """Blocks of the ledger with these ids."""
        if self.ledger is None:
            return []
        found = self.ledger.manifest.blocks_at(np.array(sorted(ids), dtype=np.int64))
        return [int(number) for number in found[found >= 0]]

    # What is to be done.

    def to_drop(self, *, most: int, skip: Numbers, spooled_only: bool = False) -> list[int]:
        """Claim blocks that lie here and shall not, those left out that are handed over; see `Ledger.to_drop`."""
        with self.lock:
            if self.ledger is None:
                return []
            return self.ledger.to_drop(
                most=most,
                skip=skip,
                all_blocks=self.forgotten,
                spooled_only=spooled_only,
                kept=self._handed_over(),
            )

    def drops(self) -> bool:
        """Whether some blocks are to be dropped now."""
        with self.lock:
            if self.ledger is None or not (self.forgotten or self.wanted is not None or self.refused):
                return False
            return self.ledger.drops(all_blocks=self.forgotten, kept=self._handed_over())

    def _handed_over(self) -> Mask | None:
        """Slots that stay until those who read them know where they lie now, as long as there is room."""
        lacking = self.room_failure is not None
        return None if lacking or self.forgotten else self._handover.kept(now=self.clock())

    def at_rest(self) -> bool:
        """Whether nothing is to be done; looked at anew only after a change."""
        ledger = self.ledger
        if ledger is None or self.forgotten or self.wanted is None:
            return False
        if self.wanted.manifest != ledger.manifest.digest:
            return False
        with self.lock:
            now = (id(ledger), ledger.changes)
            if self._rest_at != now:
                self._rest_at = now if ledger.done() else None
            return self._rest_at == now

    def source_lanes_wanted(self) -> int:
        """Threads that should read from the source now, besides those that do."""
        ledger, source, now = self.ledger, self.source, self.clock()
        if (
            ledger is None
            or source is None
            or not ledger.looked_at
            or self.forgotten
            or now < max(self.source_until, self.room_until)
        ):
            return 0
        most = 1 if self.source_failures else source.lanes
        if self.source_lanes >= most:
            return 0
        with self.lock:
            ready = ledger.ready(now=now, from_peers=False) + self.pieces_waiting
            return min(most - self.source_lanes, ready)

    @property
    def peer_lanes(self) -> int:
        """Threads that read from peers."""
        return sum(health.lanes for health in self.health.values())

    def peers_wanted(self, *, most: int) -> list[Peer]:
        """Peers that should be asked now, those with complete slots first."""
        ledger, now = self.ledger, self.clock()
        if ledger is None or not ledger.looked_at or self.forgotten or not self.peers:
            return []
        if now < self.room_until:
            return []
        with self.lock:
            if not ledger.ready(now=now, from_peers=True):
                return []
            missing = ledger.missing_slots(from_peers=True)
        candidates = sorted(
            (
                (-slots.count(slots.intersection(missing, peer.complete)), node)
                for node, peer in self.peers.items()
                if not self.health[node].lanes
                and now >= self.health[node].pause_until
                and slots.intersection(missing, peer.slots) != NO_SLOTS
            ),
        )
        return [self.peers[node] for _, node in candidates[: max(0, most - self.peer_lanes)]]

    def peer_waits(self, node: str) -> None:
        """A peer answers, and has nothing of what is missing yet."""
        if (health := self.health.get(node)) is not None:
            health.silent_since = None
            health.empty_since = self.clock() if health.empty_since is None else health.empty_since

    def peer_has_some(self, node: str) -> None:
        """A peer has some of what is missing; whether there is room for it is not known yet."""
        if (health := self.health.get(node)) is not None:
            health.empty_since = None

    def peer_gave(self, node: str) -> None:
        """A peer gave a block. (One that only promises some has not done anything yet.)"""
        if (health := self.health.get(node)) is not None:
            health.failures, health.silent_since, health.progress_at = 0, None, self.clock()

    def peer_failed(self, node: str) -> None:
        """A peer did not answer, or not as it should."""
        health, now = self.health.get(node), self.clock()
        if health is not None:
            health.failures += 1
            health.empty_since = None
            health.pause_until = now + pause(health.failures, most=_MOST_PAUSE / 4)
            health.silent_since = now if health.silent_since is None else health.silent_since

    def pass_over_silent_peers(self) -> None:
        """Let slots that no peer gives, for a bounded time by now, be read from the source; what only peers may give,
        and all of them say that they do not have, is awaited no more."""
        ledger, now = self.ledger, self.clock()
        if ledger is None or self.wanted is None:
            return
        with self.lock:
            lonely = empty = ledger.missing_slots(from_peers=True)
            if lonely == NO_SLOTS:
                self._waiting_since = None
                return
            if self._waiting_since is None:
                self._waiting_since = now
            since = self._waiting_since
            if now - since < self.patience.silent:
                return
            for node, peer in self.peers.items():
                health = self.health[node]
                silent = health.silent_since is not None and now - health.silent_since > self.patience.silent
                if not silent and now - max(health.progress_at, since) <= self.patience.stalled:
                    lonely = slots.difference(lonely, peer.slots)
                # One that is silent, or was not asked yet, may have some: a move away from it is not over.
                empty_at = now if health.empty_since is None else max(health.empty_since, since)
                if now - empty_at <= self.patience.stalled:
                    empty = slots.difference(empty, peer.slots)
            if self.source is not None and ledger.slots_from_source(lonely):
                _log.info("no peer gives some slots of %s: they are read from the source", self.path)
            if ledger.no_peer_has(empty):
                _log.info("no peer has more of some slots of %s: what they had is here", self.path)

    def state(self) -> MountState:
        """What the operator hears of it."""
        with self.lock:
            ledger = self.ledger
            if ledger is None:
                state = MountState(mount=self.path, busy=self.wanted is not None)
            else:
                now = (id(ledger), ledger.changes)
                if self._counted is None or self._counted[0] != now:
                    self._counted = (now, ledger.state())
                state = self._counted[1]
                if self.room_failure is not None and not self._waits_for_room(ledger):
                    self.room_failure = None
            common = [each for each in (self.source_failure, self.room_failure) if each is not None]
            return msgspec.structs.replace(
                state,
                failed=(*common, *state.failed),
                failed_count=state.failed_count + len(common),
                source_bytes=self.source_bytes.total,
                peer_bytes=self.peer_bytes.total,
                source_rate=self.source_bytes.sample(),
                peer_rate=self.peer_bytes.sample(),
                busy=state.busy or self.forgotten,
            )
