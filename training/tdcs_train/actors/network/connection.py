"""One connection to another machine: frames out of a queue, frames in without copies of their payload."""

import socket
from collections import deque
from collections.abc import Callable

from tdcs_train.actors.network.frames import HEAD, SLICE_BYTES, Frame, Kind, parse_head
from tdcs_train.peers.errors import PeerError

Place = Callable[[Frame, int], memoryview]
"""Where the payload of a DATA frame of a length belongs."""


class Payload:
    """The bytes of a register on their way out."""

    __slots__ = ("memory", "number", "offset", "register", "token")

    def __init__(self, pull: Frame, memory: memoryview) -> None:
        self.register, self.token, self.number = pull.register, pull.token, pull.number
        self.memory = memory
        self.offset = 0

    def next_slice(self) -> Frame:
        """The next frame of it."""
        body = self.memory[self.offset : self.offset + SLICE_BYTES]
        frame = Frame(Kind.DATA, self.register, self.token, self.number, self.offset, body)
        self.offset += len(body)
        return frame


class Connection:
    """A connection of one class; all calls come from the network's thread."""

    def __init__(self, connection: socket.socket, *, peer: str) -> None:
        self.socket = connection
        self.peer = peer
        self.payload_sent = 0
        self._frames: deque[Frame] = deque()
        self._payloads: deque[Payload] = deque()
        self._out: deque[memoryview] = deque()
        self._head = memoryview(bytearray(HEAD.size))
        self._filled = 0
        self._frame: Frame | None = None
        self._body: memoryview = memoryview(b"")

    @property
    def wants_to_send(self) -> bool:
        """Whether anything is left to send."""
        return bool(self._out or self._frames or self._payloads)

    def send(self, frame: Frame) -> None:
        """Queue a frame without payload."""
        self._frames.append(frame)

    def send_payload(self, payload: Payload) -> None:
        """Queue the bytes of a register."""
        self._payloads.append(payload)

    def flush(self) -> None:
        """Send as much as the kernel takes, a slice at most.

        Raises:
            OSError: The connection is gone.
        """
        if not self._out and not self._fill_out():
            return
        try:
            while self._out:
                sent = self.socket.send(self._out[0])
                rest = self._out[0][sent:]
                if rest:
                    self._out[0] = rest
                else:
                    self._out.popleft()
        except BlockingIOError:
            return

    def receive(self, place: Place) -> list[tuple[Frame, memoryview]]:
        """The frames that have come, with their bodies; of DATA frames the payload is in its place already.

        Raises:
            PeerError: They mean nothing.
            OSError: The connection is gone.
        """
        found: list[tuple[Frame, memoryview]] = []
        try:
            while len(found) < 64:
                if self._frame is None:
                    if not self._read(self._head):
                        continue
                    frame, length = parse_head(bytes(self._head), peer=self.peer)
                    self._frame, self._filled = frame, 0
                    data = frame.kind is Kind.DATA
                    self._body = place(frame, length) if data else memoryview(bytearray(length))
                if self._filled < len(self._body) and not self._read(self._body):
                    continue
                found.append((self._frame, self._body))
                self._frame, self._filled, self._body = None, 0, memoryview(b"")
        except BlockingIOError:
            pass
        except OSError:
            if not found:
                raise
            # What came before the end, as the reason of it, counts; the next call meets the end again.
        return found

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def _read(self, target: memoryview) -> bool:
        """Fill a part of the target; whether it is full now."""
        count = self.socket.recv_into(target[self._filled :])
        if not count:
            raise ConnectionResetError(f"{self.peer} has closed the connection")
        self._filled += count
        if self._filled < len(target):
            return False
        if target is self._head:
            self._filled = 0
        return True

    def _fill_out(self) -> bool:
        if self._frames:
            frame = self._frames.popleft()
        elif self._payloads:
            frame = self._payloads[0].next_slice()
            self.payload_sent += len(frame.body)
            if self._payloads[0].offset >= len(self._payloads[0].memory):
                self._payloads.popleft()
        else:
            return False
        self._out.append(memoryview(frame.head()))
        if frame.body:
            self._out.append(memoryview(frame.body))
        return True


def refuse(peer: str, what: str) -> PeerError:
    """The error for a frame that does not fit the plan."""
    return PeerError(f"{peer} sent {what}, which the plan does not have; all machines must run the same plan")
