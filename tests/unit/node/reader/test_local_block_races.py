"""Blocks on the reader's own node, while its agent changes what it says of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.dataplane.readers import CLUSTER, small_version
from tests.unit.node.csi.views.builders import put_blocks

from tdcs.engine.reader_files import Registration
from tdcs.node.reader.counters import Count, Counters
from tdcs.node.reader.serving.local_blocks import LocalBlocks
from tdcs.node.reader.serving.local_disks import LocalDisks
from tdcs.node.reader.serving.open_versions import OpenVersion
from tdcs.node.reader.serving.read import Key
from tdcs.node.reader.serving.version_tree import VersionTree

CONTENT = b"of the version"


class Node:
    """A node with the block of a version of one file."""

    def __init__(self, folder: Path) -> None:
        self.tier = folder / "tier"
        manifest = small_version(folder, {"file": CONTENT}).manifest
        self.block = int(manifest.block_ids[0])
        registration = Registration(
            number=1,
            cluster=CLUSTER,
            path=manifest.path,
            manifest="",
            tiers=(str(self.tier),),
        )
        self.version = OpenVersion(
            number=1,
            name="v",
            registration=registration,
            tree=VersionTree(manifest=manifest, number=1),
            node="here",
        )
        self.disks, self.counters = LocalDisks(), Counters()
        self.refused: set[int] = set()
        self.blocks = LocalBlocks(
            disks=self.disks, counters=self.counters, is_refused=lambda _, block: block in self.refused
        )
        put_blocks(self.tier, {self.block: CONTENT})

    def read(self, *, begin: int = 0, end: int = len(CONTENT)) -> bytes | None:
        """What is read of the block; None when it is not to be had here."""
        contents: list[bytes | None] = []
        self.blocks.read(self.version, Key(1, 0, 0, len(CONTENT)), begin, end, contents.append)
        while not contents:
            self.disks.wait(1)
        return contents[0]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_block_is_read_from_the_nodes_own_disk(node: Node) -> None:
    assert node.read() == CONTENT
    assert node.read(begin=3, end=7) == CONTENT[3:7]


def test_a_block_that_is_refused_while_it_is_read_is_not_given(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pread

    def read_slowly(*args: int) -> bytes:
        node.refused.add(node.block)
        return real(*args)

    monkeypatch.setattr(os, "pread", read_slowly)
    assert node.read() is None


def test_a_block_of_another_length_is_not_given_and_counted(node: Node) -> None:
    put_blocks(node.tier, {node.block: CONTENT[:-1]})
    assert node.read() is None
    assert node.counters.get(1, Count.REFUSED) == 1
