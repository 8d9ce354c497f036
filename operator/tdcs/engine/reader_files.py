"""Which of the remote-read client's files on a node are its own, where it runs as a user that is not root.

The folder stays root's: whoever takes such a client over can put nothing in the place of what root's processes write
there, read, or mount on.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from tdcs.engine.pod_wait_table import POD_WAITS

HOLDERS: Final = "holders"
FAILURES: Final = "failures"
NUMBERS: Final = "numbers"
READERS: Final = "readers"
KEEPERS: Final = "keepers"
SERVING: Final = "serving"

_FOLDERS: Final = (HOLDERS, FAILURES)
_FILES: Final = (NUMBERS, POD_WAITS, READERS, KEEPERS, SERVING)
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CALLERS: Final = 0o660


def give_files(root: Path, *, user: int) -> None:
    """Have a client of this user write what is its own. The caller is root; raises OSError."""
    root.mkdir(parents=True, exist_ok=True)
    for name in _FOLDERS:
        with suppress(FileExistsError):
            (root / name).mkdir()
        _give(os.open(root / name, _FOLDER), user)
    for name in _FILES:
        _give(os.open(root / name, _FILE, 0o600), user)


def admit(socket: Path, *, user: int) -> None:
    """Have a client of this user connect to the holder's socket. Raises OSError."""
    os.chmod(socket, _CALLERS)
    os.chown(socket, -1, user, follow_symlinks=False)


def _give(descriptor: int, user: int) -> None:
    try:
        os.fchown(descriptor, user, user)
    finally:
        os.close(descriptor)
