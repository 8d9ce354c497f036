"""Serves a FUSE session: one loop takes requests from the kernel, and answers them in any order."""

import errno
import logging
import os
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

from tdcs.api import names
from tdcs.node.reader import fuse_protocol
from tdcs.node.reader.counters import Counters
from tdcs.node.reader.request_memory import Left, RequestMemory
from tdcs.node.reader.serving.local_blocks import LocalBlocks
from tdcs.node.reader.serving.local_disks import LocalDisks
from tdcs.node.reader.serving.open_versions import OpenVersion, OpenVersions, StillOpeningError
from tdcs.node.reader.serving.place_shares import PlaceShares
from tdcs.node.reader.serving.pod_clock import PodClock
from tdcs.node.reader.serving.poller import Poller
from tdcs.node.reader.serving.reads import Reads
from tdcs.node.reader.serving.refusals import Refusals
from tdcs.node.reader.serving.version_tree import parse_node
from tdcs.node.reader.session import SessionEndedError
from tdcs.node.reader.session_holder import Session
from tdcs.node.reader.turn import hold

_log: Final = logging.getLogger(__name__)

_REQUESTS_AT_ONCE: Final = 16
_TICK_SECONDS: Final = 0.1
_REFRESH_SECONDS: Final = 0.5
_TIDY_SECONDS: Final = 60.0
_ROOT_SECONDS: Final = 1
_LOG_SECONDS: Final = 5.0
"""That a version is gone is logged once in so many seconds."""
_MOST_LOGGED: Final = 256
_MOST_EARLY_SIGNALS: Final = 1024
_MOST_TRIES: Final = 2
_INVALIDATION_THREADS: Final = 4
_NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENODEV})
"""The kernel does not know the file, or the session has ended."""
_AGAIN: Final = frozenset({errno.EINTR, errno.EAGAIN, errno.ENOENT})


class Server:
    """Serves one session.

    Args:
        session: descriptors of it and of its requests' memory.
        buffer_bytes: how much of what was fetched is kept.
        patience_seconds: a read that no agent and no source can answer for so long fails.
        tls: gives the context of the time, with which agents are asked; None: plain TCP.
        until: asked ten times a second; serving ends when it says so, and the next process takes over.
        pods: counts how long pods wait; None: nothing does.
        memory: of the session's requests, with a turn that was taken; None: the turn begins when it runs.
        disks: of this node, by which versions are opened, too.
        lock: of who serves, see `turn`; held once nobody else does.
    """

    def __init__(
        self,
        *,
        session: Session,
        versions: OpenVersions,
        counters: Counters,
        buffer_bytes: int,
        patience_seconds: float,
        tls: Callable[[], ssl.SSLContext] | None = None,
        until: Callable[[], bool] = lambda: False,
        pods: PodClock | None = None,
        memory: RequestMemory | None = None,
        disks: LocalDisks | None = None,
        lock: int | None = None,
    ) -> None:
        self._until: Final = until
        self._fd: Final = session.fd
        self._lock: Final = lock
        self._memory: Final = memory or RequestMemory(session.memory)
        self._versions: Final = versions
        self._counters: Final = counters
        self._poller: Final = Poller()
        self._disks: Final = disks or LocalDisks()
        self._refusals: Final = Refusals(disks=self._disks, drop=self._drop_blocks)
        self._page_cache: Final = PageCache(session.fd)
        self._shares: Final = PlaceShares(lambda: self._memory.free)
        self._reads: Final = Reads(
            versions=versions,
            counters=counters,
            poller=self._poller,
            reply=self._reply,
            shares=self._shares,
            local=LocalBlocks(disks=self._disks, counters=counters, is_refused=self._refusals.has),
            buffer_bytes=buffer_bytes,
            patience_seconds=patience_seconds,
            tls=tls,
            pods=pods,
        )
        self._taking = False
        self._parked: Final = deque[int]()
        versions.opened = self._go_on
        self._early_signals: Final[dict[int, None]] = {}
        self._stale_at: Final[dict[int, float]] = {}
        self._handlers: Final[dict[int, Callable[[int, memoryview, int, int], None]]] = {
            fuse_protocol.LOOKUP: self._lookup,
            fuse_protocol.GETATTR: self._getattr,
            fuse_protocol.READ: self._read,
            fuse_protocol.INTERRUPT: self._interrupt,
            fuse_protocol.READDIR: self._readdir,
            fuse_protocol.READDIRPLUS: self._readdir,
            fuse_protocol.STATFS: self._statfs,
        }

    def run(self) -> None:
        """Answer what an earlier process left, then serve, forever or `until`.

        Raises:
            SessionEndedError: the file system was unmounted.
        """
        try:
            self._serve()
        finally:
            self._memory.leave()
            self._disks.close()
            self._page_cache.close()

    def _serve(self) -> None:
        self._poller.watch(self._disks.fd)
        if self._refusals.fd >= 0:
            self._poller.watch(self._refusals.fd)
        requests = self._memory.take_over()
        self._versions.refresh()
        self._refusals.follow(self._versions.all())
        self._handle_left(requests)
        if requests:
            _log.info("%d requests of an earlier process were taken over", len(requests))
        next_tick = next_refresh = 0.0
        next_tidy = time.monotonic() + _TIDY_SECONDS
        while True:
            self._reads.fetches.flush()
            self._take_more()
            for fd, has_error in self._poller.poll(_TICK_SECONDS):
                if fd == self._fd:
                    self._take_requests()
                elif fd == self._disks.fd:
                    self._disks.ready()
                elif fd == self._refusals.fd:
                    self._refusals.ready()
                elif (connection := self._poller.connection(fd)) is not None:
                    self._reads.fetches.ready(connection, has_error=has_error)
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + _TICK_SECONDS
                self._memory.beat()
                self._counters.beat(pid=os.getpid(), buffered=self._reads.buffer.bytes)
                if self._lock is not None:
                    hold(self._lock)
                if self._memory.is_taken_over():
                    raise SessionEndedError("this process hung for so long that another one serves by now")
                self._handle_left(self._memory.strays())
                self._disks.tick()
                self._reads.tick()
                if self._until():
                    return
            if now >= next_refresh:
                next_refresh = now + _REFRESH_SECONDS
                self._versions.refresh()
                self._refusals.follow(self._versions.all())
            if now >= next_tidy:
                next_tidy = now + _TIDY_SECONDS
                self._counters.keep(self._versions.numbers())

    def _drop_blocks(self, version: OpenVersion, blocks: Iterable[int]) -> None:
        """Blocks of a version were found wrong on this node: nothing of what was read of them is to be read again."""
        manifest = version.manifest
        numbers = manifest.blocks_at(np.fromiter(blocks, dtype=np.int64))
        for block in numbers[numbers >= 0].tolist():
            self._reads.drop_block(version, block)
            node = version.tree.file(manifest.file_of(block)).node
            self._page_cache.invalidate(
                node, offset=manifest.offset(block), length=version.block_lengths[block]
            )

    # Requests.

    def _take_more(self) -> None:
        if (self._memory.free > 0) == self._taking:
            return
        self._taking = not self._taking
        if self._taking:
            self._poller.watch(self._fd)
        else:
            self._poller.unwatch(self._fd)

    def _take_requests(self) -> None:
        for _ in range(_REQUESTS_AT_ONCE):
            if not self._memory.free:
                return
            try:
                place = self._memory.read(self._fd)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    raise SessionEndedError("the file system was unmounted") from error
                if error.errno in _AGAIN:
                    return
                raise
            self._handle(place)

    def _handle_left(self, requests: Sequence[Left]) -> None:
        """Answer what another process has taken; last what that one may have hung by."""
        self._shares.bounded = False  # it could wait when it came, so it waits on
        for place, tries in sorted(requests, key=lambda request: request.tries):
            if tries < _MOST_TRIES:
                self._memory.beat()
                self._handle(place, tries=tries)
                continue
            unique = fuse_protocol.REQUEST.unpack_from(self._memory.request(place))[2]
            _log.error(
                "a request by which %d processes have hung fails; see which disk does not answer", tries
            )
            self._fail(place, unique, errno.EIO)
        self._shares.bounded = True

    def _handle(self, place: int, *, tries: int = 0) -> None:
        self._memory.take_in_hand(place, tries)
        self._work_on(place)
        self._memory.put_down()

    def _work_on(self, place: int) -> None:
        request = self._memory.request(place)
        length, opcode, unique, node, *_ = fuse_protocol.REQUEST.unpack_from(request)
        if opcode in fuse_protocol.UNANSWERED:
            self._memory.release(place)
            return
        handler = self._handlers.get(opcode)
        if handler is None:
            self._fail(place, unique, errno.ENOSYS)
            return
        try:
            handler(place, request[:length], unique, node)
        except StillOpeningError:
            self._parked.append(place)
        except OSError as error:
            self._fail(place, unique, error.errno or errno.EIO)
        except MemoryError:
            raise  # this process ends, and the next one answers what is left
        except Exception:
            _log.exception("a request of kind %d failed by a defect of the reader", opcode)
            self._fail(place, unique, errno.EIO)

    def _go_on(self) -> None:
        """A version is open: what is of others waits on."""
        for _ in range(len(self._parked)):
            self._handle(self._parked.popleft())

    def _reply(self, place: int, pieces: Sequence[bytes | memoryview]) -> None:
        try:
            os.writev(self._fd, pieces)
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise SessionEndedError("the file system was unmounted") from error
            if error.errno != errno.ENOENT:  # an earlier process has answered it, or its reader was killed
                _log.warning("an answer of %d bytes was refused: %s", sum(map(len, pieces)), error)
        self._memory.release(place)

    def _fail(self, place: int, unique: int, number: int) -> None:
        self._reply(place, (fuse_protocol.failure(unique, number=number),))

    def _fail_stale(self, place: int, unique: int, number: int) -> None:
        """What a program has open, or remembers, is of a version that is not there any more."""
        now = time.monotonic()
        if now - self._stale_at.get(number, -_LOG_SECONDS) >= _LOG_SECONDS:
            if len(self._stale_at) >= _MOST_LOGGED:
                self._stale_at.clear()
            self._stale_at[number] = now
            _log.warning(
                "version %s is registered no more, as when its dataset was deleted: what programs have open of it "
                "gives ESTALE",
                self._versions.name(number),
            )
        self._fail(place, unique, errno.ESTALE)

    def _lookup(self, place: int, request: memoryview, unique: int, node: int) -> None:
        name = bytes(request[fuse_protocol.REQUEST.size : -1])
        if node == fuse_protocol.ROOT:
            version_name = os.fsdecode(name).removesuffix(names.READER_NUMBERED)
            named = self._versions.named(version_name)
            if named is None:
                self._fail(place, unique, errno.ENOENT)
            else:
                numbered = len(version_name) < len(os.fsdecode(name))
                root = named.tree.numbered() if numbered else named.tree.root()
                answer = fuse_protocol.entry_answer(unique, root, seconds=_ROOT_SECONDS)
                self._reply(place, (answer,))
            return
        parent = parse_node(node)
        version = self._versions.get(parent.version)
        if version is None or parent.is_file:
            if version is None:
                self._fail_stale(place, unique, parent.version)
            else:
                self._fail(place, unique, errno.ENOTDIR)
            return
        attributes = version.tree.find(folder=parent.place, name=name)
        if attributes is None:
            self._reply(place, (fuse_protocol.no_entry_answer(unique),))
        else:
            self._reply(place, (fuse_protocol.entry_answer(unique, attributes),))

    def _getattr(self, place: int, _: memoryview, unique: int, node: int) -> None:
        if node == fuse_protocol.ROOT:
            root = fuse_protocol.Attributes(node, 4096, 0, False)
            self._reply(place, (fuse_protocol.attribute_answer(unique, root),))
            return
        target = parse_node(node)
        version = self._versions.get(target.version)
        attributes = version.tree.attributes(target) if version is not None else None
        if attributes is None:
            self._fail_stale(place, unique, target.version)
        else:
            self._reply(place, (fuse_protocol.attribute_answer(unique, attributes),))

    def _read(self, place: int, request: memoryview, unique: int, node: int) -> None:
        _, offset, size = fuse_protocol.READ_BODY.unpack_from(request, fuse_protocol.REQUEST.size)
        target = parse_node(node)
        version = self._versions.get(target.version)
        if version is None or not target.is_file or target.place >= len(version.manifest):
            self._fail_stale(place, unique, target.version)
            return
        self._reads.start(
            version,
            file=target.place,
            offset=offset,
            size=size,
            place=place,
            unique=unique,
            thread=fuse_protocol.thread_of(request),
        )
        if unique in self._early_signals or fuse_protocol.is_signalled(request):
            self._early_signals.pop(unique, None)
            self._signal(unique)

    def _interrupt(self, place: int, request: memoryview, _: int, node: int) -> None:
        unique = fuse_protocol.INTERRUPT_BODY.unpack_from(request, fuse_protocol.REQUEST.size)[0]
        self._memory.release(place)
        if not self._signal(unique):
            # It has its answer, or is one of a process that hangs, and comes yet.
            self._early_signals[unique] = None
            if len(self._early_signals) > _MOST_EARLY_SIGNALS:
                del self._early_signals[next(iter(self._early_signals))]

    def _signal(self, unique: int) -> bool:
        """A signal has reached the thread of a read; whether that waits on. The next process is to know it, too."""
        place = self._reads.signal(unique)
        if place is not None:
            fuse_protocol.mark_signalled(self._memory.request(place))
        return place is not None

    def _readdir(self, place: int, request: memoryview, unique: int, node: int) -> None:
        _, offset, size = fuse_protocol.READ_BODY.unpack_from(request, fuse_protocol.REQUEST.size)
        opcode = fuse_protocol.REQUEST.unpack_from(request)[1]
        entries = b""
        if node != fuse_protocol.ROOT:
            target = parse_node(node)
            version = self._versions.get(target.version)
            if version is None or target.is_file:
                self._fail_stale(place, unique, target.version)
                return
            plus = opcode == fuse_protocol.READDIRPLUS
            entries = version.tree.entries(folder=target.place, offset=offset, size=size, plus=plus)
        head = fuse_protocol.ANSWER.pack(fuse_protocol.ANSWER.size + len(entries), 0, unique)
        self._reply(place, (head, entries))

    def _statfs(self, place: int, _: memoryview, unique: int, node: int) -> None:
        self._reply(place, (fuse_protocol.statfs_answer(unique),))


class PageCache:
    """Has the kernel forget parts of files: what it has in memory of them, also under programs that map them.

    Args:
        session: descriptor of the session.
    """

    def __init__(self, session: int) -> None:
        self._session: Final = session
        self._threads: Final = ThreadPoolExecutor(_INVALIDATION_THREADS, thread_name_prefix="page-cache")

    def invalidate(self, node: int, *, offset: int, length: int) -> None:
        """Begin to drop a part of a file. The kernel waits until reads of it are answered, so threads do it."""
        self._threads.submit(
            self._write_invalidation, fuse_protocol.invalidation(node, offset=offset, length=length)
        )

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _write_invalidation(self, message: bytes) -> None:
        try:
            os.write(self._session, message)
        except OSError as error:
            if error.errno not in _NOTHING_THERE:
                _log.error("the kernel does not forget bytes of a wrong block: %s; restart its pods", error)
