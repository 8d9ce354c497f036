"""What the node plugin registers with the reader: a small file for each version of a dataset that pods may read.

ROOT/versions/NAME      a registration; NAME is CLUSTER.DIGEST, and the version's folder in the file system
ROOT/holders/NAME       who holds the slots of its mount, as the operator said last
ROOT/failures/NAME      a file of the version that could be read from nowhere, to be reported
ROOT/pod-waits          how long the reads of each pod waited
ROOT/last-number        the last number that a version was given (`tdcs.engine.reader_files.VersionNumbers`)
ROOT/mnt                the file system
ROOT/holder.sock        the holder's socket
ROOT/readers            locked, shared, by the processes of a reader that can serve it
ROOT/keepers            locked, shared, by a reader that has the session, from before its processes can serve
ROOT/serving            locked by the process that serves the session

Where the reader is not root, the folders and files that it writes are its user's
(`tdcs.engine.reader_files`); the others are root's.
"""

import fcntl
import os
import signal
from pathlib import Path
from typing import Final

from tdcs.api import names
from tdcs.engine import reader_files
from tdcs.engine.pod_wait_table import POD_WAITS
from tdcs.engine.reader_files import DRAFT, RegisteredVersions


class ReaderFolder:
    """The reader's own folder on a node.

    Args:
        root: it is made when it is not there.
    """

    def __init__(self, root: Path) -> None:
        self.root: Final = root
        self.versions: Final = root / names.READER_VERSIONS
        self.holders: Final = root / reader_files.HOLDERS
        self.failures: Final = root / reader_files.FAILURES
        self.point: Final = root / names.READER_MOUNT
        self.socket: Final = root / names.READER_SOCKET
        self.lock: Final = root / reader_files.SERVING
        self.readers: Final = root / reader_files.READERS
        self.keepers: Final = root / reader_files.KEEPERS
        self.pod_waits: Final = root / POD_WAITS
        self.registered: Final = RegisteredVersions(self.versions)

    def prepare(self) -> None:
        for folder in (self.versions, self.holders, self.failures):
            folder.mkdir(parents=True, exist_ok=True)


class ReadersPresent:
    """Whether processes of a reader are there: those that can serve, or those that have the session.

    Args:
        file: that they lock, `readers` or `keepers` of the reader's folder.
    """

    def __init__(self, file: Path) -> None:
        self._fd: Final = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def join(self) -> None:
        """Be one of them until this process and those that it forks have ended."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def wait_until_none(self, seconds: float) -> bool:
        """Wait for so long until there is none; whether there is none. For a main thread: it uses its timer."""

        def give_up(*_: object) -> None:
            raise TimeoutError

        before = signal.signal(signal.SIGALRM, give_up)
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except TimeoutError:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            return False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return True

    def any(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False


def write_atomically(file: Path, content: bytes) -> None:
    """Replace a small file: a reader of it sees the old or the new content."""
    draft = file.with_name(f"{file.name}{DRAFT}")
    draft.unlink(missing_ok=True)  # what was left there may be another user's
    draft.write_bytes(content)
    os.replace(draft, file)
