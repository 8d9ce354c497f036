"""Threads that bring blocks: bounded over all mounts, in turn, and none is counted that could not be started."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
from tests.support.dataplane.agents import Version, fill, folder_version
from tests.support.waiting import eventually_async

from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Peer
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.source_pieces import Extent, Write
from tdcs.node.agent.transfer.lanes import PEER_LANES, SOURCE_LANES, LaneBound, Lanes, lanes_to_start


class Source:
    """A source that is read by many at the same time."""

    lanes = 16

    def read(self, extent: Extent, write: Write) -> None:
        raise AssertionError("it is not read here")


class Pulling:
    """Stands where a mount is read: goes on until it may end, or until its turn is over."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.begun: Counter[str] = Counter()
        self._lock = threading.Lock()

    def abandon(self, mount: MountWork) -> None:
        """Nothing is under way."""

    def run(self, mount: MountWork, peer: Peer | None = None, *, over: Callable[[], bool]) -> None:
        with self._lock:
            self.begun[mount.path] += 1
        while not self.may_end.wait(0.01) and not over():
            pass


class Pullers:
    """Lanes of which the threads bring nothing."""

    def __init__(self, version: Version) -> None:
        self.now = 100.0
        self.sources, self.peers = Pulling(), Pulling()
        self._version = version
        self.lanes = Lanes(
            sources=self.sources,  # type: ignore[arg-type]
            peers=self.peers,  # type: ignore[arg-type]
            ended=lambda: None,
            clock=lambda: self.now,
        )
        self.lanes.loop = asyncio.get_running_loop()

    def mounts(self, count: int, *, peers: int = 0) -> list[MountWork]:
        """Mounts of which everything is missing, to be read from the source or from so many peers."""
        mounts = []
        offered = [
            Peer(node=f"node-{number}", address="127.0.0.1:1", slots=ALL_SLOTS) for number in range(peers)
        ]
        for number in range(count):
            mount = MountWork(
                path=f"/datasets/{number:03}",
                lock=threading.RLock(),
                room=Room(capacity=1 << 30, free=lambda: 1 << 30),
                clock=lambda: self.now,
            )
            ledger = Ledger(self._version.manifest)
            ledger.observe(np.arange(0))
            mount.opened(ledger)
            origin = NO_SLOTS if peers else ALL_SLOTS
            mount.assign(self._version.assignment(peers=offered, origin=origin))
            if peers:
                mount.source.reader = None
            else:
                mount.source.read_by(Source())
            mounts.append(mount)
        return mounts


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Version:
    folder = tmp_path_factory.mktemp("lanes")
    source = fill(folder / "source", {f"{number:02}": b"x" for number in range(40)})
    return folder_version(source, store=folder / "manifests")


@pytest.fixture
async def pullers(version: Version) -> AsyncIterator[Pullers]:
    pullers = Pullers(version)
    yield pullers
    pullers.sources.may_end.set()
    pullers.peers.may_end.set()
    await eventually_async(
        lambda: pullers.lanes._source_threads == pullers.lanes._peer_threads == 0, deadline=60
    )


async def test_a_hundred_mounts_have_no_more_threads_than_the_bound_and_all_get_a_turn(
    pullers: Pullers,
) -> None:
    mounts = pullers.mounts(100)
    pullers.lanes.start(mounts)
    assert sum(mount.source.lanes for mount in mounts) == SOURCE_LANES.most
    assert max(mount.source.lanes for mount in mounts) == 1

    def all_had_one() -> bool:
        pullers.now += 2
        pullers.lanes.start(mounts)
        assert sum(mount.source.lanes for mount in mounts) <= SOURCE_LANES.most
        return len(pullers.sources.begun) == 100

    await eventually_async(all_had_one, deadline=60, interval=0.02)


async def test_mounts_that_wait_for_peers_have_no_more_threads_than_the_bound(pullers: Pullers) -> None:
    mounts = pullers.mounts(60, peers=6)
    pullers.lanes.start(mounts)
    assert sum(mount.peers.lanes for mount in mounts) == PEER_LANES.most

    def all_had_one() -> bool:
        pullers.now += 10
        pullers.lanes.start(mounts)
        assert sum(mount.peers.lanes for mount in mounts) <= PEER_LANES.most
        return len(pullers.peers.begun) == 60

    await eventually_async(all_had_one, deadline=60, interval=0.02)


async def test_one_mount_has_all_the_threads_that_its_source_can_use(pullers: Pullers) -> None:
    (mount,) = pullers.mounts(1)
    pullers.lanes.start([mount])
    pullers.now += 100
    pullers.lanes.start([mount])
    assert mount.source.lanes == Source.lanes
    assert pullers.sources.begun.total() <= Source.lanes, "its threads go on as long as nothing waits"


async def test_a_process_without_threads_counts_none_and_starts_them_when_there_are_some(
    pullers: Pullers, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = pullers.mounts(3)
    start, threads_left = threading.Thread.start, [5]

    def refused(thread: threading.Thread) -> None:
        threads_left[0] -= 1
        if threads_left[0] < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        pullers.lanes.start(mounts)
    assert sum(mount.source.lanes for mount in mounts) == 5
    pullers.now += 5
    pullers.lanes.start(mounts)
    assert sum(mount.source.lanes for mount in mounts) == 48


@pytest.mark.parametrize(
    ("wanted", "running", "total", "granted", "crowded"),
    [
        ({"a": 3, "b": 1}, {}, 0, {"a": 3, "b": 1}, False),
        ({"a": 9, "b": 9}, {}, 0, {"a": 3, "b": 3}, True),
        ({"a": 9, "b": 9}, {"a": 4}, 4, {"b": 2}, True),
        ({"a": 9, "b": 9}, {"a": 6}, 6, {"b": 1}, True),
        (dict.fromkeys("abcdefghij", 1), {}, 0, dict.fromkeys("abcdefgh", 1), True),
        ({"a": 0}, {}, 8, {}, False),
    ],
)
def test_mounts_with_fewest_threads_go_first_and_some_are_kept_for_those_without_any(
    wanted: dict[str, int], running: dict[str, int], total: int, granted: dict[str, int], crowded: bool
) -> None:
    lanes = lanes_to_start(
        lanes_by_mount=wanted, running=running, total=total, bound=LaneBound(most=8, shared=6)
    )
    assert (dict(lanes.of), lanes.crowded) == (granted, crowded)
