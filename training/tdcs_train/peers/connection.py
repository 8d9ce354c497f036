"""A connection between two workers with credits: nobody sends what the other has no register for.

Each side has a number of receive registers. A packet takes one from the moment it is sent until the receiver's worker
has taken it out; then the credit goes back, with the next packet of the other direction if there is one soon. So the
bytes that wait at a receiver are bounded, and a slow receiver slows the sender down (OneFlow, arXiv 2110.15032,
section 4.2).

Who waits for a packet reads the socket itself: a thread of its own would have to wake the waiting one, which takes
longer than to read. That thread reads in the background what cannot wait: large packets, which do not fit into the
kernel's buffers, credits while packets wait for them, and the end of the connection, while it is asked for.
"""

import contextlib
import functools
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tdcs_train.peers import frames
from tdcs_train.peers.errors import PeerError
from tdcs_train.peers.frames import Arrived, Encoded, Frame, Kind
from tdcs_train.peers.layouts import Layouts

REGISTERS = 3
"""Receive registers of each direction: one is worked on, one arrives, and the credit of one may be on its way back."""
OWED = 2
"""Credits that go back by themselves. A single one waits for a packet: a frame of its own wakes a thread at both ends,
and the sender has two more."""
SMALL = 32 << 10
"""Bytes of a packet that the kernel's buffers take, as a rule for all registers together."""
LAST_SECONDS = 1.0
"""For how long who cannot send waits for the thread that reads: it finds the end, and perhaps its reason, too."""


class Connection:
    """A full-duplex connection to one peer; calls are thread-safe.

    `peer` names the other worker in errors. A wait longer than `timeout` seconds is an error.
    """

    def __init__(self, connection: socket.socket, *, peer: str, timeout: float) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _time_value(timeout))
        self.peer = peer
        self.bytes_sent = 0
        self._socket, self._timeout = connection, timeout
        self._inlet, self._layouts = frames.Inlet(connection), Layouts()
        lock = threading.Lock()
        # Each wakes only who waits for it: a thread that wakes for nothing takes the interpreter from one that works.
        self._incoming, self._outgoing = threading.Condition(lock), threading.Condition(lock)
        self._unread = threading.Condition(lock)
        self._reading = False
        """A thread reads the socket: the one of this connection, or one that takes a packet."""
        self._large = False
        """The packet that came last was large."""
        self._sending = False
        self._rest: memoryview | None = None
        """What the kernel did not take at once of the packet that is being sent."""
        self._outbox: deque[Encoded] = deque()
        self._inbox: deque[Arrived] = deque()
        self._credits = REGISTERS
        self._owed = 0
        self._error: PeerError | None = None
        self._closing = False
        self._watched = False
        """It was asked whether the peer has ended, and nothing was taken since."""
        self._threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True)
            for work in (self._read_behind, self._write)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, header: dict[str, Any], value: Any) -> None:
        """Queues a packet; it leaves when the peer has a register for it. Raises PeerError when the peer has ended.

        A small one that can leave now does so in the calling thread: waking another costs more than sending it.
        """
        encoded = frames.encode(Frame(Kind.DATA, header, value), layouts=self._layouts)
        with self._outgoing:
            self._raise()
            at_once = not self._outbox and self._credits > 0 and encoded.size <= SMALL and not self._sending
            if not at_once:
                self._outbox.append(encoded)
                self._outgoing.notify_all()
                self._unread.notify_all()
                return
            credits = self._charged(encoded)
        try:
            unsent = frames.send_now(self._socket, encoded, credits=credits)
        except OSError as error:
            raise self._lost(error) from error
        if unsent:
            with self._outgoing:
                self._rest = unsent
                self._outgoing.notify_all()
        else:
            self._sent()

    def take(self, *, awaited: str) -> Frame:
        """The next packet of the peer, in the order in which it was sent. `awaited` says what is waited for.

        Raises PeerError when the peer has ended or nothing comes in time.
        """
        until = time.monotonic() + self._timeout
        self._watched = False
        while True:
            with self._incoming:
                remaining = until - time.monotonic()
                has_frame = self._incoming.wait_for(
                    lambda: self._inbox or self._error or not self._reading, max(remaining, 0.0)
                )
                if self._inbox:
                    arrived = self._inbox.popleft()
                    self._owed += 1
                    if self._owed >= OWED:
                        self._outgoing.notify_all()
                    break
                self._raise()
                if not has_frame or remaining <= 0:
                    raise self._silent(awaited)
                self._reading = True
            if not self._read():
                raise self._silent(awaited)
        return frames.decode(arrived, peer=self.peer, layouts=self._layouts)

    def end(self) -> PeerError | None:
        """With what the peer has ended, if it has; from the first question on that is noticed, until the next take."""
        with self._unread:
            self._watched = True
            self._unread.notify_all()
            return self._error

    def announce_abort(self, reason: str) -> None:
        """Begins to send the reason with which the peer is to fail, instead of what is queued; close it next."""
        with self._outgoing:
            self._closing = True
            self._outbox.clear()
            self._outbox.append(frames.encode(Frame(Kind.ABORT, {"reason": reason})))
            self._outgoing.notify_all()
            self._unread.notify_all()

    def close(self, *, reason: str = "") -> None:
        """Sends what is queued and ends the connection; with a reason the peer fails with it instead."""
        if reason and not self._closing:
            self.announce_abort(reason)
        with self._outgoing:
            self._closing = True
            self._outgoing.notify_all()
            self._unread.notify_all()
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

    def _silent(self, awaited: str) -> PeerError:
        return PeerError(
            f"{self.peer} has sent nothing for {self._timeout:g} s while {awaited} was awaited; see its log, or "
            "give it more time (timeout)"
        )

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PeerError as error:
            self._fail(error)
        except OSError as error:
            self._lost(error)

    def _ended(self, error: OSError) -> PeerError:
        return PeerError(f"{self.peer} ended ({error.strerror or error}); see its log")

    def _lost(self, error: OSError) -> PeerError:
        """Ends a connection on which nothing can be sent any more; what it ended with.

        Between takes no thread reads. So the reason that the peer gave may lie unread; it says more than the kernel.
        """
        peer_error = self._ended(error)
        with self._incoming:
            self._incoming.wait_for(lambda: self._error or not self._reading, LAST_SECONDS)
            if self._error:
                return self._error
            other_reads, self._reading = self._reading, True
        if other_reads:  # and waits for bytes still: it is not the peer's end that `error` is about
            self._fail(peer_error)
            return self._error or peer_error
        try:
            self._read_rest()
        except PeerError as reason:
            peer_error = reason
        except OSError:
            pass  # `error` says why the connection ended
        finally:
            self._fail(peer_error)  # before another thread may read: what is left may begin within a frame
            self._has_read()
        return self._error or peer_error

    def _read_rest(self) -> None:
        """Reads all frames that are there, without waiting for more. Raises PeerError for an ABORT, else OSError."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _time_value(0.0))
        while True:
            self._handle(frames.receive(self._inlet.fill, peer=self.peer))

    def _fail(self, error: PeerError) -> None:
        with self._incoming:
            if not self._closing or self._outbox:
                self._error = self._error or error
            self._incoming.notify_all()
            self._outgoing.notify_all()
            self._unread.notify_all()

    def _read_behind(self) -> None:
        """Reads while nobody takes, what has to be read."""
        while True:
            with self._unread:
                self._unread.wait_for(lambda: self._error or (self._cannot_wait() and not self._reading))
                self._raise()
                self._reading = True
            self._read()

    def _cannot_wait(self) -> bool:
        return self._large or self._closing or self._watched or bool(self._outbox)

    def _read(self) -> bool:
        """Reads a frame, as the only thread that does; whether one came in time. Raises PeerError for a bad one."""
        try:
            try:
                self._inlet.wait()
            except BlockingIOError:
                return False
            self._handle(frames.receive(self._inlet.fill, peer=self.peer))
        except PeerError as error:
            self._fail(error)
            raise
        except BlockingIOError as error:
            stopped = PeerError(
                f"{self.peer} has sent nothing for {self._timeout:g} s within a packet; see its log"
            )
            self._fail(stopped)
            raise stopped from error
        except OSError as error:
            peer_error = self._ended(error)
            self._fail(peer_error)
            raise self._error or peer_error from error
        finally:
            self._has_read()
        return True

    def _has_read(self) -> None:
        """Lets another thread read."""
        with self._incoming:
            self._reading = False
            self._incoming.notify_all()
            if self._cannot_wait():
                self._unread.notify_all()

    def _handle(self, arrived: Arrived) -> None:
        if arrived.kind is Kind.ABORT:
            header = frames.decode(arrived, peer=self.peer).header
            raise PeerError(f"{self.peer} ended: {header.get('reason', 'no reason given')}")
        with self._incoming:
            self._credits += arrived.credits
            if self._credits > REGISTERS:
                raise PeerError(f"{self.peer} sent {arrived.credits} credits for fewer packets")
            if arrived.credits and self._outbox:
                self._outgoing.notify_all()
            if arrived.kind is Kind.DATA:
                if len(self._inbox) >= REGISTERS:
                    raise PeerError(f"{self.peer} sent more than there are registers for")
                self._inbox.append(arrived)
                self._large = len(arrived.payload) > SMALL

    def _charged(self, encoded: Encoded) -> int:
        """Marks a frame as the one that leaves now; the credits that go with it. Call it with the lock held."""
        self._sending = True  # so that no other thread puts a packet past this one
        self._credits -= encoded.kind is Kind.DATA
        self.bytes_sent += encoded.size
        owed, self._owed = self._owed, 0
        return owed

    def _write(self) -> None:
        while send := self._next():
            send()
            self._sent()

    def _next(self) -> Callable[[], object] | None:
        """Waits until something can leave; what sends it. None when the connection has been closed."""
        with self._outgoing:
            self._outgoing.wait_for(self._sendable)
            if self._rest:
                unsent, self._rest = self._rest, None
                return functools.partial(self._socket.sendall, unsent)
            if self._packet_can_leave():
                encoded = self._outbox.popleft()
            elif self._owed >= OWED:
                encoded = frames.encode(Frame(Kind.CREDIT, {}))
            else:
                return None
            credits = self._charged(encoded)
        return functools.partial(frames.send, self._socket, encoded, credits=credits)

    def _sendable(self) -> bool:
        if self._error:
            raise self._error
        if self._rest:
            return True
        if self._sending:
            return False
        is_finished = self._closing and not self._outbox
        return is_finished or self._owed >= OWED or self._packet_can_leave()

    def _packet_can_leave(self) -> bool:
        return bool(self._outbox) and (self._credits > 0 or self._outbox[0].kind is not Kind.DATA)

    def _sent(self) -> None:
        with self._outgoing:
            self._sending = False
            if self._outbox or self._owed >= OWED or self._closing:
                self._outgoing.notify_all()


def _time_value(seconds: float) -> bytes:
    """A `struct timeval` for the kernel."""
    return struct.pack("@ll", int(seconds), max(1, int(seconds % 1 * 1e6)))
