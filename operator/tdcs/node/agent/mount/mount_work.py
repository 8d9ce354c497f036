"""One mount as this agent works on it: what lies here and is to be brought, beside its source and its peers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field
from typing import Final

import msgspec
import numpy as np

from tdcs.model import slots
from tdcs.model.agent_state import Assignment, FileFailure, MountState, Peer
from tdcs.model.block_identity import same_blocks
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.block_rows import Mask, Numbers
from tdcs.node.agent.mount.failed_fetches import Failure
from tdcs.node.agent.mount.peer_book import Patience, PeerBook
from tdcs.node.agent.mount.readable import ReadableBlocks
from tdcs.node.agent.mount.source_pieces import SourceFailureError
from tdcs.node.agent.mount.source_state import SourceState

_log: Final = logging.getLogger(__name__)

_ROOM_PAUSE: Final = 2.0


class Handover:
    """Since when each slot of a mount has moved away, by the assignments."""

    def __init__(self) -> None:
        self._moved: Mask = np.zeros(slots.SLOTS, dtype=np.bool_)
        self._until: Final = np.zeros(slots.SLOTS)
        self._last = 0.0

    def assign(self, assignment: Assignment, *, now: float) -> None:
        """Take another assignment; a slot that was moved by the one before it waits no longer for that."""
        moved = slots.mask_of(assignment.moved)
        self._until[moved & ~self._moved] = now + assignment.handover_seconds
        self._moved = moved
        self._last = float(self._until[moved].max(initial=0.0))

    def kept(self, *, now: float) -> Mask | None:
        """Slots that stay for now; None when there are none."""
        if now >= self._last:
            return None
        return np.asarray(self._moved & (self._until > now))


@dataclass
class MountWork:
    """A mount. Every access to the ledger holds `lock`.

    Attributes:
        lock: one for all mounts of the agent; what lies here and the room that it takes change together under it.
        ledger: None until the manifest is here.
        forgotten: everything of it is to be dropped.
        source: how its source answers.
        peers: how the agents answer that its blocks come from.
        room_until: pulling rests until then.
        refused: ids of blocks that a comparison found wrong.
        registered_at: when it was begun last to register some of its blocks.
    """

    path: str
    lock: threading.RLock
    room: Room
    clock: Callable[[], float] = time.monotonic
    patience: InitVar[Patience] = Patience()  # noqa: RUF009 - it is frozen
    ledger: Ledger | None = None
    wanted: Assignment | None = None
    forgotten: bool = False
    readable: ReadableBlocks = field(default_factory=ReadableBlocks)
    source: SourceState = field(init=False)
    peers: PeerBook = field(init=False)
    room_until: float = 0.0
    room_failure: FileFailure | None = None
    refused: set[int] = field(default_factory=set)
    registered_at: float = 0.0
    _handover: Handover = field(default_factory=Handover)
    _rest_at: tuple[int, int] | None = None
    _counted: tuple[tuple[int, int], MountState] | None = None

    def __post_init__(self, patience: Patience) -> None:
        self.source = SourceState(path=self.path, patience=patience, lock=self.lock, clock=self.clock)
        self.peers = PeerBook(patience=patience, clock=self.clock)

    def assign(self, assignment: Assignment) -> None:
        """Work by this assignment; its manifest is that of the ledger, or follows."""
        with self.lock:
            self.wanted = assignment
            self.forgotten = False
            self.source.limit.set(assignment.bandwidth)
            self._handover.assign(assignment, now=self.clock())
            self.peers.assign(assignment.peers)
            if self.source.assign(assignment.source) and self.ledger is not None:
                # Also where a ledger of another version follows, and takes over what failed.
                self.ledger.retry()
            if self.ledger is not None and self.ledger.manifest.digest == assignment.manifest:
                self.ledger.assign(assignment)

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
            self.source.ended(identity)
            self.peers.came(identity)
        self.readable.add((identity,))

    def located(self, ledger: Ledger, block: int, *, spooled: bool, registered: bool) -> None:
        """A claimed block lies in these folders from now on, or in none."""
        with self.lock:
            before = self._note(ledger, block, spooled=spooled, registered=registered)
            if before and not (spooled or registered):
                self.room.removed(int(ledger.manifest.block_lengths[block]))

    def _note(self, ledger: Ledger, block: int, *, spooled: bool, registered: bool) -> bool:
        """Note where a block lies, also in the ledger of a newer version; whether it was counted already."""
        before = ledger.lies_here(block)
        ledger.located(block, spooled=spooled, registered=registered)
        current = self.ledger
        if current is not None and current is not ledger:
            number = int(same_blocks(current.manifest, ledger.manifest, np.array([block]))[0])
            if number >= 0:
                before = current.lies_here(number)
                current.located(number, spooled=spooled, registered=registered)
        return before

    def source_refused(self, ledger: Ledger, block: int, error: SourceFailureError) -> None:
        now, identity = self.clock(), int(ledger.manifest.block_ids[block])
        with self.lock:
            if error.code != "SourceAway":
                self.source.ended(identity)
                self._refused(ledger, block, error, now=now)
            # No answer is mostly not the file's fault: it counts as missing, not as failed, and is tried when the
            # source answers again. A file for which it never answers is failed.
            elif ledger.has_failed(block):
                ledger.failed_again(block, now=now)  # as before: this says nothing of the source
            elif self.source.unanswered_block(identity, error, path=ledger.path(block)):
                reason = f"the source answers for other files, and not for this one: {error}"
                ledger.failed(block, Failure(code="Unreadable", reason=reason), now=now)
            else:
                ledger.postponed(block, now=now)

    def _refused(self, ledger: Ledger, block: int, error: SourceFailureError, *, now: float) -> None:
        """Note a block that the source refuses: it has failed, unless the source refuses all."""
        source, failure = self.source, Failure(code=error.code, reason=str(error))
        if not error.common:
            ledger.failed(block, failure, now=now)
        elif source.refuses_all:
            ledger.postponed(block, now=now)
            source.refuse_all(error, path=ledger.path(block))
        elif ledger.has_failed(block):
            ledger.failed(block, failure, now=now)  # as before: this says nothing of other files
        else:
            ledger.failed(block, failure, now=now)
            source.refused.note(block)
            if source.refused.full and ledger.a_right_block() is None:
                self.refuses_all(ledger, block, error)

    def refuses_all(self, ledger: Ledger, block: int, error: SourceFailureError) -> None:
        """The source refuses whatever it is asked for, this block the last: no single file has failed by that."""
        with self.lock:
            ledger.forgive(self.source.refused.blocks)
            self.source.refuse_all(error, path=ledger.path(block))

    def doubtful(self, ledger: Ledger, block: int) -> int | None:
        """A block that lies here and can be asked of the source instead of one that was not answered, or was refused
        as all others lately, to learn whether the source is away or refuses all; None when that is known by other
        reads, or nothing lies here."""
        with self.lock:
            silent = self.source.unanswered.doubtful(int(ledger.manifest.block_ids[block]))
            if not silent and not (self.source.refused.full and not self.source.refuses_all):
                return None
            return ledger.a_right_block()

    def no_room(self, ledger: Ledger, blocks: Iterable[int], reason: str) -> None:
        """Blocks do not fit for now: they are given back, and tried in a moment."""
        with self.lock:
            given = list(blocks)
            ledger.release(given)
            self.room_until = self.clock() + _ROOM_PAUSE
            path = ledger.path(given[0]) if given else ""
            self.room_failure = FileFailure(path=path, code="NoRoom", reason=reason)

    def busy(self, ledger: Ledger, block: int) -> None:
        """A block cannot be written for now, others can: it is given back, and tried in a moment."""
        with self.lock:
            ledger.postponed(block, now=self.clock())

    def _waits_for_room(self, ledger: Ledger) -> bool:
        """Whether a block that is to be brought may find no room still: the pause goes on, or it can be tried."""
        if not ledger.misses():
            return False
        now = self.clock()
        return (
            now < self.room_until
            or bool(ledger.claims)
            or any(ledger.ready(now=now, from_peers=peers) for peers in (False, True))
        )

    def wrong_from_peer(self, ledger: Ledger, block: int, how: str) -> None:
        """What a peer gave was not the block, which is claimed; after two such answers the source is asked, or, where
        only peers may give it, they are asked again after a pause that grows."""
        with self.lock:
            ledger.release([block])
            again = self.peers.is_wrong_again(int(ledger.manifest.block_ids[block]))
            if again and not ledger.from_source_instead(block):
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
            ledger = self.ledger
            numbers = [
                number
                for number in self._numbers(self.refused)
                if ledger.lies_here(number) or ledger.in_work(number)
            ]
            return set(ledger.manifest.block_ids[numbers].tolist())

    def opened(self, ledger: Ledger) -> None:
        with self.lock:
            before, self.ledger = self.ledger, ledger
            self.source.refused.blocks.clear()  # numbers of the manifest before
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
            self.readable.restart(ledger.manifest.block_ids[ledger.right_blocks()].tolist())

    def _numbers(self, ids: Iterable[int]) -> list[int]:
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
        ledger, now = self.ledger, self.clock()
        if (
            ledger is None
            or self.source.reader is None
            or not ledger.looked_at
            or self.forgotten
            or now < max(self.source.until, self.room_until)
        ):
            return 0
        with self.lock:
            return self.source.lanes_wanted(ledger.ready(now=now, from_peers=False))

    def peers_wanted(self, *, most: int) -> list[Peer]:
        """Peers that should be asked now, those with complete slots first."""
        ledger, now = self.ledger, self.clock()
        if ledger is None or not ledger.looked_at or self.forgotten or not self.peers.by_node:
            return []
        if now < self.room_until:
            return []
        with self.lock:
            if not ledger.ready(now=now, from_peers=True):
                return []
            missing = ledger.missing_slots(from_peers=True)
        return self.peers.next(missing, most=most)

    def pass_over_silent_peers(self) -> None:
        """Let slots that no peer gives, for a bounded time by now, be read from the source; what only peers may give,
        and all of them say that they do not have, is awaited no more."""
        ledger = self.ledger
        if ledger is None or self.wanted is None:
            return
        with self.lock:
            given_up = self.peers.passed_over(ledger.missing_slots(from_peers=True))
            if given_up is None:
                return
            if self.source.reader is not None and ledger.slots_from_source(given_up.lonely):
                _log.info("no peer gives some slots of %s: they are read from the source", self.path)
            if ledger.no_peer_has(given_up.empty):
                _log.info("no peer has more of some slots of %s: what they had is here", self.path)

    def state(self) -> MountState:
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
            common = [each for each in (self.source.failure, self.room_failure) if each is not None]
            common += self.source.slow.values()
            return msgspec.structs.replace(
                state,
                failed=(*common, *state.failed),
                source_away=self.source.failure is not None,
                no_room=self.room_failure is not None,
                source_bytes=self.source.bytes.total,
                peer_bytes=self.peers.bytes.total,
                source_rate=self.source.bytes.sample(),
                peer_rate=self.peers.bytes.sample(),
                busy=state.busy or self.forgotten,
            )
