"""Small notes on the disk, one file for each mount: the old content or the new one, whenever the process is killed."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import msgspec

_DRAFT: Final = ".new"


class Note(Protocol):
    """What is kept of a mount: a msgspec struct."""

    @property
    def mount(self) -> str: ...


N = TypeVar("N", bound=Note)


class MountNotes(Generic[N]):
    """The notes in one folder. Calls touch the disk.

    Args:
        folder: it is made when it is missing.
        durable: whether a note is on the disk when `write` returns, and not only a while later.
    """

    def __init__(self, folder: Path, *, kind: type[N], durable: bool = False) -> None:
        self._folder: Final = folder
        self._kind: Final = kind
        self._durable: Final = durable

    def read(self) -> list[N]:
        """All notes; files that cannot be read are left out. What a killed process was writing is removed."""
        notes = []
        with suppress(FileNotFoundError):
            for name in sorted(os.listdir(self._folder)):
                file = self._folder / name
                if name.endswith(_DRAFT):
                    file.unlink(missing_ok=True)
                    continue
                with suppress(msgspec.MsgspecError, FileNotFoundError):
                    notes.append(msgspec.msgpack.decode(file.read_bytes(), type=self._kind))
        return notes

    def write(self, note: N) -> None:
        """Keep a note instead of the one before it; raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_note(self._file(note.mount), msgspec.msgpack.encode(note), durable=self._durable)

    def remove(self, mount: str) -> None:
        """Keep nothing of a mount; unknown ones are fine."""
        self._file(mount).unlink(missing_ok=True)

    def _file(self, mount: str) -> Path:
        return self._folder / hashlib.sha256(mount.encode()).hexdigest()[:32]


def write_note(file: Path, content: bytes, *, durable: bool) -> None:
    """Put a file in the place of the one before it, and with `durable` on the disk, too. Raises OSError."""
    draft = file.with_suffix(_DRAFT)
    with draft.open("wb") as opened:
        opened.write(content)
        opened.flush()
        if durable:
            os.fsync(opened.fileno())
    os.replace(draft, file)
    if durable:
        _sync(file.parent)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
