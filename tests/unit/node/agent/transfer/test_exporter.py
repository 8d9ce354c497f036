"""What an agent tells Alluxio of the files that lie here, of a master and a worker that do as they are told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import grpc
import pytest
from tests.support.dataplane.agents import MOUNT, fill, folder_version

from tdcs.alluxio.exported_files import ExportedFile, ExportedFiles
from tdcs.alluxio.master_room import MasterRoom
from tdcs.alluxio.rpc import Rpc, RpcFailureError
from tdcs.alluxio.worker_blocks import OpenBlockError, PresentBlockError, UnknownBlockError, WorkerBlocks
from tdcs.model.block_identity import identity_of
from tdcs.model.file_blocks import Cut
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.transfer.exporter import QUIET_SECONDS, Exporter
from tdcs.node.file_facts import FileFacts

FILES = {f"{number:02}.bin": b"%02d" % number * 50 for number in range(12)}
FILES["large.bin"] = b"several blocks" * 40


class Master(ExportedFiles):
    """The master's files, without any RPC."""

    def __init__(self) -> None:
        super().__init__(Rpc(target="127.0.0.1:1", patience=0))
        self.journal = "first"
        self.away = False
        self.files: dict[str, ExportedFile] = {}
        self.worker_blocks: Callable[[], Collection[int]] = tuple
        self.length_of: Callable[[int], int] = int
        self.clock: Callable[[], float] = float
        self.made: dict[str, float] = {}
        self.next_block = 1 << 24
        self.most = 1000
        self.agents = 1

    def forget_all(self, journal: str) -> None:
        """The master's disk was lost: ids begin anew."""
        self.journal, self.files, self.next_block = journal, {}, 1 << 24

    async def ask(self) -> str:
        self._answer()
        return self.journal

    async def room(self) -> MasterRoom:
        self._answer()
        return MasterRoom(paths=len(self.files), most=self.most, workers=self.agents, heap_bytes=1 << 30)

    def _answer(self) -> None:
        if self.away:
            raise RpcFailureError(code=grpc.StatusCode.UNAVAILABLE, text="")

    async def find(self, path: str) -> ExportedFile | None:
        self._answer()
        file = self.files.get(path)
        if file is None:
            return None
        is_here = file.block in self.worker_blocks()
        elsewhere = file.workers - {"here"}
        age = self.clock() - self.made[path] if path in self.made else file.age_seconds
        return file._replace(workers=elsewhere | ({"here"} if is_here else set()), age_seconds=age)

    async def create(self, path: str, *, tag: str, instead: bool) -> int:
        self._answer()
        if path in self.files and not instead:
            raise RpcFailureError(code=grpc.StatusCode.ALREADY_EXISTS, text="")
        self.next_block += 1 << 24
        self.made[path] = self.clock()
        self.files[path] = ExportedFile(self.next_block, 0, tag, False, 0.0, frozenset())
        return self.next_block

    async def complete(self, path: str) -> None:
        self._answer()
        if self.files[path].block not in self.worker_blocks():
            raise RpcFailureError(code=grpc.StatusCode.INVALID_ARGUMENT, text="")
        length = self.length_of(self.files[path].block)
        self.files[path] = self.files[path]._replace(is_whole=True, length=length)

    async def path_of(self, block: int) -> str | None:
        self._answer()
        return next((path for path, file in self.files.items() if file.block == block), None)


class Worker(WorkerBlocks):
    """The worker's folder, without any RPC."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.open = set[int]()
        self.asked = 0

    def blocks(self) -> set[int]:
        return {int(file.name) for file in self._folder.iterdir()}

    async def create(
        self, *, block_id: int, length: int, place: Callable[[str], None], deadline: float = 60.0
    ) -> None:
        if block_id in self.blocks():
            raise PresentBlockError
        place(str(self._folder / str(block_id)))

    async def remove(self, block_id: int) -> None:
        self.asked += 1
        if block_id in self.open:
            raise OpenBlockError
        if block_id not in self.blocks():
            raise UnknownBlockError
        (self._folder / str(block_id)).unlink()


class World:
    """A node with twelve files, and Alluxio's two processes."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        source = fill(folder / "source", FILES)
        self.version = folder_version(source, store=folder / "manifests", cut=Cut(whole=200, block=128))
        self.disk = Disk(folder / "tier")
        self.disk.prepare()
        self.disk.lent.mkdir()
        for name in FILES:
            self.hold(name)
        self.mount = MountWork(
            path=MOUNT,
            lock=threading.RLock(),
            room=Room(capacity=1 << 30, free=lambda: 1 << 30),
            clock=lambda: self.now,
        )
        self.mount.opened(Ledger(self.version.manifest))
        self.master, self.worker = Master(), Worker(self.disk.lent)
        self.master.worker_blocks = self.worker.blocks
        self.master.clock = lambda: self.now
        self.master.length_of = lambda block: (self.disk.lent / str(block)).stat().st_size
        self.start()

    def start(self) -> None:
        """The agent's process begins."""
        self.exporter = Exporter(
            disk=self.disk,
            files=self.master,
            worker=self.worker,
            journal=self.master.ask,
            room=self.master.room,
            mounts=lambda: [self.mount],
            clock=lambda: self.now,
        )

    def block(self, name: str) -> int:
        manifest = self.version.manifest
        return next(n for n in range(manifest.blocks) if manifest.file_path(n).decode() == name)

    def place(self, name: str) -> Path:
        """Where the disk has a file, when it has it."""
        manifest, block = self.version.manifest, self.block(name)
        several = len(manifest.blocks_of(manifest.file_of(block))) > 1
        folder = self.disk.large.folders.whole if several else self.disk.spool
        return Path(folder) / str(manifest.block_ids[block])

    def hold(self, name: str) -> None:
        """A file comes here."""
        file, block = self.place(name), self.block(name)
        file.write_bytes(FILES[name])
        facts = FileFacts(identity_of(self.version.manifest, block), len(FILES[name]), 0)
        self.disk.facts.write(str(file), facts)

    def drop(self, name: str) -> None:
        """It goes; the disk knows nothing of a large one that came as here, and would leave it."""
        self.place(name).unlink()

    async def settle(self, seconds: float = 60.0) -> None:
        """Time passes in which the exporter works."""
        end = self.now + seconds
        while self.now < end:
            await self.exporter.step()
            self.now += 1.0

    def exported(self) -> dict[str, bytes]:
        """What a client of Alluxio reads: the names, and the bytes that the worker has under the file's block."""
        return {
            path.removeprefix(f"{MOUNT}/"): (self.disk.lent / str(file.block)).read_bytes()
            for path, file in self.master.files.items()
            if file.is_whole and file.block in self.worker.blocks()
        }


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_what_is_here_is_exported_and_what_leaves_is_taken_back(
    world: World,
) -> None:
    await world.settle()
    assert world.exported() == FILES
    next_block = world.master.next_block
    world.start()
    await world.settle()
    assert world.master.next_block == next_block, "the next process finds all of it exported"

    world.drop("03.bin")
    await world.settle()
    assert world.exported() == {name: content for name, content in FILES.items() if name != "03.bin"}


async def test_nothing_of_a_listing_that_goes_on_is_exported_before_it_is_a_version(world: World) -> None:
    world.mount.assign(world.version.assignment(early_files=len(FILES)))
    await world.settle()
    assert not world.master.files, "the source may be refused yet: it may have too many files for the master"
    world.mount.assign(world.version.assignment(version=2))
    await world.settle()
    assert world.exported() == FILES


async def test_a_file_that_another_node_has_exported_gets_one_more_place_and_loses_only_that(
    world: World,
) -> None:
    await world.settle()
    path = f"{MOUNT}/05.bin"
    world.master.files[path] = world.master.files[path]._replace(workers=frozenset({"other"}))
    world.drop("05.bin")
    await world.settle()
    assert world.master.files[path].workers == {"other"}
    world.hold("05.bin")
    await world.settle()
    assert world.exported() == FILES
    exported_file = await world.master.find(path)
    assert exported_file is not None
    assert exported_file.workers == {"here", "other"}


async def test_a_lost_journal_is_filled_again_and_no_old_id_is_left_before(world: World) -> None:
    await world.settle()
    world.master.forget_all("second")
    await world.settle(QUIET_SECONDS)
    assert not world.worker.blocks(), "their ids are given again to other files"
    assert not world.master.files
    await world.settle()
    assert world.exported() == FILES


@pytest.mark.parametrize("again", [False, True], ids=["the process goes on", "another process"])
async def test_what_is_open_keeps_no_id_of_a_lost_journal(world: World, again: bool) -> None:
    await world.settle()
    held = max(file.block for file in world.master.files.values())
    world.worker.open.add(held)
    world.master.forget_all("second")
    foreign_path = f"{MOUNT}/of another node"
    world.master.files[foreign_path] = ExportedFile(held, 100, "tag", True, 60.0, frozenset({"other"}))
    world.master.next_block = held
    await world.settle(2 * QUIET_SECONDS)
    assert world.worker.blocks() == {held}, "nothing gets an id before all have lost theirs"
    if again:
        world.start()
        await world.settle(2 * QUIET_SECONDS)
        assert world.worker.blocks() == {held}
    world.worker.open.clear()
    await world.settle(200.0)
    exported_file = await world.master.find(foreign_path)
    assert exported_file is not None
    assert exported_file.workers == {"other"}
    assert world.exported() == FILES


async def test_a_block_whose_id_the_master_has_given_to_another_file_is_taken_back(world: World) -> None:
    await world.settle()
    path = f"{MOUNT}/03.bin"
    block = world.master.files[path].block
    world.master.files[path] = world.master.files[path]._replace(tag="another", workers=frozenset({"other"}))
    world.worker.open.add(block)
    world.start()
    await world.settle()
    assert block in world.worker.blocks()
    world.worker.open.clear()
    await world.settle(180.0)
    assert world.exported() == FILES
    assert world.master.files[path].block != block


async def test_what_a_reader_holds_open_is_asked_for_with_growing_pauses(world: World) -> None:
    await world.settle()
    world.worker.open = world.worker.blocks()
    world.drop("03.bin")
    world.worker.asked = 0
    for _ in range(600):
        assert not await world.exporter.step(), "there is a pause after a step that does nothing"
        world.now += 1.0
    assert 5 < world.worker.asked < 60
    world.worker.open.clear()
    await world.settle(120.0)
    assert world.exported().keys() == FILES.keys() - {"03.bin"}


async def test_while_nothing_changes_there_are_few_looks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = list[float](), Exporter._look

    def counted(exporter: Exporter) -> tuple[dict[int, int], dict[int, int]]:
        looks.append(world.now)
        return look(exporter)

    monkeypatch.setattr(Exporter, "_look", counted)
    world.hold("03.bin")
    monkeypatch.setattr("tdcs.node.agent.transfer.exporter._AT_ONCE", 2)
    await world.settle(9.0)
    assert world.exported() == FILES
    assert len(looks) < 6, "one look serves many steps"
    monkeypatch.undo()

    # What has failed and left is remembered no more.
    world.drop("05.bin")
    await world.settle()
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "create", refusing)
        world.hold("05.bin")
        await world.settle(5.0)
    world.drop("05.bin")
    await world.settle(300.0)
    monkeypatch.setattr(Exporter, "_look", counted)
    for starts in (False, True):
        if starts:
            world.start()
        looks.clear()
        await world.settle(3600.0)
        assert len(looks) < 150


async def refusing(worker: Worker, **_: object) -> None:
    raise FileNotFoundError(2, "it has gone")


async def test_a_name_that_is_no_id_is_in_the_way_of_nothing(world: World) -> None:
    for folder in (world.disk.spool, world.disk.lent):
        (folder / ("9" * 20)).write_bytes(b"")
    await world.settle()
    (world.disk.lent / ("9" * 20)).unlink()
    assert world.exported() == FILES


async def test_a_journal_that_was_lost_while_no_agent_ran_is_found_by_the_next_one(world: World) -> None:
    await world.settle()
    world.master.forget_all("second")
    world.start()
    await world.settle(QUIET_SECONDS)
    assert not world.worker.blocks()
    await world.settle()
    assert world.exported() == FILES


async def test_without_a_master_nothing_is_exported_and_what_is_dropped_leaves_its_room(world: World) -> None:
    world.master.away = True
    await world.settle()
    assert not world.worker.blocks()
    world.master.away = False
    await world.settle()
    world.master.away = True
    world.drop("07.bin")
    await world.settle()
    assert len(world.worker.blocks()) == len(FILES) - 1
    world.master.away = False
    await world.settle()
    assert world.exported() == {name: content for name, content in FILES.items() if name != "07.bin"}


async def test_a_file_of_an_older_version_or_one_that_nobody_finished_is_made_again(world: World) -> None:
    old = ExportedFile(5, 100, "another", True, 3600.0, frozenset({"other"}))
    half = ExportedFile(
        6, 0, world.version.manifest.file_id(world.block("01.bin")).hex(), False, 60.0, frozenset()
    )
    world.master.files = {f"{MOUNT}/00.bin": old, f"{MOUNT}/01.bin": half}
    await world.settle()
    assert world.exported() == FILES


async def test_a_file_that_another_node_is_telling_of_is_left_to_it(world: World) -> None:
    tag = world.version.manifest.file_id(world.block("02.bin")).hex()
    path = f"{MOUNT}/02.bin"
    world.master.files = {path: ExportedFile(6, 0, tag, False, 1.0, frozenset())}
    await world.settle()
    assert not world.master.files[path].is_whole
    assert len(world.exported()) == len(FILES) - 1
    world.master.files[path] = ExportedFile(6, 100, tag, True, 5.0, frozenset({"other"}))
    await world.settle(180.0)
    assert world.exported() == FILES


async def test_a_file_that_a_killed_process_did_not_finish_is_finished_by_the_next_one(world: World) -> None:
    path, tag = f"{MOUNT}/02.bin", world.version.manifest.file_id(world.block("02.bin")).hex()
    block = await world.master.create(path, tag=tag, instead=False)
    identity = int(world.version.manifest.block_ids[world.block("02.bin")])
    world.disk.lend(identity, worker_file=str(world.disk.lent / str(block)))
    world.disk.lend(
        identity, worker_file=str(world.disk.lent / "12345")
    )  # of a file that was made anew since
    world.disk.exported_journal.write_text("first\n")
    await world.settle()
    assert world.exported() == FILES
    assert world.master.files[path].block == block


async def test_a_file_of_several_blocks_is_exported_when_all_of_it_is_here(world: World) -> None:
    first = world.version.manifest.block_ids[world.block("large.bin")]
    part = world.disk.spool / str(first)
    (world.disk.large.folders.whole / str(first)).rename(part)
    with part.open("r+b") as opened:
        opened.truncate(128)
    await world.settle()
    assert "large.bin" not in world.exported(), "a part of it is no file"
    part.unlink()
    world.hold("large.bin")
    await world.settle(180.0)
    assert world.exported() == FILES


async def test_what_alluxios_own_clients_keep_at_the_worker_stays(world: World) -> None:
    (world.disk.lent / "77").write_bytes(b"theirs")
    await world.settle()
    world.master.forget_all("second")
    await world.settle()
    assert (world.disk.lent / "77").read_bytes() == b"theirs"


@pytest.mark.failure_mode("alluxio-master-full")
async def test_no_more_is_exported_than_the_masters_heap_has_room_for_and_the_rest_when_it_has(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tdcs.node.agent.transfer.exporter")
    world.master.most = 5
    await world.settle(300.0)
    assert len(world.master.files) == 5
    assert len(world.exported()) == 5
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "knows 5 files and folders, and its heap has room for 5" in line
    assert "spec.master.jvmOptions" in line

    # What leaves the cache is taken back all the same, and a larger heap takes the rest.
    path, _ = next(iter(world.exported().items()))
    world.drop(path)
    await world.settle()
    assert path not in world.exported()
    world.master.most = 1000
    await world.settle(120.0)
    assert world.exported() == {name: content for name, content in FILES.items() if name != path}


async def test_agents_that_export_at_once_leave_each_other_room_and_pass_no_limit(world: World) -> None:
    world.master.most, world.master.agents = 12, 3
    await world.settle(9.0)
    assert len(world.master.files) == 4, "a third, until it asks again"
    await world.settle(300.0)
    assert 9 < len(world.master.files) <= 12
