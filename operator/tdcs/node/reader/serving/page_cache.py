"""What the kernel has in memory of the files of a session."""

import errno
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tdcs.node.reader import fuse_protocol

_log: Final = logging.getLogger(__name__)

_THREADS: Final = 4
_NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENODEV})
"""The kernel does not know the file, or the session has ended."""


class PageCache:
    """Has the kernel forget parts of files: what it has in memory of them, also under programs that map them.

    Args:
        session: descriptor of the session.
    """

    def __init__(self, session: int) -> None:
        self._session: Final = session
        self._threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="page-cache")

    def invalidate(self, node: int, *, offset: int, length: int) -> None:
        """Begin to drop a part of a file. The kernel waits until reads of it are answered, so threads do it."""
        self._threads.submit(
            self._write_invalidation, fuse_protocol.invalidation(node, offset=offset, length=length)
        )

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _write_invalidation(self, said: bytes) -> None:
        try:
            os.write(self._session, said)
        except OSError as error:
            if error.errno not in _NOTHING_THERE:
                _log.error("the kernel does not forget bytes of a wrong block: %s; restart its pods", error)
