"""Whether all that has a name in the store is on the disk: a mark that outlives the process, and a loss of power.

A file gets its name after its content was synced (`file_names`), so a disk that keeps what it has confirmed holds no
wrong file. Some do not keep it: caches without a battery, virtual machines that ignore flushes. Therefore each file
notes the era in which it was named, and the mark the oldest era that a later sync has not covered yet. After a loss of
power the files of that era and of later ones, those of the last seconds, are compared with their hash before anybody
is given them (`unclean_start`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from tdcs.node.agent.disk.mount_notes import write_note
from tdcs.node.store_boot import boot_file, boot_id


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What is on the disk.

    Attributes:
        era: files of earlier eras are on the disk, names and content.
        clean: whether those of this era are, too: the process has ended in order.
    """

    era: int
    clean: bool = False


class ShutdownMark:
    """The mark of one store. For one thread at a time.

    Args:
        folder: the agent's folder of a tier.
        boot: identity of the running kernel: what it has in memory is there as long as it runs.
    """

    def __init__(self, folder: Path, *, boot: str | None = None) -> None:
        self._folder: Final = folder
        self._file: Final = folder / "durable"
        self._boot_file: Final = Path(boot_file(str(folder.parent)))
        self._boot: Final = boot_id() if boot is None else boot
        self._begun = False
        self.era = 0
        """That files get now."""

    def doubtful_since(self) -> int | None:
        """The era since which files may be wrong; 0: all may be. None after a shutdown in order, and when the machine
        has run on."""
        mark = self._read()
        if mark is None:
            return 0
        if mark.clean or self._boot_noted() == self._boot:
            return None
        return mark.era

    def begin(self) -> None:
        """What is here was looked at: files may be named, and others may read them, from now on. Raises OSError."""
        mark = self._read()
        same_boot = mark is not None and self._boot_noted() == self._boot
        self.era = 1 if mark is None else mark.era + (not same_boot or mark.clean)
        self._begun = True
        self.restore()

    def restore(self) -> None:
        """Write it again, as after the disk was wiped. Raises OSError."""
        if self._begun:
            self._write(Mark(era=self.era))
            write_note(self._boot_file, self._boot.encode() + b"\n", durable=True)

    def advance(self) -> None:
        """All files that have a name by now, or are of an era before, are on the disk. Raises OSError."""
        if self._begun:
            self._write(Mark(era=self.era + 1))
            self.era += 1

    def close(self) -> None:
        """All files are on the disk, and no others will be named. Raises OSError."""
        if self._begun:
            self._begun = False
            self._write(Mark(era=self.era, clean=True))

    def _read(self) -> Mark | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Mark)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _boot_noted(self) -> str:
        try:
            return self._boot_file.read_text().strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    def _write(self, mark: Mark) -> None:
        os.makedirs(self._folder, exist_ok=True)
        write_note(self._file, msgspec.json.encode(mark), durable=True)
