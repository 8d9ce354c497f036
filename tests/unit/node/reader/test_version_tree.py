"""What `stat` says of files and folders that are read remotely."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.support.dataplane.readers import small_version

from tdcs.node.reader import fuse_protocol
from tdcs.node.reader.fuse_protocol import Attributes
from tdcs.node.reader.serving.version_tree import VersionTree


def inode(attributes: Attributes) -> int:
    answer = fuse_protocol.attribute_answer(1, attributes)
    number: int = struct.unpack_from("<Q", answer, fuse_protocol.ANSWER.size + 16)[0]
    return number


def everything(tree: VersionTree) -> list[Attributes]:
    folders = [tree.folder(place) for place in range(len(tree.manifest.folders))]
    return [*folders, tree.numbered(), *(tree.file(place) for place in range(len(tree.manifest)))]


def test_inodes_and_times_are_the_same_whatever_number_a_version_has_on_a_node(tmp_path: Path) -> None:
    manifest = small_version(tmp_path, {"a": b"a", "c/d/b": b"b", "c/e": b"e"}).manifest
    first, second = (everything(VersionTree(manifest=manifest, number=number)) for number in (1, 77_777))
    assert [inode(entry) for entry in first] == [inode(entry) for entry in second]
    assert [entry.time for entry in first] == [entry.time for entry in second]
    root = Attributes(fuse_protocol.ROOT, 4096, 0, False)
    inodes = [inode(entry) for entry in (*first, root)]
    assert len(set(inodes)) == len(inodes)
    assert 0 not in inodes
    assert {entry.node for entry in first}.isdisjoint({entry.node for entry in second})


def test_the_time_of_a_file_is_the_sources(tmp_path: Path) -> None:
    version = small_version(tmp_path, {"a": b"a"})
    tag = version.manifest.tag(0)
    assert tag.startswith("mtime-ms:")
    assert VersionTree(manifest=version.manifest, number=1).file(0).time == int(tag[9:]) // 1000
