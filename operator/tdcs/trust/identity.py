"""A process's certificate, key and authorities, from a folder in which they may change at any time."""

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
AUTHORITIES_FILE: Final = "ca.crt"
"""Names of the files, and of a Secret's keys: those that cert-manager writes, too."""

LOOK_SECONDS: Final = 5.0


class NoIdentityError(OSError):
    """A process has no certificate yet; the message says where it was expected."""


@dataclass(frozen=True)
class Identity:
    """Certificate and key of a process, and the authorities that it trusts; all PEM."""

    certificate: bytes
    key: bytes
    authorities: bytes

    def __repr__(self) -> str:
        return f"Identity({self.fingerprint})"  # never the key

    @cached_property
    def fingerprint(self) -> str:
        parts = (self.certificate, self.key, self.authorities)
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


Identify = Callable[[], Identity]
"""Returns the present identity of a process; raises NoIdentityError while there is none."""


class TrustFolder:
    """The identity in a folder, such as a mounted Secret; read again when its files have changed.

    Callable from any thread. Files that cannot be read, or are only partly there, leave what was read before.

    Args:
        folder: with `tls.crt`, `tls.key` and `ca.crt`.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder: Final = folder
        self._clock: Final = clock
        self._state: tuple[float, object, Identity | None] = (float("-inf"), None, None)

    def __call__(self) -> Identity:
        """The present identity; raises NoIdentityError while there is none."""
        read_at, file_stats, identity = self._state
        now = self._clock()
        if identity is None or now - read_at >= LOOK_SECONDS:
            try:
                new_stats = self._file_stats()
                if identity is None or new_stats != file_stats:
                    identity = self._read()
                self._state = (now, new_stats, identity)
            except OSError as error:
                if identity is None:
                    raise NoIdentityError(
                        f"no certificate can be read in {self._folder} ({error.strerror or error}); the operator puts "
                        "it there through a Secret, see the condition Trusted of the CacheCluster"
                    ) from error
                _log.warning("the certificate in %s cannot be read: %s", self._folder, error)
                self._state = (now, file_stats, identity)
        return identity

    def _file_stats(self) -> object:
        stats = [(self._folder / name).stat() for name in (CERTIFICATE_FILE, KEY_FILE, AUTHORITIES_FILE)]
        return [(status.st_ino, status.st_mtime_ns, status.st_size) for status in stats]

    def _read(self) -> Identity:
        # A mounted Secret is replaced by switching one link. Resolve it once, so that all files are of one version.
        link = self._folder / "..data"
        folder = link.resolve() if link.exists() else self._folder
        return Identity(
            certificate=(folder / CERTIFICATE_FILE).read_bytes(),
            key=(folder / KEY_FILE).read_bytes(),
            authorities=(folder / AUTHORITIES_FILE).read_bytes(),
        )
