"""Notes about mounts: whole or not there, whenever the process is killed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tdcs.model.agent_state import Assignment, Check, CheckState
from tdcs.node.agent.agent import AssignmentFolder, KnownMount
from tdcs.node.agent.blocks.check_run import Findings
from tdcs.node.agent.disk.mount_notes import MountNotes

MOUNT = "/datasets/0123456789abcdef"


@pytest.mark.parametrize("durable", [False, True])
def test_damaged_notes_are_left_out_and_drafts_of_a_killed_writer_are_removed_unread(
    tmp_path: Path, durable: bool
) -> None:
    notes = MountNotes(tmp_path / "made", kind=Findings, durable=durable)
    assert notes.read() == []
    findings = Findings(mount=MOUNT, check=Check(id="first"), state=CheckState(id="first", done=True))
    notes.write(findings)
    (file,) = (tmp_path / "made").iterdir()
    (tmp_path / "made/damaged").write_bytes(b"no msgpack")
    draft = file.with_suffix(".new")
    draft.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(findings, check=Check(id="never"))))
    assert notes.read() == [findings]
    assert not draft.exists()
    notes.remove(MOUNT)
    notes.remove(MOUNT)
    assert notes.read() == []


def test_a_draft_of_a_killed_writer_brings_no_mount_back_that_was_dropped(tmp_path: Path) -> None:
    folder = AssignmentFolder(tmp_path)
    folder.assigned(Assignment(mount=MOUNT, version=1, manifest="a" * 32))
    folder.forgotten(MOUNT)
    assert folder.read() == [KnownMount(mount=MOUNT, manifest="a" * 32, forgotten=True)]
    (file,) = tmp_path.iterdir()
    folder.remove(MOUNT)
    file.with_suffix(".new").write_bytes(msgspec.msgpack.encode(KnownMount(mount=MOUNT, manifest="a" * 32)))
    assert AssignmentFolder(tmp_path).read() == []
    assert list(tmp_path.iterdir()) == []
