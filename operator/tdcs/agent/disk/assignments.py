"""What is kept of assignments over a restart: by which manifest each mount is counted, never how its source is read."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from tdcs.engine.agents import Assignment


class KnownMount(msgspec.Struct, frozen=True, kw_only=True):
    """A mount as it is kept on the disk.

    Attributes:
        forgotten: all of it is to be dropped; the process ended before that was done.
    """

    mount: str
    manifest: str
    forgotten: bool = False


class AssignmentFolder:
    """One small file for each mount. Calls touch the disk.

    Args:
        folder: it exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder

    def read(self) -> list[KnownMount]:
        """All mounts; files that cannot be read are left out."""
        found = []
        for name in sorted(os.listdir(self._folder)):
            with suppress(msgspec.MsgspecError, FileNotFoundError):
                content = (self._folder / name).read_bytes()
                found.append(msgspec.msgpack.decode(content, type=KnownMount))
        return found

    def write(self, assignment: Assignment) -> None:
        """Keep what a mount is counted by."""
        self._write(KnownMount(mount=assignment.mount, manifest=assignment.manifest))

    def forget(self, mount: str) -> None:
        """Note that a mount is to be dropped."""
        for known in self.read():
            if known.mount == mount:
                self._write(msgspec.structs.replace(known, forgotten=True))

    def remove(self, mount: str) -> None:
        """Keep nothing of a mount; unknown ones are fine."""
        self._file(mount).unlink(missing_ok=True)

    def _write(self, known: KnownMount) -> None:
        file = self._file(known.mount)
        draft = file.with_suffix(".new")
        try:
            draft.write_bytes(msgspec.msgpack.encode(known))
        except FileNotFoundError:  # the disk was wiped
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.msgpack.encode(known))
        os.replace(draft, file)

    def _file(self, mount: str) -> Path:
        return self._folder / hashlib.sha256(mount.encode()).hexdigest()[:32]
