"""What the node plugin reports of how long pods waited: to the operator's own route."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from tdcs.engine.pod_wait_table import POD_WAITS, PodWaitTable, WaitOrigin
from tdcs.engine.read_reports import READ_WAITS_PATH, PodReadWaits, ReadWaits
from tdcs.engine.read_reports_service import read_waits_routes
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
        return ReadWaitReport(
            node="a",
            pods=self.folder / "pods",
            operator=operator,
            reader_root=self.folder / "reader",
            pressures=PodPressures(self.folder / "cgroup") if counts else None,
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

    async def send(self) -> list[PodReadWaits]:
        """Report; what the operator took of it."""
        before = len(self.taken)
        await asyncio.to_thread(self.report.report)
        return [pod for taken in self.taken[before:] for pod in taken.pods]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    found = Node(tmp_path)
    app = web.Application()
    app.add_routes(read_waits_routes(found.take))
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.address = f"{host}:{port}"
    found.report = found.reporter(found.address)
    yield found
    await runner.cleanup()


async def test_what_the_kernel_counts_is_the_disks_less_what_the_reader_counts(node: Node) -> None:
    node.mount(POD)
    node.reads(POD, peer=3, source=1)
    node.pressure(POD, seconds=10)
    (found,) = await node.send()
    assert (found.pod, found.peer, found.source, found.disk) == (POD, 3, 1, 6)
    assert found.seconds == pytest.approx(100)


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
    assert [each.disk for each in await node.send()] == [10]
    node.pressure(POD, seconds=10.2)
    assert await node.send() == []
    node.pressure(POD, seconds=11)
    assert [each.disk for each in await node.send()] == [11]


async def test_an_operator_that_stands_by_takes_nothing_and_hears_it_when_it_works(node: Node) -> None:
    node.mount(POD)
    node.pressure(POD, seconds=10)
    node.works = False
    assert await node.send() == []
    node.works = True
    assert [each.disk for each in await node.send()] == [10]


async def test_of_a_pod_that_ended_the_last_that_was_known_stays(node: Node) -> None:
    node.mount(POD)
    node.reads(POD, peer=3)
    node.pressure(POD, seconds=10)
    await node.send()
    (node.folder / "cgroup" / "kubepods" / f"pod{POD}" / "io.pressure").unlink()
    for folder in sorted((node.folder / "pods").rglob("*"), reverse=True):
        folder.rmdir()
    node.reads(POD, peer=2)
    (found,) = await node.send()
    assert (found.peer, found.disk) == (5, 7)
    assert found.seconds == pytest.approx(100, abs=1)


async def test_where_the_kernel_does_not_count_only_the_readers_pods_are_reported(node: Node) -> None:
    node.report = node.reporter(node.address, counts=False)
    node.mount(POD)
    node.mount(OTHER)
    node.reads(OTHER, source=2)
    (found,) = await node.send()
    assert (found.pod, found.source, found.disk) == (OTHER, 2, None)


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
