"""What the file system says to kernels of different ages, which offer different features."""

import struct

import pytest

from tdcs.node.reader import fuse_protocol
from tdcs.node.reader.request_memory import PLACES

NEWER = 0xFFFF_FFFF
"""A kernel that offers everything, passthrough and io_uring too."""


def init(*, minor: int, flags: int, major: int = 7) -> bytes:
    """A kernel's first request."""
    body = struct.pack("<IIII", major, minor, 131_072, flags)
    head = fuse_protocol.REQUEST.pack(
        fuse_protocol.REQUEST.size + len(body), fuse_protocol.INIT, 42, 0, 0, 0, 0, 0
    )
    return head + body


def answered(request: bytes) -> tuple[int, int, int]:
    """Length and flags of the answer, and the minor version that it agrees to."""
    answer = fuse_protocol.init_answer(request, unique=42)
    length, error, unique = fuse_protocol.ANSWER.unpack_from(answer)
    assert (length, error, unique) == (len(answer), 0, 42)
    _, minor, _, flags = struct.unpack_from("<IIII", answer, fuse_protocol.ANSWER.size)
    return len(answer), flags, minor


@pytest.mark.parametrize("minor", [31, 34, 45], ids=["Linux 5.4", "Linux 5.15", "a newer one"])
def test_no_feature_is_taken_that_the_kernel_does_not_offer(minor: int) -> None:
    everything = answered(init(minor=minor, flags=NEWER))[1]
    for bit in range(32):
        offered = NEWER & ~(1 << bit)
        assert answered(init(minor=minor, flags=offered))[1] == everything & offered
    assert answered(init(minor=minor, flags=0))[1] == 0


def test_an_older_kernel_is_answered_in_its_own_version_and_a_newer_one_in_the_newest_known() -> None:
    assert answered(init(minor=31, flags=NEWER))[2] == 31
    assert answered(init(minor=34, flags=NEWER))[2] == 34
    assert answered(init(minor=99, flags=NEWER))[2] == 40
    assert answered(init(minor=31, flags=NEWER))[0] == 80, "a header, and what has 64 bytes since 7.23"


@pytest.mark.parametrize(("major", "minor"), [(7, 30), (8, 40), (6, 99)])
def test_a_kernel_that_is_too_old_or_speaks_something_else_is_refused_by_its_version(
    major: int, minor: int
) -> None:
    with pytest.raises(fuse_protocol.Unsupported, match=rf"{major}\.{minor}.*Linux 5\.4"):
        fuse_protocol.init_answer(init(major=major, minor=minor, flags=NEWER), unique=1)


def test_passthrough_and_io_uring_are_not_asked_for_where_they_are_offered() -> None:
    flags = answered(init(minor=45, flags=NEWER))[1]
    assert not flags & 1 << 30, "FUSE_INIT_EXT: without it the kernel reads no flags beyond 32 bits"


def test_the_kernel_lets_as_many_requests_wait_as_the_protocol_can_say() -> None:
    answer = fuse_protocol.init_answer(init(minor=31, flags=NEWER), unique=42)
    *_, bound, congested = struct.unpack_from("<IIIIHH", answer, fuse_protocol.ANSWER.size)
    assert PLACES // 2 < congested < bound == 65535
