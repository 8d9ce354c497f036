"""What travels between two machines: a head of fixed length, then a body."""

import enum
import struct
from dataclasses import dataclass

from tdcs_train.peers.errors import PeerError

MAGIC = b"TDCA"
VERSION = 1
"""Changes with anything that a machine of another version would misread."""
HEAD = struct.Struct("!4sBBHIQQI")
SLICE_BYTES = 256 * 1024
"""The most payload of one frame: so long an urgent register waits for one on its way within the same class."""
MOST_NOTE_BYTES = 1 << 20
"""A body that is no payload: a greeting, or the value of a register."""


class Kind(enum.IntEnum):
    """What a frame says."""

    HELLO = 1
    """The machine, the class of this connection and the digest of the plan."""
    NOTICE = 2
    """A register can be read: its token and number, and in the body its length and value."""
    PULL = 3
    """Send me the bytes of that token."""
    DATA = 4
    """A slice of them."""
    RETURN = 5
    """The register of that token has been read."""
    END = 6
    """No more registers of this descriptor will come."""
    PING = 7
    """I am alive."""
    BYE = 8
    """I have ended well."""
    ABORT = 9
    """I have failed; the body says why."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame. `register` is the place of a descriptor in the plan, `token` the index of one of its registers."""

    kind: Kind
    register: int = 0
    token: int = 0
    number: int = 0
    offset: int = 0
    body: bytes | memoryview = b""

    def head(self) -> bytes:
        """The head in bytes."""
        return HEAD.pack(
            MAGIC, VERSION, self.kind, self.register, self.token, self.number, self.offset, len(self.body)
        )


def parse_head(raw: bytes | bytearray, *, peer: str) -> tuple[Frame, int]:
    """A frame without its body, and the length of that.

    Raises:
        PeerError: It is no frame of this version.
    """
    magic, version, kind, register, token, number, offset, length = HEAD.unpack(raw)
    if magic != MAGIC:
        raise PeerError(f"{peer} does not speak the protocol of tdcs-train (it sent {bytes(magic)!r})")
    if version != VERSION:
        raise PeerError(
            f"{peer} speaks version {version} of the protocol, this machine version {VERSION}; use the same tdcs-train "
            "on all machines"
        )
    if kind not in Kind.__members__.values() or length > (
        SLICE_BYTES if kind == Kind.DATA else MOST_NOTE_BYTES
    ):
        raise PeerError(f"{peer} sent a frame of kind {kind} with {length} bytes, which means nothing")
    return Frame(Kind(kind), register, token, number, offset), length
