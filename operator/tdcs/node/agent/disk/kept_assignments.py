"""What is kept of assignments over a restart: by which manifest each mount is counted, never how its source is read."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tdcs.model.agent_state import Assignment
from tdcs.node.agent.disk.mount_notes import MountNotes


class KnownMount(msgspec.Struct, frozen=True, kw_only=True):
    """A mount as it is kept on the disk.

    Attributes:
        forgotten: all of it is to be dropped; the process ended before that was done.
    """

    mount: str
    manifest: str
    forgotten: bool = False


class AssignmentFolder(MountNotes[KnownMount]):
    """The mounts that this agent works on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, kind=KnownMount)

    def assigned(self, assignment: Assignment) -> None:
        """Keep what a mount is counted by."""
        self.write(KnownMount(mount=assignment.mount, manifest=assignment.manifest))

    def forgotten(self, mount: str) -> None:
        """Note that a mount is to be dropped."""
        for known in self.read():
            if known.mount == mount:
                self.write(msgspec.structs.replace(known, forgotten=True))
