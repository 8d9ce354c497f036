"""Each read's part of the time in which its pod waited."""

from pathlib import Path

import pytest

from tdcs.engine.pod_wait_table import PodWaitTable, WaitOrigin, read_pod_waits
from tdcs.node.reader.serving.pod_clock import PodClock, Wait, open_pod_clock, pod_of

POD = "0b0c3f4e-1c5a-4f0e-9d2b-6a7c8d9e0f11"
OTHER = "7777aaaa-1c5a-4f0e-9d2b-6a7c8d9e0f11"
SECOND = 10**9


class World:
    """A clock that stands still, and a /proc with threads of pods."""

    def __init__(self, folder: Path) -> None:
        self.now = 5 * SECOND
        self.proc = folder / "proc"
        self.file = folder / "pod-waits"
        self.clock = PodClock(PodWaitTable(self.file), proc=self.proc, clock=lambda: self.now)

    def thread(self, number: int, group: str) -> None:
        folder = self.proc / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup").write_text(f"0::{group}\n")

    def begin(self, thread: int) -> Wait:
        wait = self.clock.begin(thread)
        assert wait is not None
        return wait

    def waits(self) -> dict[str, tuple[float, float]]:
        return {wait.pod: (wait.peer, wait.source) for wait in read_pod_waits(self.file)}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_reads_that_wait_at_once_share_the_time_of_their_pod(world: World) -> None:
    world.thread(11, f"/../../burstable/pod{POD}/abc")
    world.thread(12, f"/../../burstable/pod{POD}/abc")
    first = world.begin(11)
    world.now += 2 * SECOND
    second = world.begin(12)
    world.now += 4 * SECOND
    world.clock.end(first, WaitOrigin.PEER)
    world.now += SECOND
    world.clock.end(second, WaitOrigin.SOURCE)
    world.now += 100 * SECOND  # none waits
    world.clock.end(world.begin(11), WaitOrigin.PEER)
    assert world.waits() == {POD: (4, 3)}
    assert [world.clock.uid(thread) for thread in (11, 13, 0)] == [POD, "", ""]


def test_pods_that_wait_at_once_each_wait_for_all_of_it(world: World) -> None:
    world.thread(11, f"/kubepods/pod{POD}/abc")
    world.thread(
        12, f"/kubelet-kubepods-besteffort-pod{OTHER.replace('-', '_')}.slice/cri-containerd-1.scope"
    )
    waits = [world.begin(11), world.begin(12)]
    world.now += SECOND
    for wait in waits:
        world.clock.end(wait, WaitOrigin.PEER)
    assert world.waits() == {POD: (1, 0), OTHER: (1, 0)}


def test_threads_that_are_of_no_pod_or_cannot_be_seen_count_for_none(world: World) -> None:
    world.thread(11, "/user.slice")
    assert [world.clock.begin(thread) for thread in (0, 11, 12)] == [None, None, None]
    assert world.waits() == {}


def test_a_number_that_a_new_thread_has_is_of_its_pod_after_a_while(world: World) -> None:
    world.thread(11, f"/kubepods/pod{POD}/abc")
    world.clock.end(world.begin(11), WaitOrigin.PEER)
    world.thread(11, f"/kubepods/pod{OTHER}/abc")
    world.now += 11 * SECOND
    wait = world.begin(11)
    world.now += SECOND
    world.clock.end(wait, WaitOrigin.PEER)
    assert world.waits() == {POD: (0, 0), OTHER: (1, 0)}


def test_many_threads_do_not_fill_the_memory_and_lose_no_wait(world: World) -> None:
    world.thread(1, f"/kubepods/pod{POD}/abc")
    wait = world.begin(1)
    for thread in range(10_000, 15_000):
        world.clock.begin(thread)
    world.now += SECOND
    second = world.begin(1)
    world.now += SECOND
    for open_wait in (wait, second):
        world.clock.end(open_wait, WaitOrigin.PEER)
    assert world.waits() == {POD: (2, 0)}
    assert len(world.clock._threads) <= 4096


def test_without_room_for_the_table_nothing_is_counted_and_reads_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert open_pod_clock(tmp_path / "missing" / "pod-waits") is None
    assert "cannot be made" in caplog.text
    assert open_pod_clock(tmp_path / "pod-waits") is not None


def test_the_pod_of_this_process_is_none_where_it_runs_in_none() -> None:
    assert pod_of(0) == ""
    assert pod_of(2**22 + 1) == ""
