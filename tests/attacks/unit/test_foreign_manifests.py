"""Manifests that a taken-over cache pod changes after they were checked, or makes with names that lead elsewhere.

The node plugin is root, and puts links where a manifest's names say; plugin and remote-read client map the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.unit.node.csi.views.builders import PATH, builder_of, id_of, listed, put_blocks

from tdcs.api import names
from tdcs.engine.reader_files import Registration
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import ManifestUnavailableError
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_format import DIGEST_LENGTH, Header
from tdcs.node.csi.views import node_manifests as version_manifests
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.node_manifests import LARGEST_COPY, Manifests, clear_drafts, largest_copy, load
from tdcs.node.csi.views.view_folders import VersionFolder, dataset_folder
from tdcs.node.csi.views.view_plan import plan
from tdcs.node.csi.views.view_tree import Tree
from tdcs.node.csi.volume import VolumeFolder
from tdcs.node.reader.registration import ReaderFolder
from tdcs.node.reader.serving.open_versions import OpenVersions

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="files are given to the cache's user, which takes root"
)

FILES = [listed(f"train/img-{n:05}.jpg", 4) for n in range(100)]
VOLUME = VolumeFolder(cluster="default", parts=tuple(PATH.strip("/").split("/")))


class Node:
    """A node's disk with the manifest of an agent, and a file that must not be made."""

    def __init__(self, tmp_path: Path) -> None:
        self.top = tmp_path / "tdcs"
        self.tier = self.top / "cache/default"
        self.registrations = self.top / "reader" / names.READER_VERSIONS
        self.registrations.mkdir(parents=True)
        self.planted = self.registrations / f"other.{'0' * 32}"
        self.digest = ManifestFolder(self.tier / names.AGENT_MANIFESTS).write(builder_of(*FILES))
        self.given = self.tier / names.AGENT_MANIFESTS / self.digest
        os.chown(self.given, names.CACHE_USER, names.CACHE_USER)
        self.folder = dataset_folder(cache_root=str(self.top / "cache"), volume=VOLUME)
        self.version: VersionFolder = self.folder.of(self.digest)

    def plugins_manifest(self) -> Manifest:
        """As the plugin has it when a pod is given the volume."""
        manifests = Manifests(cache_root=str(self.top / "cache"), address=None)
        return asyncio.run(manifests.of(volume=VOLUME, folder=self.folder, digest=self.digest))

    def way_out(self) -> bytes:
        """A name that leads from a folder of the tree to the planted file."""
        return b"../" * 8 + os.fsencode(os.path.relpath(self.planted, self.top))

    def show(self, manifest: Manifest) -> None:
        """The tree, with the first file's block on this node. Raises OSError."""
        put_blocks(self.tier, {id_of(FILES[0]): b"EVIL"})
        store = Store(tiers=[str(self.tier)], mount=PATH)
        tree = Tree(folder=self.version.tree, scratch=self.version.scratch, manifest=manifest, store=store)
        tree.prepare()
        blocks = store.scan(manifest=manifest, kinds=tree.kinds)
        steps = plan(kinds=tree.kinds, forms=tree.forms, linked=tree.linked, blocks=blocks, release=False)
        tree.apply(steps)

    def outside(self) -> list[Path]:
        """What is where only others write."""
        return [path for path in self.top.rglob("*") if path.is_file() and self.tier not in path.parents]


def rename_first_file(file: Path, name: bytes) -> None:
    """Change the name of a manifest's first file in place, as its owner can."""
    with file.open("r+b") as opened:
        content = opened.read()
        header = msgspec.msgpack.decode(
            content[16 : 16 + int.from_bytes(content[8:16], "little")], type=Header
        )
        opened.seek(header.columns["names"][0])
        opened.write(name)
        opened.seek(header.columns["name_ends"][0])
        opened.write(struct.pack("<Q", len(name)))


@pytest.mark.threat("changed-manifest")
def test_what_a_cache_pod_writes_to_its_manifest_after_the_check_is_not_read(tmp_path: Path) -> None:
    node = Node(tmp_path)
    manifest = node.plugins_manifest()
    assert os.stat(node.version.manifest).st_ino != os.stat(node.given).st_ino
    rename_first_file(node.given, node.way_out())
    node.show(manifest)
    assert node.outside() == []
    assert (Path(node.version.tree) / "train/img-00000.jpg").read_bytes() == b"EVIL"


@pytest.mark.threat("changed-manifest")
def test_a_manifest_that_becomes_shorter_ends_no_process(tmp_path: Path) -> None:
    """What is mapped of a file that is cut off ends the process that reads it, by SIGBUS."""
    node = Node(tmp_path)
    node.plugins_manifest()
    script = """
import os, sys
from tdcs.node.csi.views.view_folders import VersionFolder
from tdcs.node.csi.views.node_manifests import load
found = load(VersionFolder(path=sys.argv[1]))
os.truncate(sys.argv[2], 0)
print(sum(int(each) for each in found.lengths))
"""
    words = [sys.executable, "-c", script, node.version.path, str(node.given)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(4 * len(FILES))


@pytest.mark.parametrize("name", [b"../escaped", b"..", b".", b"a/b", b""], ids=repr)
@pytest.mark.threat("changed-manifest")
def test_names_that_are_none_are_refused_though_the_digest_is_right(tmp_path: Path, name: bytes) -> None:
    """As a master and an agent that were taken over can have it: the digest is that of a manifest they have made."""
    node = Node(tmp_path)
    rename_first_file(node.given, name)
    manifest = Manifest(node.given.read_bytes(), digest=node.digest)
    with pytest.raises(OSError, match="the manifest has a file that is called so"):
        node.show(manifest)
    assert node.outside() == []
    assert {path.name for path in Path(node.version.tree).rglob("*") if not path.is_dir()} == set()


@pytest.mark.parametrize("right", [True, False])
def test_a_manifest_that_others_put_in_its_place_is_copied_if_it_is_right(
    tmp_path: Path, right: bool
) -> None:
    node = Node(tmp_path)
    if not right:
        rename_first_file(node.given, b"x")
    Path(node.version.path).mkdir(parents=True)
    os.link(node.given, node.version.manifest)
    manifest = load(node.version)
    assert (manifest is not None) is right
    assert Path(node.version.manifest).exists() is right
    if right:
        status = os.stat(node.version.manifest)
        assert (status.st_uid, status.st_nlink) == (0, 1)
        assert os.stat(node.given).st_nlink == 1


@pytest.mark.parametrize(
    ("owner", "mode", "shown"),
    [
        (0, 0o644, True),
        (names.CACHE_USER, 0o644, False),
        (names.CACHE_USER, 0o444, False),
        (0, 0o664, False),
        (0, 0o646, False),
    ],
)
@pytest.mark.threat("changed-manifest")
def test_the_remote_read_client_maps_no_manifest_that_others_may_change(
    tmp_path: Path, owner: int, mode: int, shown: bool
) -> None:
    node = Node(tmp_path)
    node.plugins_manifest()
    os.chown(node.version.manifest, owner, owner)
    os.chmod(node.version.manifest, mode)
    name, folder = f"default.{node.digest}", ReaderFolder(node.top / "reader")
    registration = Registration(number=1, cluster="default", path=PATH, manifest=node.version.manifest)
    (folder.versions / name).write_bytes(msgspec.json.encode(registration))
    assert (OpenVersions(folder=folder, node="here").named(name) is not None) is shown


@pytest.mark.threat("long-manifest")
def test_a_manifest_longer_than_any_is_not_copied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its owner makes it so long at no cost; the copy would fill the disk."""
    node = Node(tmp_path)
    os.truncate(node.given, LARGEST_COPY + 1)
    with pytest.raises(ManifestUnavailableError):
        node.plugins_manifest()
    assert f"it has {LARGEST_COPY + 1} bytes, of which a node takes" in caplog.text
    assert os.listdir(node.version.path) == []


@pytest.mark.parametrize(
    ("free", "most"), [(0, 0), (400, 100), (4 * LARGEST_COPY, LARGEST_COPY), (1 << 50, LARGEST_COPY)]
)
@pytest.mark.threat("long-manifest")
def test_a_copy_leaves_most_of_the_disk_free(free: int, most: int) -> None:
    assert largest_copy(free=free) == most


class GrowingFile(io.BufferedReader):
    """A file that becomes longer whenever something is read of it, for as long as the test would wait."""

    grown = 0

    def read(self, size: int | None = -1, /) -> bytes:
        if self.grown < 64:
            self.grown += 1
            os.truncate(self.fileno(), os.fstat(self.fileno()).st_size + (2 << 20))
        return super().read(size)


@pytest.mark.threat("long-manifest")
def test_a_manifest_that_grows_while_it_is_copied_is_copied_as_far_as_it_was_long(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with GrowingFile(io.FileIO(node.given, "r+")) as file:
        assert version_manifests._copy(file, node.version)
        assert file.grown <= 2
    assert load(node.version) is not None


@pytest.mark.threat("long-manifest")
def test_a_pipe_in_the_place_of_a_manifest_is_not_waited_for(tmp_path: Path) -> None:
    node = Node(tmp_path)
    Path(node.version.path).mkdir(parents=True)
    for place in (node.given, Path(node.version.manifest)):
        place.unlink(missing_ok=True)
        os.mkfifo(place)
    script = """
import sys
from tdcs.node.csi.views.view_folders import VersionFolder
from tdcs.node.csi.views.node_manifests import load
from tdcs.engine.confined_path import open_plain_file
assert load(VersionFolder(path=sys.argv[1])) is None
try:
    open_plain_file(sys.argv[2])
except OSError as error:
    print(error.strerror)
"""
    words = [sys.executable, "-c", script, node.version.path, str(node.given)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "it is no regular file"


@pytest.mark.threat("long-manifest")
async def test_long_manifests_of_one_cache_keep_no_other_cache_waiting(tmp_path: Path) -> None:
    node = Node(tmp_path)
    other_volume = VolumeFolder(cluster="other", parts=VOLUME.parts)
    root = str(node.top / "cache")
    manifests_folder = node.top / "cache/other" / names.AGENT_MANIFESTS
    manifests_folder.mkdir(parents=True)
    wrong = [hashlib.sha256(str(number).encode()).hexdigest()[:DIGEST_LENGTH] for number in range(12)]
    for digest in wrong:
        (manifests_folder / digest).touch()
        os.truncate(manifests_folder / digest, 256 << 20)
    manifests = Manifests(cache_root=root, address=None)
    folder = dataset_folder(cache_root=root, volume=other_volume)
    copies = [
        asyncio.create_task(manifests.of(volume=other_volume, folder=folder, digest=digest))
        for digest in wrong
    ]
    await asyncio.sleep(0)  # they are asked for first
    manifest = await manifests.of(volume=VOLUME, folder=node.folder, digest=node.digest)
    assert manifest.digest == node.digest
    assert not any(copy.done() for copy in copies)
    for copy in copies:
        copy.cancel()
    await asyncio.gather(*copies, return_exceptions=True)
    await manifests.close()


def test_what_a_killed_process_left_of_a_copy_goes_and_what_is_being_written_stays(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.plugins_manifest()
    old, new = (Path(node.version.path) / f"manifest.new-{name}" for name in ("old", "new"))
    for draft in (old, new):
        draft.touch()
    os.utime(old, (0, 0))
    clear_drafts(node.version)
    assert not old.exists()
    assert new.exists()
    assert load(node.version) is not None
