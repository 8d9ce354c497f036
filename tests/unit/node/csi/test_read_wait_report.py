"""What the node plugin reports of how long pods waited: to the operator's own route."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from tdcs.engine.pod_wait_table import POD_WAITS, PodWaitTable, WaitOrigin
from tdcs.engine.read_reports import READ_WAITS_PATH, PodReadWaits, ReadWaits
from tdcs.engine.read_reports_service import read_waits_routes
from tdcs.node.csi.loader_waits import PREFIX, LoaderWaits
from tdcs.node.csi.pod_pressure import PodPressures
from tdcs.node.csi.read_wait_report import ReadWaitReport

POD = "0b0c3f4e-1c5a-4f0e-9d2b-6a7c8d9e0f11"
OTHER = "7777aaaa-1c5a-4f0e-9d2b-6a7c8d9e0f11"
SECOND = 10**9


class Node:
    """kubelet's folder of pods, a reader's table, and control groups; an operator that listens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.taken: list[ReadWaits] = []
        self.address = ""
        self.works = True
        self.now = 0.0
        (folder / "reader").mkdir()
        (folder / "pods").mkdir()
        self.table = PodWaitTable(folder / "reader" / POD_WAITS)
        self.report = self.reporter("127.0.0.1:1")

    def reporter(self, operator: str, *, counts: bool = True) -> ReadWaitReport:
        pressures = PodPressures(self.folder / "cgroup")
        return ReadWaitReport(
            node="a",
            pods=self.folder / "pods",
            operator=operator,
            reader_root=self.folder / "reader",
            pressures=pressures if counts else None,
            loaders=LoaderWaits(self.folder / "proc", pressures),
            clock=lambda: self.now,
        )

    def take(self, waits: ReadWaits) -> bool:
        if self.works:
            self.taken.append(waits)
        return self.works

    def mount(self, pod: str, volume: str = "tdcs.n.pictures") -> None:
        (self.folder / "pods" / pod / "volumes" / "kubernetes.io~csi" / volume).mkdir(parents=True)

    def pressure(self, pod: str, *, seconds: float) -> None:
        folder = self.folder / "cgroup" / "kubepods" / f"pod{pod}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "io.pressure").write_text(f"some avg10=0.00 total={int(seconds * 1e6)}\n")
        self.now = folder.stat().st_ctime + 100

    def reads(self, pod: str, *, peer: float = 0.0, source: float = 0.0) -> None:
        row = self.table.row(pod)
        self.table.add(row, WaitOrigin.PEER, int(peer * SECOND))
        self.table.add(row, WaitOrigin.SOURCE, int(source * SECOND))

    def container(self, pod: str, process: int) -> Path:
        """A container of a pod with one process; its shared memory."""
        group = self.folder / "cgroup" / "kubepods" / f"pod{pod}" / f"cri-{process}"
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text(f"{process}\n{process + 1}\n")
        memory = self.folder / "proc" / str(process) / "root" / "dev" / "shm"
        memory.mkdir(parents=True)
        return memory

    async def send(self) -> list[PodReadWaits]:
        """Report; what the operator took of it."""
        before = len(self.taken)
        await asyncio.to_thread(self.report.report)
        return [pod for report in self.taken[before:] for pod in report.pods]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    app = web.Application()
    app.add_routes(read_waits_routes(node.take))
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    node.address = f"{host}:{port}"
    node.report = node.reporter(node.address)
    yield node
    await runner.cleanup()


async def test_what_the_kernel_counts_is_the_disks_less_what_the_reader_counts(node: Node) -> None:
    node.mount(POD)
    node.reads(POD, peer=3, source=1)
    node.pressure(POD, seconds=10)
    (wait,) = await node.send()
    assert (wait.pod, wait.peer, wait.source, wait.disk) == (POD, 3, 1, 6)
    assert wait.seconds == pytest.approx(100)


async def test_pods_without_a_volume_of_ours_are_no_business_of_it(node: Node) -> None:
    node.mount(POD, volume="pvc-1234")
    node.pressure(POD, seconds=10)
    assert await node.send() == []


async def test_only_news_is_sent_and_what_was_not_taken_comes_again(node: Node) -> None:
    node.mount(POD)
    node.pressure(POD, seconds=10)
    node.report = node.reporter("127.0.0.1:1")
    assert await node.send() == []  # the operator is away
    node.report = node.reporter(node.address)
    assert [wait.disk for wait in await node.send()] == [10]
    node.pressure(POD, seconds=10.2)
    assert await node.send() == []
    node.pressure(POD, seconds=11)
    assert [wait.disk for wait in await node.send()] == [11]


async def test_an_operator_that_stands_by_takes_nothing_and_hears_it_when_it_works(node: Node) -> None:
    node.mount(POD)
    node.pressure(POD, seconds=10)
    node.works = False
    assert await node.send() == []
    node.works = True
    assert [wait.disk for wait in await node.send()] == [10]


async def test_of_a_pod_that_ended_the_last_that_was_known_stays(node: Node) -> None:
    node.mount(POD)
    node.reads(POD, peer=3)
    node.pressure(POD, seconds=10)
    await node.send()
    (node.folder / "cgroup" / "kubepods" / f"pod{POD}" / "io.pressure").unlink()
    for folder in sorted((node.folder / "pods").rglob("*"), reverse=True):
        folder.rmdir()
    node.reads(POD, peer=2)
    (wait,) = await node.send()
    assert (wait.peer, wait.disk) == (5, 7)
    assert wait.seconds == pytest.approx(100, abs=1)


async def test_where_the_kernel_does_not_count_only_the_readers_pods_are_reported(node: Node) -> None:
    node.report = node.reporter(node.address, counts=False)
    node.mount(POD)
    node.mount(OTHER)
    node.reads(OTHER, source=2)
    (wait,) = await node.send()
    assert (wait.pod, wait.source, wait.disk) == (OTHER, 2, None)


def loop(memory: Path, name: str = "0f", *, seconds: float = 50, waited: float = 5) -> None:
    text = f'{{"seconds": {seconds}, "waited": {waited}}}'
    (memory / f"{PREFIX}{name}").write_text(text)


async def test_the_loops_of_all_containers_of_a_pod_are_reported_and_stay_after_its_end(node: Node) -> None:
    node.mount(POD)
    node.pressure(POD, seconds=1)
    loop(first := node.container(POD, 100), waited=20)
    loop(node.container(POD, 200), seconds=70, waited=1)
    (wait,) = await node.send()
    assert (wait.loop_seconds, wait.loop_waited, wait.disk) == (120, 21, 1)
    loop(first, seconds=60, waited=30)
    (wait,) = await node.send()
    assert (wait.loop_seconds, wait.loop_waited) == (130, 31)
    shutil.rmtree(node.folder / "cgroup")
    node.reads(POD, peer=2)
    (wait,) = await node.send()
    assert (wait.peer, wait.loop_seconds, wait.loop_waited) == (2, 130, 31)


async def test_a_loop_is_reported_where_the_kernel_counts_nothing(node: Node) -> None:
    node.report = node.reporter(node.address, counts=False)
    node.mount(POD)
    loop(node.container(POD, 100))
    (wait,) = await node.send()
    assert (wait.seconds, wait.disk, wait.loop_seconds, wait.loop_waited) == (0, None, 50, 5)


async def test_containers_that_share_their_memory_count_once(node: Node) -> None:
    node.mount(POD)
    loop(first := node.container(POD, 100))
    second = node.container(POD, 200)
    os.link(first / f"{PREFIX}0f", second / f"{PREFIX}0f")
    (wait,) = await node.send()
    assert wait.loop_seconds == 50


async def test_loops_of_pods_without_a_volume_of_ours_are_no_business_of_it(node: Node) -> None:
    loop(node.container(POD, 100))
    assert await node.send() == []


async def test_no_container_leads_to_other_files_or_stops_the_report(node: Node) -> None:
    """Each of these is what a hostile container may have there; none is read, and the good file next to them is."""
    node.mount(POD)
    memory = node.container(POD, 100)
    secret = node.folder / "secret"
    secret.write_text('{"seconds": 999, "waited": 999}')
    (memory / f"{PREFIX}link").symlink_to(secret)
    (memory / f"{PREFIX}folder").mkdir()
    os.mkfifo(memory / f"{PREFIX}pipe")
    for number, text in enumerate(
        (
            "",
            "[]",
            "{}",
            '{"seconds": -1, "waited": 0}',
            '{"seconds": 1e300, "waited": 0}',
            "\xff",
            "9" * 600,
            "[" * 500,
        )
    ):
        (memory / f"{PREFIX}{number}").write_bytes(text.encode("latin-1"))
    (memory / f"{PREFIX}0e.new").write_text(secret.read_text())
    loop(memory, seconds=50)
    for process, part in ((200, "dev"), (300, "dev/shm")):
        root = node.container(POD, process).parent.parent
        shutil.rmtree(root / "dev")
        container = node.folder / f"other-{process}" / "shm"
        container.mkdir(parents=True)
        loop(container)
        if part == "dev":
            (root / part).symlink_to(container.parent)
        else:
            (root / "dev").mkdir()
            (root / part).symlink_to(container)
    (wait,) = await node.send()
    assert (wait.loop_seconds, wait.loop_waited) == (50, 5)


async def test_many_files_are_looked_at_in_part_and_sums_stay_numbers_that_the_operator_takes(
    node: Node,
) -> None:
    node.mount(POD)
    memory = node.container(POD, 100)
    for number in range(300):
        loop(memory, f"{number:x}", seconds=1e9, waited=1e9)
    (wait,) = await node.send()
    assert (wait.loop_seconds, wait.loop_waited) == (1e9, 1e9)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"node": 1}', 400),
        (b'{"node":"a","pods":[{"pod":"p","seconds":1e300}]}', 400),
        (b'{"node":"a","pods":[{"pod":"p","seconds":-1}]}', 400),
        (b'{"node":"a","pods":[{"pod":"' + b"p" * 65 + b'","seconds":1}]}', 400),
        (b"{" + b" " * 2**20, 413),
        (b'{"node":"a"}', 202),
    ],
)
async def test_what_is_no_report_is_refused(node: Node, body: bytes, status: int) -> None:
    async with ClientSession() as session:
        answer = await session.post(f"http://{node.address}{READ_WAITS_PATH}", data=body)
        assert answer.status == status
