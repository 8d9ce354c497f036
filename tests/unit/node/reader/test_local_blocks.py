"""What the remote-read client reads of its own node's disk: no file that says that it is another one, and none before
the agent has looked through the disk after a loss of power.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.dataplane.agents import MOUNT, Version, fill, folder_version, put_block

from tdcs.api import names
from tdcs.node.agent.disk.shutdown_mark import ShutdownMark
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.reader.serving.local_blocks import LocalBlocks
from tdcs.node.reader.serving.read import Key


class Node:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = Disk(folder / "tier")
        self.disk.prepare()
        self.local = LocalBlocks(
            disks=SimpleNamespace(),  # type: ignore[arg-type]
            counters=SimpleNamespace(),  # type: ignore[arg-type]
            is_refused=lambda *_: False,
        )

    def version(self, name: str, content: bytes) -> Version:
        source = fill(self.folder / f"source-of-{name}", {name: content})
        return folder_version(source, store=self.folder / "manifests")

    def read(self, version: Version, length: int) -> bytes | None:
        opened: Any = SimpleNamespace(
            number=1,
            manifest=version.manifest,
            block_ids=version.manifest.block_ids.data,
            block_lengths=version.manifest.block_lengths.data,
            refused=names.refused_folder(mount=MOUNT),
        )
        block = self.local._read(opened, Key(1, 0, 0, length), 0, length, str(self.disk.tier))
        if block is None:
            return None
        if block.file is not None:
            block.file.close()
        return block.content


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.failure_mode("block-of-another-file", "cache-recreated-under-pods")
def test_a_file_that_says_that_it_is_another_one_is_not_read(node: Node) -> None:
    ours, theirs = node.version("ours", b"OURS"), node.version("theirs", b"THEY")
    put_block(node.disk, theirs.manifest, 0, b"THEY", name=int(ours.manifest.block_ids[0]))
    assert node.read(ours, 4) is None
    put_block(node.disk, ours.manifest, 0, b"OURS")
    assert node.read(ours, 4) == b"OURS"


def test_nothing_is_read_of_a_store_that_was_not_made_ready_since_the_machine_was_started(node: Node) -> None:
    version = node.version("a", b"AAAA")
    put_block(node.disk, version.manifest, 0, b"AAAA")
    ShutdownMark(node.disk.tier / names.AGENT_FOLDER, boot="the run of the kernel before").begin()
    assert node.read(version, 4) is None
    ShutdownMark(node.disk.tier / names.AGENT_FOLDER).begin()
    assert node.read(version, 4) == b"AAAA"
