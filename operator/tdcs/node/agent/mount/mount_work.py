"""One mount as this agent works on it: what is here and is to be brought, next to its source and its peers."""

from __future__ import annotations

import logging
from dataclasses import InitVar, dataclass, field
from typing import Final

import msgspec

from tdcs.model.agent_state import Assignment, MountState, Peer
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.failed_fetches import Failure
from tdcs.node.agent.mount.mount_blocks import MountBlocks
from tdcs.node.agent.mount.peer_book import Patience, PeerBook
from tdcs.node.agent.mount.source_pieces import SourceFailureError
from tdcs.node.agent.mount.source_state import SourceState

_log: Final = logging.getLogger(__name__)


@dataclass
class MountWork(MountBlocks):
    """A mount, with those that its blocks come from. Whoever needs its blocks alone takes it as `MountBlocks`.

    Attributes:
        source: how its source answers.
        peers: how the agents answer that its blocks come from.
    """

    patience: InitVar[Patience] = Patience()  # noqa: RUF009 - it is frozen
    source: SourceState = field(init=False)
    peers: PeerBook = field(init=False)
    _counted: tuple[tuple[int, int], MountState] | None = None

    def __post_init__(self, patience: Patience) -> None:
        self.source = SourceState(path=self.path, patience=patience, lock=self.lock, clock=self.clock)
        self.peers = PeerBook(patience=patience, clock=self.clock)

    def assign(self, assignment: Assignment) -> None:
        with self.lock:
            self.source.limit.set(assignment.bandwidth)
            self.peers.assign(assignment.peers)
            if self.source.assign(assignment.source) and self.ledger is not None:
                # Also where a ledger of another version follows, and takes over what failed.
                self.ledger.retry()
            super().assign(assignment)

    def opened(self, ledger: Ledger) -> None:
        with self.lock:
            self.source.refused.blocks.clear()  # numbers of the manifest before
            super().opened(ledger)

    # What those who bring blocks say.

    def brought(self, ledger: Ledger, block: int) -> None:
        identity = int(ledger.manifest.block_ids[block])
        with self.lock:
            self.source.ended(identity)
            self.peers.came(identity)
        super().brought(ledger, block)

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
        """A block that is here and can be asked of the source instead of one that was not answered, or was refused
        as all others lately, to learn whether the source is away or refuses all; None when that is known by other
        reads, or nothing is here."""
        with self.lock:
            silent = self.source.unanswered.doubtful(int(ledger.manifest.block_ids[block]))
            if not silent and not (self.source.refused.full and not self.source.refuses_all):
                return None
            return ledger.a_right_block()

    def wrong_from_peer(self, ledger: Ledger, block: int, how: str) -> None:
        """What a peer gave was not the block, which is claimed; after two such answers the source is asked, or, where
        only peers may give it, they are asked again after a pause that grows."""
        with self.lock:
            ledger.release([block])
            again = self.peers.is_wrong_again(int(ledger.manifest.block_ids[block]))
            if again and not ledger.assigned.from_source_instead(block):
                ledger.failed(block, Failure(code="Unreadable", reason=how), now=self.clock())

    # What is to be done.

    def read_on(self, identity: int) -> None:
        """A pod of this node reads the block with this id, which has to come from elsewhere: what is brought next
        follows it. A program that reads on in the order of the files finds its data here then, however late it began,
        and one that reads a folder alone waits for no other one."""
        with self.lock:
            ledger = self.ledger
            if ledger is None or not ledger.assigned.misses():
                return
            block = ledger.manifest.block_at(identity)
            if block is not None:
                ledger.read_on(block)

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
            missing = ledger.assigned.missing_slots(from_peers=True)
        return self.peers.next(missing, most=most)

    def pass_over_silent_peers(self) -> None:
        """Let slots that no peer gives, for a bounded time by now, be read from the source; what only peers may give,
        and all of them say that they do not have, is awaited no more."""
        ledger = self.ledger
        if ledger is None or self.assignment is None:
            return
        with self.lock:
            given_up = self.peers.passed_over(ledger.assigned.missing_slots(from_peers=True))
            if given_up is None:
                return
            if self.source.reader is not None and ledger.assigned.slots_from_source(given_up.lonely):
                _log.info("no peer gives some slots of %s: they are read from the source", self.path)
            if ledger.assigned.no_peer_has(given_up.empty):
                _log.info("no peer has more of some slots of %s: what they had is here", self.path)

    def state(self) -> MountState:
        with self.lock:
            ledger = self.ledger
            if ledger is None:
                state = MountState(mount=self.path, busy=self.assignment is not None)
            else:
                now = (id(ledger), ledger.changes)
                if self._counted is None or self._counted[0] != now:
                    self._counted = (now, ledger.state())
                state = self._counted[1]
                if self.room_failure is not None and not self.waits_for_room(ledger):
                    self.room_failure = None
            common = [failure for failure in (self.source.failure, self.room_failure) if failure is not None]
            common += self.source.slow.values()
            return msgspec.structs.replace(
                state,
                failed=(*common, *state.failed),
                source_away=self.source.failure is not None,
                no_room=self.room_failure is not None,
                source_bytes=self.source.bytes.total,
                peer_bytes=self.peers.bytes.total,
                cross_zone_bytes=self.peers.cross_zone.total,
                source_rate=self.source.bytes.sample(),
                peer_rate=self.peers.bytes.sample(),
                busy=state.busy or self.forgotten,
                early_files=self.early_files,
            )
