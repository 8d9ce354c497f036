"""The wire format of the block service: many blocks, or pieces of them, a request. Pure; little-endian.

A connection begins with a greeting of each side.
Then requests follow one another, and may be sent before the answers to earlier ones have come:

- READ: up to `MOST_READS` pieces of blocks. For each, in this order, a header (`Piece`) and the bytes; a block that is
  not here has the length -1 and no bytes. The hash is of the bytes that follow, so that whoever receives can check
  them; that of a whole block is the one that was kept when it was written. With the flag `READ_ON` nothing is asked
  for: a pod of the giver's own node reads these blocks, which come from elsewhere. What the giver is loading goes on
  from there, and it answers as if it had none of them.
- SOURCE: a piece of a file that no agent has, which the giver reads from the mount's source for the asker; it keeps it
  only where reads fill the cache. The answer is that to one piece; when it cannot be had, the length is `REFUSED`, the
  size is that of the reason (text) that follows, and the hash is `CHANGED` or `UNREADABLE`. To an asker that set the
  flag `PATIENT` headers of the length `WAITING` come before that, while the source's rate makes it wait.
- FEED: ids of blocks of a mount that became readable after a place in the giver's list, waiting for some to come. A
  place of another instance of the giver's process is taken for the list's beginning.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

MAGIC: Final = b"TDCB"
VERSION: Final = 2
ACCEPTED: Final = 0
OTHER_VERSION: Final = 2
BUSY: Final = 3
FORBIDDEN: Final = 4
"""Status of a greeting: the caller's certificate has no role that may ask for anything."""

READ: Final = 1
FEED: Final = 2
SOURCE: Final = 3
READ_ON: Final = 1
"""Flag of a request of the kind READ, for no bytes. A giver that does not know it answers with no bytes, too."""
WHOLE: Final = -1
"""Length of a piece that reaches to the block's end, and of one that is not here."""

REFUSED: Final = -2
"""Length in the answer to SOURCE of a piece that cannot be had."""
WAITING: Final = -3
"""Length in a header that only says that the answer will come: the asker need not take the giver for dead."""
WAITING_SECONDS: Final = 2.0
"""How often it is sent."""
PATIENT: Final = 1
"""Flag of a request of the kind SOURCE: the asker knows `WAITING`."""
CHANGED: Final = 1
"""Why: the source has another version of the file, or none."""
UNREADABLE: Final = 2
"""Why: anything else; it may work later, or through another agent."""

PART_BYTES: Final = 1 << 20
"""Readers ask for larger blocks in parts of this size."""
MOST_READS: Final = 1024
LONGEST_SOURCE: Final = 65536
"""Bytes of a request of the kind SOURCE."""
LARGEST_SOURCE: Final = 4 << 20
"""Bytes that one of them may ask for."""
MOST_FEED: Final = 65536
"""Ids in one answer to FEED."""
LONGEST_NAME: Final = 1024
"""Bytes of a mount's path."""

GREETING: Final = struct.Struct("<4sHH2x")
REQUEST: Final = struct.Struct("<HHI")
"""Kind, flags, and a count: of pieces, or of bytes that follow."""
PLACE: Final = struct.Struct("<QQI")
ASKED: Final = struct.Struct("<qqq")
PIECE: Final = struct.Struct("<qqqQ")
_ONE_READ: Final = struct.Struct("<HHIqqq")
NEWS: Final = struct.Struct("<QQI")


class FrameError(Exception):
    """What came is no frame of this protocol, or not the one that was asked for."""


class Wanted(NamedTuple):
    """A piece of a block to read: bytes from `offset`, `WHOLE` for all to the end."""

    block: int
    offset: int = 0
    length: int = WHOLE


class Piece(NamedTuple):
    """Header of an answer: `length` bytes follow, of a block that has `size`; both -1 when it is not here."""

    block: int
    length: int
    size: int
    hash: int


class SourceWanted(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A piece of a file to be read from the source of its mount.

    Attributes:
        mount: path of the mount in the cache.
        path: of the file, relative to the mount.
        block: id of the block that the piece belongs to; the answer names it.
        offset, length: of the piece, in the file.
        size, tag: of the file, as it was listed.
    """

    mount: str
    path: bytes
    block: int
    offset: int
    length: int
    size: int
    tag: str


class News(NamedTuple):
    """Blocks that became readable at a giver, and the place after them."""

    instance: int
    place: int
    blocks: Sequence[int]


def greeting(*, status: int = ACCEPTED) -> bytes:
    return GREETING.pack(MAGIC, VERSION, status)


def parse_greeting(content: bytes | memoryview) -> tuple[int, int]:
    """Version and status; raises FrameError."""
    magic, version, status = GREETING.unpack(content)
    if magic != MAGIC:
        raise FrameError("what answers there is no block service of an agent")
    return version, status


def _refusal(*, status: int, version: int, address: str) -> str:
    if status == OTHER_VERSION or version != VERSION:
        return f"the agent at {address} speaks version {version} of the protocol, and this one {VERSION}"
    if status == FORBIDDEN:
        return f"the agent at {address} gives nothing to the role in this process's certificate"
    return f"the agent at {address} answers as many connections as it may have; it is asked again in a moment"


def check_greeting(content: memoryview, *, address: str) -> None:
    """Raise FrameError unless an agent's greeting is a welcome."""
    version, status = parse_greeting(content)
    if version != VERSION or status != ACCEPTED:
        raise FrameError(_refusal(status=status, version=version, address=address))


def read_request(pieces: Sequence[Wanted]) -> bytes:
    if len(pieces) == 1:
        return _ONE_READ.pack(READ, 0, 1, *pieces[0])
    flat = [value for piece in pieces for value in piece]
    return REQUEST.pack(READ, 0, len(pieces)) + struct.pack(f"<{len(flat)}q", *flat)


def read_on_request(block: int) -> bytes:
    """Say that a pod of the giver's node reads a block that comes from elsewhere."""
    return _ONE_READ.pack(READ, READ_ON, 1, *Wanted(block, 0, 0))


def parse_wanted(body: bytes) -> list[Wanted]:
    """The pieces that a request asks for; raises FrameError."""
    pieces = [Wanted(*fields) for fields in ASKED.iter_unpack(body)]
    if any(piece.offset < 0 or piece.length < WHOLE for piece in pieces):
        raise FrameError("a piece of a block begins at 0 or later, and has -1 bytes (all) or more")
    return pieces


def source_request(piece: SourceWanted) -> bytes:
    """A request for a piece of a file at the source."""
    body = msgspec.msgpack.encode(piece)
    return REQUEST.pack(SOURCE, PATIENT, len(body)) + body


def parse_source_wanted(body: bytes) -> SourceWanted:
    """The piece that a request asks for; raises FrameError, also for a path that leads out of the mount."""
    try:
        piece = msgspec.msgpack.decode(body, type=SourceWanted)
    except msgspec.MsgspecError as error:
        raise FrameError(f"a request for a source that cannot be read: {error}") from error
    if piece.offset < 0 or not 0 <= piece.length <= LARGEST_SOURCE:
        raise FrameError(f"a piece of {piece.length} bytes from {piece.offset}")
    if b"\0" in piece.path or any(part in (b"", b".", b"..") for part in piece.path.split(b"/")):
        raise FrameError("a path that is not plain")
    return piece


def feed_request(*, mount: str, instance: int, place: int, wait_ms: int) -> bytes:
    name = mount.encode()
    return REQUEST.pack(FEED, 0, len(name)) + PLACE.pack(instance, place, wait_ms) + name


def news(*, instance: int, place: int, blocks: Sequence[int]) -> bytes:
    return NEWS.pack(instance, place, len(blocks)) + struct.pack(f"<{len(blocks)}q", *blocks)


def check_length(piece: Piece, *, request: Wanted) -> None:
    """Raise FrameError when an answer has another length than `wanted` has of a block of its size."""
    expected = max(0, piece.size - request.offset)
    if request.length != WHOLE:
        expected = min(expected, request.length)
    if piece.length >= 0 and piece.length != expected:
        raise FrameError(f"the answer has {piece.length} bytes of block {piece.block}, not {expected}")
