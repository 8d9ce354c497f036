"""Overlays of links and placeholders: on a real disk, with a real remote-read client, as pods see them."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import Giver, ReaderNode, holder_of, reader_node, table_of
from tests.support.waiting import eventually_async
from tests.unit.node.csi.views.builders import (
    PATH,
    drop_block,
    id_of,
    listed,
    manifest_of,
    needs_overlays,
    put_blocks,
    refuse_block,
)
from tests.unit.node.csi.views.node_world import VOLUME, World, watching

from tdcs.api import names
from tdcs.node.csi import bind_mount, mountinfo
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.overlay import (
    OverlaySupport,
    ShownFolder,
    make_placeholder,
    parse_shown,
    placeholder_number,
)
from tdcs.node.csi.views.view_folders import DatasetFolder
from tdcs.node.csi.views.view_plan import Form, plan
from tdcs.node.csi.views.view_tree import Tree
from tdcs.node.csi.volume import OpenSource
from tdcs.node.reader.registration import write_atomically

pytestmark = needs_overlays

FILE_HERE, FILE_AWAY = listed("d/here", 4), listed("d/away", 5)
HERE, AWAY = id_of(FILE_HERE), id_of(FILE_AWAY)


class Disk:
    """A tier with the tree of an overlay: the block of one of three files is on the node."""

    def __init__(self, tier: Path) -> None:
        self.tier, self.root = tier, tier / "tree"
        self.manifest = manifest_of(FILE_HERE, FILE_AWAY, listed("parts", 8))
        self.numbers = {os.fsdecode(self.manifest.file_path(file)): file for file in range(3)}
        self.store = Store(tiers=[str(tier)], mount=PATH)
        put_blocks(tier, {HERE: b"here"})

    def follow(self, *, release: bool = False) -> Tree:
        """A new process brings the tree into step."""
        tree = Tree(
            folder=str(self.root),
            scratch=str(self.tier / "scratch"),
            manifest=self.manifest,
            store=self.store,
        )
        tree.prepare()
        local = self.store.scan(manifest=self.manifest, kinds=tree.kinds)
        tree.apply(
            plan(kinds=tree.kinds, forms=tree.forms, linked=tree.linked, blocks=local, release=release)
        )
        return tree

    def number(self, name: str) -> int | None:
        """What a file is a placeholder of."""
        return placeholder_number(os.fsencode(self.root / name))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """Nothing is made yet."""
    return Disk(tmp_path)


def test_what_is_not_here_is_a_placeholder_of_its_number_and_length(disk: Disk) -> None:
    disk.follow()

    assert disk.number("d/here") is None
    assert (disk.root / "d/here").read_text() == "here"
    for name, length in (("d/away", 5), ("parts", 8)):
        assert disk.number(name) == disk.numbers[name]
        status = (disk.root / name).stat()
        assert (status.st_size, status.st_mode & 0o777, status.st_blocks) == (length, 0o444, 0)


def test_a_new_process_knows_placeholders_and_changes_nothing(disk: Disk) -> None:
    disk.follow()
    before = {name: (disk.root / name).stat().st_ino for name in disk.numbers}

    tree = disk.follow()

    assert {name: (disk.root / name).stat().st_ino for name in disk.numbers} == before
    assert sorted(tree.forms.tolist()) == [Form.REMOTE, Form.REMOTE, Form.LINK]


@pytest.mark.parametrize("broken", ["cut short", "of another file", "without its number"])
def test_a_placeholder_that_is_not_as_it_should_be_is_made_again(disk: Disk, broken: str) -> None:
    disk.follow()
    file = disk.root / "d/away"
    if broken == "cut short":  # as a process leaves it that is killed while it makes one
        os.truncate(file, 0)
    elif broken == "of another file":
        file.unlink()
        make_placeholder(os.fsencode(file), number=0, length=5, mode=0o444)
    else:
        os.removexattr(file, "trusted.overlay.redirect")

    disk.follow()

    assert disk.number("d/away") == disk.numbers["d/away"]
    assert file.stat().st_size == 5


def test_a_block_that_comes_takes_the_place_of_its_placeholder_and_goes_when_released(disk: Disk) -> None:
    disk.follow()
    put_blocks(disk.tier, {AWAY: b"away!"})
    disk.follow()
    assert disk.number("d/away") is None
    assert (disk.root / "d/away").read_text() == "away!"

    drop_block(disk.tier, AWAY)
    disk.follow()
    assert (disk.root / "d/away").read_text() == "away!"
    disk.follow(release=True)
    assert disk.number("d/away") == disk.numbers["d/away"]


def test_a_block_that_its_agent_refuses_is_a_placeholder_again(disk: Disk) -> None:
    disk.follow()
    assert (disk.root / "d/here").read_bytes() == b"here"
    refuse_block(disk.tier, HERE)
    disk.follow()
    assert disk.number("d/here") == disk.numbers["d/here"]


@pytest.mark.parametrize(
    ("tag", "seconds"), [("mtime-ms:1700000000999", 1_700_000_000), ('"etag"', 315_532_800)]
)
def test_times_are_the_sources_on_every_node_and_stay_when_a_block_comes(
    tmp_path: Path, tag: str, seconds: int
) -> None:
    nodes = [Disk(tmp_path / name) for name in ("first", "second")]
    for disk in nodes:
        disk.manifest = manifest_of(
            listed("d/here", 4, tag=tag), away := listed("d/away", 5, tag=tag), listed("empty", tag=tag)
        )
        disk.numbers = {os.fsdecode(disk.manifest.file_path(file)): file for file in range(3)}

    def times(disk: Disk) -> dict[str, float]:
        return {name: (disk.root / name).stat().st_mtime for name in ("", "d", *disk.numbers)}

    expected = {"": 315_532_800, "d": 315_532_800, "d/here": seconds, "d/away": seconds, "empty": seconds}
    for disk in nodes:
        disk.follow()
        assert times(disk) == expected
    put_blocks(nodes[0].tier, {id_of(away): b"away!"})
    nodes[0].follow()
    assert nodes[0].number("d/away") is None
    assert times(nodes[0]) == expected
    drop_block(nodes[0].tier, id_of(away))
    nodes[0].follow(release=True)
    assert nodes[0].number("d/away") is not None
    assert times(nodes[0]) == expected


def test_an_overlay_shows_what_came_after_it_once_it_is_refreshed(disk: Disk, tmp_path: Path) -> None:
    disk.follow()
    data, point = tmp_path / "data", tmp_path / "shown"
    data.mkdir()
    (data / str(disk.numbers["d/away"])).write_text("outer")
    overlay = ShownFolder(version=str(tmp_path), tree=str(disk.root), merged=True, point=str(point))
    below = os.open(data, os.O_PATH)
    try:
        overlay.show(data=below, device="0:1")
        away = point / "d/away"
        assert (away.read_text(), away.stat().st_nlink) == ("outer", 1)
        put_blocks(disk.tier, {AWAY: b"inner"})
        disk.follow()
        overlay.refresh()
        assert (away.read_text(), away.stat().st_nlink) == ("inner", 2)
        mounts = mountinfo.read()
        top = mountinfo.top(mounts=mounts, point=str(point))
        assert top is not None
        assert parse_shown(top) == ("0:1", str(tmp_path))
        assert overlay.all_current(device="0:1", proc=Path("/proc"), mounts=mounts)
        assert not overlay.all_current(device="0:2", proc=Path("/proc"), mounts=mounts)
        assert not overlay.all_current(device="0:2", proc=None, mounts=mounts)
        assert overlay.used(mounts=mounts, pods=str(tmp_path))
        assert not overlay.used(mounts=mounts, pods=str(tmp_path / "pods"))
    finally:
        os.close(below)
        overlay.remove()
    assert not point.exists()


async def test_on_a_disk_that_takes_no_placeholders_pods_read_through_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    views = tmp_path / "views"
    views.mkdir()
    command = ["mount", "-t", "ramfs", "none", str(views)]
    await asyncio.to_thread(subprocess.run, command, check=True)  # it has no extended attributes
    try:
        dataset = DatasetFolder(path=str(views / "d"))
        support = OverlaySupport(enabled=True)
        await support.look(dataset)
        assert not support.merged(dataset, version="v")
        assert "they cannot be overlays" in caplog.text
        assert os.listdir(views) == []
    finally:
        bind_mount.detach(target=str(views))


async def test_two_volumes_that_come_at_once_find_out_together(tmp_path: Path) -> None:
    """As after a restart of the node plugin, when kubelet publishes all volumes of the node again."""
    for turn in range(5):
        views = tmp_path / f"views-{turn}"
        datasets = [DatasetFolder(path=str(views / name)) for name in "abcd"]
        support = OverlaySupport(enabled=True)
        await asyncio.gather(*(support.look(dataset) for dataset in datasets))
        assert [support.merged(dataset, version="v") for dataset in datasets] == [True] * 4
        assert os.listdir(views) == []


async def test_a_volume_that_is_asked_for_again_joins_the_trial_of_the_call_that_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, go_on, trials = threading.Event(), threading.Event(), []

    def slow(folder: str) -> str:
        trials.append(folder)
        going.set()
        go_on.wait(30)
        return ""

    monkeypatch.setattr("tdcs.node.csi.views.overlay.unsupported", slow)
    dataset, support = DatasetFolder(path=str(tmp_path / "views/d")), OverlaySupport(enabled=True)
    first = asyncio.create_task(support.look(dataset))
    await asyncio.to_thread(going.wait, 30)
    first.cancel()
    second = asyncio.create_task(support.look(dataset))
    await asyncio.wait([first, second], timeout=0.1)
    go_on.set()
    await second
    assert support.merged(dataset, version="v")
    assert len(trials) == 1


@pytest.mark.parametrize("made", [("tree",), ("tree", "shown"), ("shown",)])
@pytest.mark.failure_mode("no-data-only-overlays")
async def test_a_version_stays_in_the_form_in_which_it_was_made(
    tmp_path: Path, made: tuple[str, ...]
) -> None:
    dataset = DatasetFolder(path=str(tmp_path / "views/d"))
    for folder in made:
        (tmp_path / "views/d/v" / folder).mkdir(parents=True)
    for enabled in (False, True):
        support = OverlaySupport(enabled=enabled)
        await support.look(dataset)
        assert support.merged(dataset, version="v") == ("tree" in made)
        assert support.merged(dataset, version="another") == enabled


async def test_a_tree_of_a_kernel_that_had_overlays_is_not_shown_on_one_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, support = DatasetFolder(path=str(tmp_path / "views/d")), OverlaySupport(enabled=True)
    (tmp_path / "views/d/v/tree").mkdir(parents=True)
    monkeypatch.setattr(bind_mount, "overlay_with_data", Mock(side_effect=OSError(errno.EINVAL, "Invalid")))
    await support.look(dataset)
    assert not support.merged(dataset, version="v")


async def test_what_a_killed_process_left_of_its_trial_is_in_nobodys_way(tmp_path: Path) -> None:
    views = tmp_path / "views"
    trial = views / ".overlay-trial"
    tree, data, point = (trial / part for part in ("tree", "data", "shown"))
    for folder in (tree, data, point):
        folder.mkdir(parents=True)
    make_placeholder(os.fsencode(tree / "file"), number=7, length=4, mode=0o444)
    below = os.open(data, os.O_PATH)
    ShownFolder(version=str(trial), tree=str(tree), merged=True, point=str(point)).show(
        data=below, device="trial"
    )
    os.close(below)
    support = OverlaySupport(enabled=True)
    await support.look(DatasetFolder(path=str(views / "d")))
    assert support.merged(DatasetFolder(path=str(views / "d")), version="v")
    assert os.listdir(views) == []


async def test_a_trial_that_cannot_be_removed_at_once_has_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dataset, support = DatasetFolder(path=str(tmp_path / "views/d")), OverlaySupport(enabled=True)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", Mock(side_effect=OSError(errno.EBUSY, "Device or resource busy")))
        await support.look(dataset)
    assert support.merged(dataset, version="v")
    assert "cannot be removed; the next trial does it" in caplog.text


async def test_an_error_that_nothing_is_known_of_leaves_no_volume_without_a_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, support = DatasetFolder(path=str(tmp_path / "views/d")), OverlaySupport(enabled=True)
    monkeypatch.setattr(
        bind_mount, "overlay_with_data", Mock(side_effect=OSError(errno.ELOOP, "Too many levels"))
    )
    await support.look(dataset)
    assert not support.merged(dataset, version="v")


async def test_a_disk_that_fails_for_a_moment_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view keeps the form in which it was made: a fault of a moment must not choose it."""
    dataset, support = DatasetFolder(path=str(tmp_path / "views/d")), OverlaySupport(enabled=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "setxattr", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            await support.look(dataset)
    assert not support.merged(dataset, version="v")
    await support.look(dataset)
    assert support.merged(dataset, version="v")
    assert os.listdir(tmp_path / "views") == []


@pytest.fixture
def reader() -> Iterator[ReaderNode]:
    """A node with a remote-read client that runs."""
    with reader_node() as node:
        node.start()
        yield node


@pytest.fixture
async def merging(reader: ReaderNode) -> AsyncIterator[World]:
    """Views over that client, kept in step; a dataset is mounted, and none of it is on the node."""
    world = World(reader.folder)
    world.restarted(client=False, reader_root=reader.own.root, proc=Path("/proc"))
    await world.mount()
    async with watching(world.views):
        yield world


@needs_fuse
async def test_a_volume_grows_and_shrinks_under_a_pod_while_every_file_stays_readable(
    merging: World, reader: ReaderNode
) -> None:
    giver = Giver(reader.folder, "giver")
    identifiers = await merging.load()
    put_blocks(giver.tier, {identifiers["train/1.jpg"]: b"111", identifiers["train/2.jpg"]: b"2222"})
    for identifier in identifiers.values():
        drop_block(merging.tier, identifier)
    giver.process.start()
    pod = reader.folder / "kubelet/pods/pod/volume"
    pod.mkdir(parents=True)
    try:
        source = await merging.views.open(volume=VOLUME)
        assert isinstance(source, OpenSource)
        bind_mount.attach(source=source.folder, target=str(pod))
        source.close()
        (name,) = reader.own.registered.names()
        table = msgspec.msgpack.encode(table_of(holder_of(giver)))
        write_atomically(reader.own.holders / name, table)
        first = pod / "train/1.jpg"
        await eventually_async(lambda: _text(first) == "111", deadline=20)
        assert first.stat().st_nlink == 1

        await merging.load()
        await eventually_async(lambda: first.stat().st_nlink == 2, deadline=20)
        assert first.read_text() == "111"

        drop_block(merging.tier, identifiers["train/1.jpg"])
        assert first.read_text() == "111"
        await eventually_async(lambda: merging.views.reports()[0].repairs.released == 1, deadline=60)
        await eventually_async(lambda: merging.views.reports()[0].counts.kept_bytes == 0, deadline=20)
        assert first.read_text() == "111"
        assert (pod / "train/2.jpg").stat().st_nlink == 2
    finally:
        giver.process.kill()
        bind_mount.detach(target=str(pod))
        for folder in (merging.tier / names.VIEWS_FOLDER).glob("*/*/shown"):
            bind_mount.detach(target=str(folder))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
