"""What comparisons found, kept on the disk: a copy that was wrong is not served after a restart, nor compared anew."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from tdcs.engine.agents import Check, CheckState

MOST_REFUSED: Final = 10_000
"""Wrong blocks of one mount that are remembered over a restart: with more of them the disk has to be replaced."""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one mount.

    Attributes:
        check: the last comparison.
        state: how far it was when this was written.
        refused: ids of blocks that are wrong.
    """

    mount: str
    check: Check
    state: CheckState
    refused: tuple[int, ...] = ()


class FindingsFolder:
    """One small file for each mount. Calls touch the disk, and return when it has what was written.

    Args:
        folder: it exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder

    def read(self) -> list[Findings]:
        """All that is kept; files that cannot be read are left out."""
        found = []
        for name in sorted(os.listdir(self._folder)):
            with suppress(msgspec.MsgspecError, FileNotFoundError):
                content = (self._folder / name).read_bytes()
                found.append(msgspec.msgpack.decode(content, type=Findings))
        return found

    def write(self, findings: Findings) -> None:
        """Keep what was found of a mount, instead of what was kept of it before; raises OSError."""
        bounded = msgspec.structs.replace(findings, refused=findings.refused[:MOST_REFUSED])
        file = self._file(findings.mount)
        draft = file.with_suffix(".new")
        self._folder.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as opened:
            opened.write(msgspec.msgpack.encode(bounded))
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(draft, file)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, mount: str) -> None:
        """Keep nothing of a mount; unknown ones are fine."""
        self._file(mount).unlink(missing_ok=True)

    def _file(self, mount: str) -> Path:
        return self._folder / hashlib.sha256(mount.encode()).hexdigest()[:32]
