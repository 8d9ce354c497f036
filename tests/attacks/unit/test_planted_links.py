"""Links that a worker's pod plants where the privileged node plugin works: it touches nothing that they lead to."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.node.csi.views.builders import PATH, id_of, listed, manifest_of, put_blocks

from tdcs.api import names
from tdcs.engine import confined_path
from tdcs.engine.confined_path import explain_disk
from tdcs.listing.folder import ManifestFolder
from tdcs.model.manifest import Manifest
from tdcs.node.csi import bind_mount, mountinfo
from tdcs.node.csi.views import current_version, overlay
from tdcs.node.csi.views import node_manifests as version_manifests
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.leftovers import clear_abandoned, on_disk
from tdcs.node.csi.views.view import clear
from tdcs.node.csi.views.view_folders import SHOWN, VersionFolder
from tdcs.node.csi.views.view_folders import STAGING as STAGING_NAME
from tdcs.node.csi.views.view_plan import plan
from tdcs.node.csi.views.view_tree import Tree
from tdcs.node.csi.volume import VolumeFolder

Fingerprint = dict[str, tuple[object, ...]]


class Node:
    """A node's disk: a tier that the worker's pod can write to, and next to it what belongs to others."""

    def __init__(self, top: Path) -> None:
        self.tier, self.victim = top / "tier", top / "victim"
        self.tier.mkdir()
        self.victim.mkdir()
        for name in ("1", "manifest", "manifest.new", "seen", "seen.new", "here"):
            (self.victim / name).write_bytes(b"!" * 4)
            (self.victim / name).chmod(0o600)
        for name in ("d", "tree", "scratch", "folder"):
            (self.victim / name).mkdir(mode=0o700)
            (self.victim / name / "kept").write_bytes(b"kept")
        self.manifest: Manifest = manifest_of(FILE, listed("e/empty"))
        self.version = VersionFolder(path=str(self.tier / "views/data" / self.manifest.digest))

    def plant(self, place: str, *, target: str = "") -> None:
        """A link at a place below the tier; what is there goes."""
        link = self.tier / place.replace("VERSION", self.manifest.digest)
        link.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            link.rename(f"{self.tier}/moved-away")
        link.symlink_to(self.victim / target if target else self.victim)

    def work(self) -> None:
        """All that the plugin does with a version on the disk, failures of single steps apart."""
        for step in self._steps():
            with contextlib.suppress(OSError):
                step()

    def _steps(self) -> list[Callable[[], object]]:
        return [
            self._copy_manifest,
            lambda: version_manifests.load(self.version),
            lambda: current_version._note(self.version),
            lambda: current_version._seen(self.version),
            self._tree,
            lambda: clear(self.version),
        ]

    def _copy_manifest(self) -> None:
        file = str(self.tier / names.AGENT_MANIFESTS / "d")
        with open(confined_path.open_plain_file(file), "rb") as source:
            version_manifests._copy(source, self.version)

    def _tree(self) -> None:
        store = Store(tiers=[str(self.tier)], mount=PATH)
        tree = Tree(
            folder=self.version.tree, scratch=self.version.scratch, manifest=self.manifest, store=store
        )
        tree.prepare()
        store.stamp()
        local = store.scan(manifest=self.manifest, kinds=tree.kinds)
        for release in (False, True):
            tree.apply(
                plan(kinds=tree.kinds, forms=tree.forms, linked=tree.linked, blocks=local, release=release)
            )


FILE = listed("d/here", 4)
PLANTED = (
    (names.BLOCK_FOLDER, ""),
    (f"{names.BLOCK_FOLDER}/1", "1"),
    (names.AGENT_FOLDER, ""),
    (names.AGENT_SPOOL, ""),
    (f"{names.AGENT_SPOOL}/{id_of(FILE)}", "1"),
    (names.AGENT_REFUSED, ""),
    (names.refused_folder(mount=PATH), ""),
    (names.AGENT_MANIFESTS, ""),
    (f"{names.AGENT_MANIFESTS}/d", "manifest"),
    ("views", ""),
    ("views/data", ""),
    ("views/data/VERSION", ""),
    ("views/data/VERSION/manifest", "manifest"),
    ("views/data/VERSION/manifest.new", "manifest.new"),
    ("views/data/VERSION/seen", "seen"),
    ("views/data/VERSION/seen.new", "seen.new"),
    ("views/data/VERSION/scratch", "scratch"),
    ("views/data/VERSION/tree", "tree"),
    ("views/data/VERSION/tree/d", "d"),
    ("views/data/VERSION/tree/d/here", "here"),
)


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    """A folder below which nothing stays mounted, whatever the plugin has done there."""
    yield tmp_path
    below = [mount.point for mount in mountinfo.read() if mount.point.startswith(f"{tmp_path}/")]
    for point in sorted(below, key=len, reverse=True):
        bind_mount.detach(target=point)
    assert not below, "the plugin has left these mounts"


@pytest.mark.parametrize(("place", "target"), PLANTED, ids=[place for place, _ in PLANTED])
@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "stepwise"])
@pytest.mark.threat("planted-links")
def test_a_planted_link_leads_the_plugin_to_no_foreign_inode(
    top: Path, place: str, target: str, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_path, "has_openat2", lambda: kernel)
    node = Node(top)
    put_blocks(node.tier, {id_of(FILE): b"here"})
    node.plant(place, target=target)
    before = fingerprint(node.victim)
    node.work()
    assert fingerprint(node.victim) == before
    tree = Path(node.version.tree)
    if tree.is_dir() and not tree.is_symlink():
        assert not any(path.is_file() and path.read_bytes() == b"!" * 4 for path in tree.rglob("*"))


@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "stepwise"])
@pytest.mark.threat("planted-links")
def test_a_planted_link_is_named_with_what_to_do(
    top: Path, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_path, "has_openat2", lambda: kernel)
    node = Node(top)
    node.plant("views", target="")
    with pytest.raises(OSError, match="symbolic links") as failure:
        confined_path.replace_plain_file(node.version.seen, b"")
    message = explain_disk(failure.value, at=node.version.path)
    assert f"a symbolic link is at {node.version.path} or above it" in message
    assert "remove the link" in message
    assert "full" not in message
    assert "see whether the disk of /tier is full" in explain_disk(
        OSError(errno.ENOSPC, "no room"), at="/tier"
    )


@pytest.mark.parametrize("place", ["views", "views/data"])
@pytest.mark.threat("planted-links")
def test_a_plugin_that_starts_next_to_a_planted_link_or_a_planted_file_goes_on(top: Path, place: str) -> None:
    node = Node(top)
    node.plant(place)  # to a folder with files where views have folders
    if place != "views":
        (node.tier / "views" / "file").write_bytes(b"")
    before = fingerprint(node.victim)
    assert list(on_disk(cache_root=str(top))) == []
    clear_abandoned(cache_root=str(top), pods=str(top / "pods"), view_folders=(), mounts=[])
    assert fingerprint(node.victim) == before


STAGING = f"views/{STAGING_NAME}"


@pytest.mark.parametrize("place", ["views", STAGING])
@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "stepwise"])
@pytest.mark.threat("planted-links", "exchanged-folder")
def test_a_folder_that_becomes_a_link_after_its_first_use_leads_no_manifest_elsewhere(
    top: Path, place: str, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_path, "has_openat2", lambda: kernel)
    node = Node(top)
    (node.victim / STAGING_NAME).mkdir()
    manifests = version_manifests.Manifests(cache_root=str(top), address=None)
    volume = VolumeFolder(cluster=node.tier.name, parts=("datasets", "1f"))
    staging = manifests._staging(volume)
    write_manifest(staging, node.manifest)
    node.plant(place)
    before = fingerprint(node.victim)
    for folder in (staging, manifests._staging(volume)):
        for step in (
            lambda folder=folder: write_manifest(folder, node.manifest),
            lambda folder=folder: folder.has(node.manifest.digest),
            lambda folder=folder: folder.open(node.manifest.digest),
            lambda folder=folder: folder.remove(node.manifest.digest),
            folder.clear_partial,
        ):
            with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
                step()
    assert fingerprint(node.victim) == before


@pytest.mark.parametrize("place", ["views", f"views/{overlay._TRIAL}/{SHOWN}"])
@pytest.mark.threat("planted-links")
def test_a_trial_of_overlays_follows_no_link(top: Path, place: str) -> None:
    node = Node(top)
    node.plant(place)
    before = fingerprint(node.victim)
    with contextlib.suppress(OSError):
        overlay.unsupported(str(node.tier / "views"))
    assert fingerprint(node.victim) == before


@pytest.mark.parametrize("form", ["overlay_with_data", "overlay"])
@pytest.mark.threat("exchanged-folder")
def test_what_is_shown_is_mounted_on_the_folder_that_was_looked_at(
    top: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(top)
    version = node.tier / "views/data/v"
    for folder in ("tree", "data"):
        (version / folder).mkdir(parents=True)
    (node.victim / "shown").mkdir()
    plain = getattr(bind_mount, form)

    def exchanged(**options: Any) -> None:
        version.rename(version.parent / "moved")
        version.symlink_to(node.victim)
        plain(**options)

    monkeypatch.setattr(bind_mount, form, exchanged)
    merged = form == "overlay_with_data"
    point = str(version / "shown")
    shown_folder = overlay.ShownFolder(version="v", tree=str(version / "tree"), merged=merged, point=point)
    with confined_path.plain_folder(str(version / "data")) as data:
        shown_folder.show(data=data, device="1")
    mounted = [mount.point for mount in mountinfo.read() if mount.point.startswith(f"{top}/")]
    for point in mounted:
        bind_mount.detach(target=point)
    assert mounted == [str(version.parent / "moved" / "shown")]


def write_manifest(folder: ManifestFolder, manifest: Manifest) -> None:
    """As a fetch does, but for its bytes."""
    with folder.partial() as file:
        file.write(b"manifest")
        folder.keep(file, digest=manifest.digest)


def test_without_a_planted_link_the_same_work_makes_the_view(top: Path) -> None:
    node = Node(top)
    put_blocks(node.tier, {id_of(FILE): b"here"})
    current_version._note(node.version)
    node._tree()
    assert (Path(node.version.tree) / "d/here").read_bytes() == b"here"
    node.work()
    assert not Path(node.version.path).exists()


def fingerprint(folder: Path) -> Fingerprint:
    """What of every inode below a folder a process with all rights could have changed."""
    fingerprint: Fingerprint = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = os.lstat(path)
        content = path.read_bytes() if path.is_file() else b""
        fingerprint[str(path.relative_to(folder))] = (
            status.st_ino,
            status.st_mode,
            status.st_nlink,
            status.st_mtime_ns,
            content,
        )
    return fingerprint
