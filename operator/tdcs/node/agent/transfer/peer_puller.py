"""Brings blocks from other agents: a thread for each peer, which ends when that peer has nothing that is missing."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from typing import Final

import numpy as np

from tdcs.model.agent_state import Peer
from tdcs.model.block_identity import identity_of
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.partial_file import BusyError, DiskError
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.peer_book import PeerBlocks
from tdcs.node.wire.block_client import BlockClient, WrongContentError
from tdcs.node.wire.frames import FrameError, Piece, Wanted

_log: Final = logging.getLogger(__name__)

BATCH: Final = 128
BATCH_BYTES: Final = 16 << 20
"""Of one request to a peer; a second one is sent before the first is answered."""

_BATCHES_BETWEEN_NEWS: Final = 16
_NEWS_WAIT_SECONDS: Final = 2.0


class PeerPuller:
    """Brings blocks from peers onto one disk.

    Args:
        disk, room: where they go, and what fits.
        answer_seconds: a peer that sends nothing for so long is taken for dead.
        tls: gives the context of the time, with which peers are spoken to; None: plain TCP.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        room: Room,
        stopped: threading.Event,
        answer_seconds: float,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._tls: Final = tls
        self._answer_seconds: Final = answer_seconds
        self._disk: Final = disk
        self._room: Final = room
        self._stopped: Final = stopped

    def run(self, mount: MountWork, peer: Peer, *, over: Callable[[], bool] = lambda: False) -> None:
        """Read blocks of a mount from a peer until it has none that are missing. Runs in a thread of its own.

        Args:
            over: asked again and again whether to end now, for others.
        """
        ledger = mount.ledger
        if ledger is None:
            return
        try:
            with BlockClient(
                address=peer.address,
                answer_seconds=self._answer_seconds,
                tls=self._tls() if self._tls is not None else None,
            ) as client:
                self._pull(mount, ledger, peer, client, over)
        except DiskError as error:
            mount.no_room(ledger, [], str(error))
        except (OSError, FrameError, ValueError) as error:
            _log.info("the agent of node %s does not give blocks of %s: %s", peer.node, mount.path, error)
            mount.peers.failed(peer.node)

    def _pull(
        self,
        mount: MountWork,
        ledger: Ledger,
        peer: Peer,
        client: BlockClient,
        over: Callable[[], bool],
    ) -> None:
        peer_blocks = PeerBlocks(clock=mount.clock)
        instance = place = placements = 0
        wait = 0.0
        while not self._over(mount, ledger):
            if placements != ledger.assigned.placements:  # what did not matter before may be awaited now
                peer_blocks, instance, place = PeerBlocks(clock=mount.clock), 0, 0
                placements = ledger.assigned.placements
            news = client.feed(mount=mount.path, instance=instance, place=place, wait_seconds=wait)
            if instance not in (0, news.instance):
                peer_blocks = PeerBlocks(clock=mount.clock)
            instance, place = news.instance, news.place
            numbers = ledger.manifest.blocks_at(np.asarray(news.blocks, dtype=np.int64))
            numbers = numbers[numbers >= 0]
            with mount.lock:
                numbers = ledger.awaited(numbers)
            peer_blocks.add(numbers)
            peer_blocks.ask_again()
            count = self._batches(mount, ledger, peer, client, peer_blocks)
            if not count:
                self._disk.names.wait()  # what has come is not missing
                mount.peers.waits(peer.node)
            if over() or self._idle(mount, ledger, peer):
                return
            wait = 0.0 if count or len(news.blocks) else min(_NEWS_WAIT_SECONDS, self._answer_seconds / 2)

    def _over(self, mount: MountWork, ledger: Ledger) -> bool:
        current = mount.peers.by_node
        return (
            self._stopped.is_set()
            or mount.ledger is not ledger
            or mount.forgotten
            or not current
            or mount.clock() < mount.room_until
        )

    def _idle(self, mount: MountWork, ledger: Ledger, peer: Peer) -> bool:
        """Whether nothing is missing that this peer holds or will hold."""
        now_known = mount.peers.by_node.get(peer.node)
        if now_known is None or now_known.address != peer.address:
            return True
        with mount.lock:
            missing = ledger.assigned.missing_slots(from_peers=True)
        return not any(
            missing_byte & peer_byte for missing_byte, peer_byte in zip(missing, now_known.slots, strict=True)
        )

    def _batches(
        self, mount: MountWork, ledger: Ledger, peer: Peer, client: BlockClient, peer_blocks: PeerBlocks
    ) -> int:
        """Take what the peer has, a request ahead; how many blocks were asked for."""
        batch, count = self._ask(mount, ledger, peer, client, peer_blocks), 0
        following: list[int] = []
        try:
            for number in range(_BATCHES_BETWEEN_NEWS):
                if not batch:
                    break
                count += len(batch)
                last = number == _BATCHES_BETWEEN_NEWS - 1 or self._over(mount, ledger)
                following = [] if last else self._ask(mount, ledger, peer, client, peer_blocks)
                for piece in client.pieces(_wanted(ledger, batch)):
                    self._receive(mount, ledger, peer, client, peer_blocks, batch[0], piece)
                    batch.pop(0)
                batch, following = following, []
        finally:
            if batch or following:
                with mount.lock:
                    ledger.release([*batch, *following])
        return count

    def _ask(
        self, mount: MountWork, ledger: Ledger, peer: Peer, client: BlockClient, peer_blocks: PeerBlocks
    ) -> list[int]:
        with mount.lock:
            blocks = ledger.take(
                now=mount.clock(),
                most=BATCH,
                most_bytes=BATCH_BYTES,
                from_peers=True,
                among=peer_blocks,
                cursor=f"peer {peer.node}",
            )
        if blocks:
            try:
                client.ask(_wanted(ledger, blocks))
            except BaseException:
                with mount.lock:
                    ledger.release(blocks)
                raise
        return blocks

    def _receive(
        self,
        mount: MountWork,
        ledger: Ledger,
        peer: Peer,
        client: BlockClient,
        peer_blocks: PeerBlocks,
        block: int,
        piece: Piece,
    ) -> None:
        length = int(ledger.manifest.block_lengths[block])
        if piece.length < 0:  # dropped there since, or wiped
            peer_blocks.remove(block)
            with mount.lock:
                ledger.release([block])
            return
        mount.peers.has_some(peer.node)
        if piece.length != length:
            client.skip()
            self._wrong(mount, ledger, peer, peer_blocks, block, f"it has {piece.length} bytes, not {length}")
            return
        if reason := self._room.reserve(length):
            client.skip()
            mount.no_room(ledger, [block], reason)
            return
        identity = int(ledger.manifest.block_ids[block])
        try:
            with self._disk.create(identity, place=ledger.place(block)) as partial:
                client.take(piece, lambda data, offset: partial.write(data, offset=offset))
                self._disk.keep_later(
                    partial,
                    block=identity,
                    identity=identity_of(ledger.manifest, block),
                    length=length,
                    content_hash=piece.hash,
                    done=lambda error: self._named(mount, ledger, block, error),
                )
        except WrongContentError as error:
            self._room.cancel(length)
            self._wrong(mount, ledger, peer, peer_blocks, block, str(error))
            return
        except BusyError:  # nothing of it was taken
            self._room.cancel(length)
            client.skip()
            mount.busy(ledger, block)
            return
        except BaseException:
            self._room.cancel(length)
            raise
        mount.peers.gave(peer, length)

    def _named(self, mount: MountWork, ledger: Ledger, block: int, error: DiskError | None) -> None:
        if error is None:
            mount.brought(ledger, block)
            return
        self._room.cancel(int(ledger.manifest.block_lengths[block]))
        mount.no_room(ledger, [block], str(error))

    def _wrong(
        self,
        mount: MountWork,
        ledger: Ledger,
        peer: Peer,
        peer_blocks: PeerBlocks,
        block: int,
        how: str,
    ) -> None:
        _log.warning(
            "node %s gave a wrong block of %s (%s): %s", peer.node, mount.path, ledger.path(block), how
        )
        peer_blocks.remove(block)
        mount.wrong_from_peer(ledger, block, f"the copy on node {peer.node} is wrong: {how}")


def _wanted(ledger: Ledger, blocks: list[int]) -> list[Wanted]:
    return [Wanted(int(identity)) for identity in ledger.manifest.block_ids[blocks]]
