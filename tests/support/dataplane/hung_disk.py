"""A file system that takes requests and answers none, as a disk that hangs. Run as a module: where it is mounted."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tdcs.node.reader import session

_INIT = 26


@contextmanager
def hung_disk(point: Path) -> Iterator[None]:
    """One that is mounted there. What waits for it ends with an error when it goes."""
    point.mkdir()
    disk = subprocess.Popen([sys.executable, __file__, str(point)], stdout=subprocess.PIPE)
    try:
        assert disk.stdout is not None
        assert disk.stdout.readline() == b"mounted\n"
        yield
    finally:
        disk.kill()
        disk.wait()
        session.unmount(point=str(point))


def _hang(point: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hung", os.fsencode(point), b"fuse", ctypes.c_ulong(0), options):
        sys.exit(os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    while True:
        request = os.read(device, 1 << 20)
        _, opcode, unique = struct.unpack_from("<IIQ", request)
        if opcode == _INIT:
            body = struct.pack("<IIIIHHIIHHIIH22x", 7, 31, 0, 0, 16, 12, 1 << 17, 1, 32, 0, 0, 0, 0)
            os.write(device, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)


if __name__ == "__main__":
    _hang(sys.argv[1])
