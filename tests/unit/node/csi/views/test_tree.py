"""Trees of links on a real disk."""

import os
import stat
import time
from pathlib import Path

import pytest
from tests.support.dataplane.agents import fill, folder_version
from tests.support.waiting import eventually
from tests.unit.node.csi.views.builders import (
    PATH,
    ViewDisk,
    admit_block,
    drop_block,
    id_of,
    is_link,
    is_placeholder,
    listed,
    manifest_of,
    needs_overlays,
    put_blocks,
    refuse_block,
)
from xxhash import xxh3_64_intdigest

from tdcs.api import names
from tdcs.model.block_identity import identity_of
from tdcs.model.file_blocks import Cut
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.node.agent.disk.partial_file import DiskError
from tdcs.node.agent.disk.shutdown_mark import ShutdownMark
from tdcs.node.agent.disk.tier import Disk as AgentDisk
from tdcs.node.agent.disk.unclean_start import make_ready
from tdcs.node.csi.views.block_store import Folders, Store
from tdcs.node.csi.views.overlay import placeholder_number
from tdcs.node.csi.views.view_plan import Form, kinds_of
from tdcs.node.csi.views.view_tree import Outcome
from tdcs.node.extents import extent_place
from tdcs.node.file_facts import FactsStore, FileFacts

pytestmark = needs_overlays

FILE_HERE, FILE_AWAY = listed("d/here", 4), listed("d/away", 4)
HERE, AWAY = id_of(FILE_HERE), id_of(FILE_AWAY)
STRANGE = ["with space", "ünïcode-ß-日本", "a:b", "100%", "new\nline", "x" * 255, "d:e/f g/%41"]


@pytest.fixture
def disk(tmp_path: Path) -> ViewDisk:
    """Of one file the block is on the node, of one it is not; one has two blocks, and the last one is empty."""
    put_blocks(tmp_path, {HERE: b"here"})
    return ViewDisk(
        tmp_path,
        manifest_of(FILE_HERE, FILE_AWAY, listed("parts", 8), listed("d/e/empty")),
    )


def test_each_file_has_the_form_that_its_blocks_allow(disk: ViewDisk) -> None:
    disk.follow()

    file = disk.root / "d/here"
    assert file.read_text() == "here"
    assert file.stat().st_ino == (disk.tier / names.AGENT_SPOOL / str(HERE)).stat().st_ino
    assert is_placeholder(disk.root / "d/away")
    assert is_placeholder(disk.root / "parts")
    assert (disk.root / "d/e/empty").read_bytes() == b""


def test_nothing_in_the_tree_can_be_written_to_and_neither_can_the_block(disk: ViewDisk) -> None:
    disk.follow()

    for folder, _, files in os.walk(disk.root):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o555
        for name in files:
            assert os.lstat(os.path.join(folder, name)).st_mode == stat.S_IFREG | 0o444
    assert stat.S_IMODE((disk.tier / names.AGENT_SPOOL / str(HERE)).stat().st_mode) == 0o444


def test_a_block_that_comes_replaces_the_way_to_the_client(disk: ViewDisk) -> None:
    disk.follow()
    put_blocks(disk.tier, {AWAY: b"away"})

    disk.follow()

    assert not is_placeholder(disk.root / "d/away")
    assert (disk.root / "d/away").read_text() == "away"


@pytest.mark.failure_mode("block-of-another-file", "cache-recreated-under-pods")
def test_a_file_that_says_that_it_is_another_one_is_not_linked(disk: ViewDisk) -> None:
    manifest = manifest_of(listed("another", 4))
    facts = FactsStore(str(disk.tier))
    block = str(disk.tier / names.AGENT_SPOOL / str(HERE))
    facts.write(block, FileFacts(identity_of(manifest, 0), 4, 0))
    disk.follow()
    assert is_placeholder(disk.root / "d/here"), "two blocks have one id"

    number = disk.manifest.file_at(b"d/here")
    assert number is not None
    (mine,) = disk.manifest.blocks_of(number)
    facts.write(block, FileFacts(identity_of(disk.manifest, mine), 4, 0))
    disk.follow()
    assert (disk.root / "d/here").read_text() == "here"


def test_a_block_that_goes_is_kept_until_it_is_released(disk: ViewDisk) -> None:
    disk.follow()
    drop_block(disk.tier, HERE)

    disk.follow()
    assert (disk.root / "d/here").read_text() == "here"
    disk.follow(release=True)

    assert is_placeholder(disk.root / "d/here")


def test_a_block_that_was_loaded_again_is_not_kept_twice(disk: ViewDisk) -> None:
    disk.follow()
    with (disk.root / "d/here").open() as reader:
        drop_block(disk.tier, HERE)
        put_blocks(disk.tier, {HERE: b"here"})
        disk.follow()

        assert (disk.root / "d/here").stat().st_ino == (
            disk.tier / names.AGENT_SPOOL / str(HERE)
        ).stat().st_ino
        assert reader.read() == "here"


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.failure_mode("wrong-copy-read-natively")
def test_no_view_links_a_block_that_its_agent_has_refused(disk: ViewDisk, dropped: bool) -> None:
    refuse_block(disk.tier, HERE)
    disk.follow()
    assert is_placeholder(disk.root / "d/here")

    admit_block(disk.tier, HERE)
    disk.follow()
    assert (disk.root / "d/here").read_text() == "here"

    refuse_block(disk.tier, HERE)  # after it was linked
    if dropped:
        drop_block(disk.tier, HERE)  # a link that keeps a good block is left, this one is not
    disk.reopened()
    disk.follow()
    assert is_placeholder(disk.root / "d/here")

    put_blocks(disk.tier, {HERE: b"good"})
    disk.follow()
    assert is_placeholder(disk.root / "d/here")
    admit_block(disk.tier, HERE)
    disk.follow()
    assert (disk.root / "d/here").read_text() == "good"


@pytest.mark.parametrize("name", ["", "99", "not a block"])
def test_what_is_next_to_refused_blocks_does_no_harm(disk: ViewDisk, name: str) -> None:
    refuse_block(disk.tier, AWAY)
    folder = disk.tier / names.refused_folder(mount=PATH)
    if name:
        (folder / name).touch()
    else:
        (folder / str(AWAY)).unlink()
        folder.rmdir()
        folder.symlink_to("/etc")
    disk.follow()
    assert (disk.root / "d/here").read_text() == "here"


@pytest.mark.parametrize("content", [b"", b"short"[:3], b"longer than it was listed"])
def test_a_block_of_another_length_is_not_linked_and_named(disk: ViewDisk, content: bytes) -> None:
    put_blocks(disk.tier, {AWAY: content})

    outcome = disk.follow()

    assert outcome.wrong_length == (AWAY,)
    assert is_placeholder(disk.root / "d/away")
    assert disk.follow().wrong_length == (AWAY,)
    put_blocks(disk.tier, {AWAY: b"good"})
    assert disk.follow().wrong_length == ()
    assert (disk.root / "d/away").read_text() == "good"


def test_a_link_in_the_workers_folder_is_not_taken_for_a_block(disk: ViewDisk) -> None:
    secret = disk.tier / "secret"
    secret.write_text("1234")
    (disk.tier / names.AGENT_SPOOL / str(AWAY)).symlink_to(secret)

    disk.follow()

    assert is_placeholder(disk.root / "d/away")


def test_a_new_process_finds_what_is_there_and_changes_nothing(disk: ViewDisk) -> None:
    disk.follow()
    before = {path: path.lstat().st_ino for path in disk.root.rglob("*")}
    (disk.tier / "scratch" / "left").write_text("by a process that was killed")

    disk.reopened()

    assert disk.follow() == Outcome()
    assert {path: path.lstat().st_ino for path in disk.root.rglob("*")} == before
    assert sorted(disk.tree.forms.tolist()) == [Form.EMPTY, Form.REMOTE, Form.REMOTE, Form.LINK]
    assert not (disk.tier / "scratch" / "left").exists()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("d/away", "link to another file"),
        ("d/away", "plain file"),
        ("d/e/empty", "plain file"),
        ("d/e/empty", "link to another file"),
        ("d/here", "plain file"),
        ("parts", "plain file"),
    ],
)
@pytest.mark.failure_mode("foreign-entry-in-view")
def test_what_is_not_as_a_view_makes_it_is_replaced(disk: ViewDisk, name: str, wrong: str) -> None:
    disk.follow()
    before = contents_of(disk)
    file = disk.root / name
    file.unlink()
    if wrong == "plain file":
        file.write_text("of another length")
    else:
        file.symlink_to(disk.root / "d" / "here")
    disk.reopened()

    disk.follow()

    assert contents_of(disk) == before


def contents_of(disk: ViewDisk) -> dict[Path, tuple[int | None, bytes]]:
    """Of all files: whose placeholder it is, and the bytes."""
    files = (path for path in disk.root.rglob("*") if path.is_symlink() or path.is_file())
    return {path: (placeholder_number(os.fsencode(path)), path.read_bytes()) for path in files}


def test_a_tree_that_was_made_half_is_completed(disk: ViewDisk) -> None:
    disk.follow()
    (disk.root / "d/here").unlink()
    (disk.root / "d/e/empty").unlink()
    (disk.root / "d/e").rmdir()

    disk.reopened()
    disk.follow()

    assert (disk.root / "d/here").read_text() == "here"
    assert (disk.root / "d/e/empty").exists()


def test_names_of_all_kinds_have_links_and_placeholders(tmp_path: Path) -> None:
    files = [listed(name, 1) for name in STRANGE]
    put_blocks(tmp_path, {id_of(file): b"%d" % number for number, file in enumerate(files) if not number % 2})
    disk = ViewDisk(tmp_path, manifest_of(*files))

    disk.follow()

    for number, name in enumerate(STRANGE):
        link = disk.root / name
        assert is_placeholder(link) == bool(number % 2)
        assert number % 2 or link.read_text() == str(number)


@pytest.mark.failure_mode("node-power-lost-with-lying-disk")
def test_nothing_is_linked_before_the_agent_has_made_the_store_ready(tmp_path: Path) -> None:
    file = listed("a", 7)
    put_blocks(tmp_path, {id_of(file): b"content"})
    manifest = manifest_of(file)
    store = Store(tiers=[str(tmp_path)], mount=PATH)
    (tmp_path / names.AGENT_BOOT).write_text("of the run of the kernel that ended without power\n")
    assert not store.scan(manifest=manifest, kinds=kinds_of(manifest)).local.any()
    with store.opened() as folders:
        assert folders == Folders([], [])
    for place in (names.AGENT_BOOT, names.AGENT_SPOOL):
        os.utime(tmp_path / place, (1, 1))
    before = store.stamp()
    assert before > 0
    ShutdownMark(tmp_path / names.AGENT_FOLDER).begin()
    assert store.stamp() != before
    assert store.scan(manifest=manifest, kinds=kinds_of(manifest)).local.all()


def test_no_link_is_kept_before_the_agent_has_checked_files_after_a_loss_of_power(
    disk: ViewDisk,
) -> None:
    disk.follow()
    assert (disk.root / "d/here").read_text() == "here"
    (disk.tier / names.AGENT_BOOT).write_text("of the run of the kernel that ended without power\n")
    disk.reopened()
    disk.follow()
    assert is_placeholder(disk.root / "d/here")
    ShutdownMark(disk.tier / names.AGENT_FOLDER).begin()
    disk.follow()
    assert (disk.root / "d/here").read_text() == "here"


@pytest.mark.parametrize("large", [False, True], ids=["one block", "several blocks"])
@pytest.mark.failure_mode("node-power-lost-with-lying-disk")
def test_no_pod_reads_what_a_loss_of_power_has_damaged(tmp_path: Path, large: bool) -> None:
    content = bytes(range(1, 201)) * 100
    version = folder_version(
        fill(tmp_path / "source", {"file": content}),
        store=tmp_path / "manifests",
        mount=PATH,
        cut=Cut(whole=1 << 10, block=1 << 12) if large else Cut(whole=1 << 30, block=1 << 30),
    )
    manifest = version.manifest

    def started() -> AgentDisk:
        disk = AgentDisk(tmp_path / "tier")
        disk.prepare()
        make_ready(disk)
        return disk

    def bring(agent: AgentDisk) -> None:
        for number, block in enumerate(manifest.block_ids.tolist()):
            begin = sum(manifest.block_lengths[:number].tolist())
            part = content[begin : begin + int(manifest.block_lengths[number])]
            if agent.has(block):
                continue
            with agent.create(block, place=extent_place(manifest, number)) as partial:
                partial.write(memoryview(part), offset=0)
                agent.keep(
                    partial,
                    block=block,
                    identity=identity_of(manifest, number),
                    length=len(part),
                    content_hash=xxh3_64_intdigest(part),
                )

    agent = started()
    bring(agent)
    node = ViewDisk(tmp_path / "tier", manifest)
    node.follow()
    file = node.root / "file"
    assert file.read_bytes() == content
    file.chmod(0o644)
    with file.open("r+b") as opened:
        opened.write(bytes(100))
    (tmp_path / "tier" / names.AGENT_BOOT).write_text("of the run of the kernel that ended without power\n")

    agent = started()
    node.reopened()
    node.follow()
    assert is_placeholder(file), "it is read from others"

    def brings() -> bool:
        try:
            bring(agent)
        except DiskError:
            return False  # what is left of the file is being copied
        return True

    eventually(brings, deadline=60)
    node.follow()
    assert file.read_bytes() == content
    assert not is_placeholder(file)


def test_the_stamp_changes_with_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()

    def change(folder: str) -> None:
        """Have a folder be changed at this moment."""
        os.utime(tmp_path / folder, ns=(now, now))

    monkeypatch.setattr(time, "time_ns", lambda: now)  # it stands still: a machine may be slow
    store = Store(tiers=[str(tmp_path)], mount=PATH)
    assert store.stamp() == 0
    stamps = {0}
    for folder in (names.AGENT_SPOOL, names.AGENT_WHOLE):
        put_blocks(tmp_path, {HERE: b"x"}, folder=folder)
        change(folder)
        assert store.stamp() == -1  # too young to be relied on
        os.utime(tmp_path / names.AGENT_BOOT, (1, 1))
        for second in (1, 2):
            os.utime(tmp_path / folder, (second, second))
            assert store.stamp() == store.stamp() not in {-1, *stamps}
            stamps.add(store.stamp())
    refuse_block(tmp_path, HERE)
    change(names.refused_folder(mount=PATH))
    assert store.stamp() == -1
    os.utime(tmp_path / names.refused_folder(mount=PATH), (3, 3))
    assert store.stamp() not in {-1, *stamps}


def test_blocks_with_the_longest_ids_are_linked(tmp_path: Path) -> None:
    files = {f"train/{number}": bytes([number]) * 10 for number in range(40)}
    builder = ManifestBuilder(path=PATH, source="s3://b")
    builder.add_listed((path.encode(), len(content), b'"tag"') for path, content in files.items())
    manifest = builder.manifest()
    paths = [manifest.file_path(manifest.file_of(block)).decode() for block in range(manifest.blocks)]
    assert max(manifest.block_ids) >= 10**18, "as long as a number of 63 bits gets"
    blocks = {int(manifest.block_ids[block]): files[path] for block, path in enumerate(paths)}
    put_blocks(tmp_path, blocks, folder=names.AGENT_SPOOL)
    disk = ViewDisk(tmp_path, manifest)
    disk.follow()
    for path, content in files.items():
        assert is_link(disk.root / path)
        assert (disk.root / path).read_bytes() == content
