"""A connection between two workers with credits: nobody sends what the other has no register for.

Each side has a number of receive registers. A packet takes one from the moment it is sent until the receiver's worker
has taken it out; then the credit goes back. So the bytes that wait at a receiver are bounded, and a slow receiver
slows the sender down (OneFlow, arXiv 2110.15032, section 4.2).
"""

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tdcs_train.peers import frames
from tdcs_train.peers.errors import PeerError
from tdcs_train.peers.frames import Frame, Kind

REGISTERS = 2
"""Receive registers of each direction: one is worked on, one arrives."""
SMALL = 32 << 10
"""Bytes that the kernel takes at once."""


class Connection:
    """A full-duplex connection to one peer. Threads of its own read and write; calls are thread-safe.

    `peer` names the other worker in errors. A wait longer than `timeout` seconds is an error.
    """

    def __init__(self, connection: socket.socket, *, peer: str, timeout: float) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer = peer
        self.bytes_sent = 0
        self._socket, self._timeout = connection, timeout
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._outbox: deque[Frame] = deque()
        self._inbox: deque[Frame] = deque()
        self._credits = REGISTERS
        self._owed = 0
        self._error: PeerError | None = None
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True)
            for work in (self._read, self._write)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, header: dict[str, Any], value: Any) -> None:
        """Queues a packet; it leaves when the peer has a register for it.

        A small one that can leave now does so in the calling thread: waking another costs more than sending it.
        """
        frame = Frame(Kind.DATA, header, value)
        with self._changed:
            self._raise()
            at_once = (
                not self._outbox
                and self._credits > 0
                and _tensor_bytes(value) <= SMALL
                and self._sending.acquire(blocking=False)
            )
            if not at_once:
                self._outbox.append(frame)
                self._changed.notify_all()
                return
            self._credits -= 1
        try:
            self._send(frame)
        except OSError as error:
            self._fail(PeerError(f"{self.peer} ended ({error.strerror or error}); see its log"))
            raise self._error or error from error
        finally:
            self._sending.release()

    def take(self, *, awaited: str) -> Frame:
        """The next packet of the peer, in the order in which it was sent. `awaited` says what is waited for.

        Raises PeerError when the peer has ended or nothing comes in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._inbox or self._error, self._timeout):
                raise PeerError(
                    f"{self.peer} has sent nothing for {self._timeout:g} s while {awaited} was awaited; see its "
                    "log, or "
                    "give it more time (timeout)"
                )
            if not self._inbox:
                self._raise()
            frame = self._inbox.popleft()
            self._owed += 1
            self._changed.notify_all()
            return frame

    def close(self, *, reason: str = "") -> None:
        """Sends what is queued and ends the connection; with a reason the peer fails with it instead."""
        with self._changed:
            self._closing = True
            if reason:
                self._outbox.clear()
                self._outbox.append(Frame(Kind.ABORT, {"reason": reason}))
            self._changed.notify_all()
        self._threads[1].join(min(self._timeout, 5.0 if reason else self._timeout))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._threads[0].join(1.0 if reason else min(self._timeout, 5.0))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _raise(self) -> None:
        if self._error:
            raise self._error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PeerError as error:
            self._fail(error)
        except OSError as error:
            self._fail(PeerError(f"{self.peer} ended ({error.strerror or error}); see its log"))

    def _fail(self, error: PeerError) -> None:
        with self._changed:
            if not self._closing or self._outbox:
                self._error = self._error or error
            self._changed.notify_all()

    def _read(self) -> None:
        while True:
            frame = frames.read(self._socket, peer=self.peer)
            with self._changed:
                if frame.kind is Kind.ABORT:
                    raise PeerError(f"{self.peer} ended: {frame.header.get('reason', 'no reason given')}")
                if frame.kind is Kind.CREDIT:
                    self._credits += int(frame.header["count"])
                elif frame.kind is Kind.DATA:
                    if len(self._inbox) >= REGISTERS:
                        raise PeerError(f"{self.peer} sent more than there are registers for")
                    self._inbox.append(frame)
                self._changed.notify_all()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._sendable)
                if self._owed:
                    frame = Frame(Kind.CREDIT, {"count": self._owed})
                    self._owed = 0
                elif not self._outbox:
                    return
                else:
                    frame = self._outbox.popleft()
                    self._credits -= frame.kind is Kind.DATA
                self._sending.acquire()  # before another thread can put a packet past this one
            try:
                self._send(frame)
            finally:
                self._sending.release()

    def _sendable(self) -> bool:
        if self._error:
            raise self._error
        ready = self._outbox and (self._credits > 0 or self._outbox[0].kind is not Kind.DATA)
        return bool(self._owed or ready or (self._closing and not self._outbox))

    def _send(self, frame: Frame) -> None:
        self.bytes_sent += frames.write(self._socket, frame)


def _tensor_bytes(value: Any) -> int:
    """Bytes of the tensors of a value."""
    return sum(
        leaf.numel() * leaf.element_size()
        for leaf in pytree.tree_leaves(value)
        if isinstance(leaf, torch.Tensor)
    )
