"""A clock that jumps: libfaketime, which is loaded before the C library, gives programs another time of day.

Only the time of day jumps. Measured time (``CLOCK_MONOTONIC``), waits, and the times of files stay, as when the clock
of a machine is set. Programs that call the kernel without the C library, such as Go's, see the real time.
"""

import tarfile
from collections.abc import Mapping
from pathlib import Path

from tdcs_local import cache, host
from tdcs_local.containers import debian
from tdcs_local.errors import LocalError
from tdcs_local.progress import Reporter

ROOT = debian.Root(
    name="faketime",
    # that of the images' base: a newer one needs a newer C library than theirs
    release="bookworm",
    packages=("libfaketime",),
    networked=False,
    extracted=True,
)
LIBRARY = "libfaketime.so.1"
_WAIT = b"clock_nanosleep"
"""Python's `time.sleep`. Version 0.9.10 computes the end of a measured wait from the time of day, which is refused."""
OFFSET = "offset"
"""A file next to the library with what the clock is off by, such as ``+3600`` or ``-2d``; it is read each second.

It is replaced by another file, and never empty: what cannot be read ends the program."""


def ensure(*, reporter: Reporter) -> Path:
    """The file of the library; made now unless it is cached. Raises :class:`LocalError` when that fails."""

    def build(scratch: Path) -> None:
        host.require_programs("mmdebstrap", reporter=reporter)
        with tarfile.open(debian.ensure(ROOT, reporter=reporter)) as root:
            (library,) = (
                member for member in root.getmembers() if member.name.endswith(f"/faketime/{LIBRARY}")
            )
            content = root.extractfile(library)
            if content is None:
                raise LocalError(what=f"{library.name} in Debian's package is no file", remedy="report it")
            (scratch / LIBRARY).write_bytes(_without(_WAIT, content.read()))

    waiting = "another process unpacks libfaketime: waiting"
    key = cache.digest([ROOT.key(), _WAIT])
    return cache.product("faketime", key, build, on_wait=lambda: reporter.say(waiting)) / LIBRARY


def _without(function: bytes, library: bytes) -> bytes:
    """The library without its version of a function: programs get that of the C library.

    Another name of the same length takes the place of the function's in the table of exported names, which comes before
    the other places that have it.
    """
    return library.replace(b"\0" + function + b"\0", b"\0" + b"-" * len(function) + b"\0", 1)


def environment(folder: str, *, library: str = "") -> Mapping[str, str]:
    """The variables of a program, so that its clock is off by what the file ``OFFSET`` in a folder says.

    Args:
        folder: as the program sees it.
        library: of :func:`ensure`, when it is not in that folder.
    """
    return {
        "LD_PRELOAD": library or f"{folder}/{LIBRARY}",
        "FAKETIME_TIMESTAMP_FILE": f"{folder}/{OFFSET}",
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # else waits of the JVM, which are measured, end at once
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "FAKETIME_DISABLE_SHM": "1",
        "NO_FAKE_STAT": "1",
    }
