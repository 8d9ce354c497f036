"""Views over the remote-read client: the plugin, a reader and its holder as processes of one node, real mounts."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.processes.csi.view_node import AWAY, ViewNode
from tests.support.dataplane.node import Node, needs_fuse
from tests.support.dataplane.readers import AS_USER, HERE, HOLDER, Giver, drop_page_cache, holder_of, table_of
from tests.support.waiting import eventually
from tests.unit.node.csi.views.builders import is_link, needs_overlays, put_blocks

from tdcs.api import names
from tdcs.node.reader.registration import ReaderFolder, write_atomically

pytestmark = needs_fuse

PLAIN = pytest.param((), marks=needs_overlays, id="plain files")
PAIRS = (
    list(itertools.combinations(("plugin", "reader", "holder", "agent"), 2))
    if os.environ.get("TDCS_KILL_PAIRS") == "all"
    else [("plugin", "reader"), ("holder", "agent")]
)
"""Each of the four once, unless all are asked for."""
BOUND = pytest.param(("--no-overlays",), id="tree of the client")


OWN_AGENT = replace(HERE, node="node-a")

AS_CLIENT = f"--user={names.READER_USER}"
"""Of holders: they know that the reader is not root."""


class ReadingNode:
    """A node with one of two blocks; an agent elsewhere has the other."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.own = ReaderFolder(node.root / "reader")
        self.inside = ReaderFolder(node.inside(self.own.root))
        self.inside.prepare()
        self.view = ViewNode(node, here={"here"})
        self.giver = Giver(node.root, "giver")
        put_blocks(self.giver.tier, {AWAY: b"away"})
        node.root.chmod(0o755)
        self.holder = self.start("hold", AS_CLIENT)
        self.reader = self.start("run", "--node=node-a", "--patience=3")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A process of the client, in the node's mount namespace."""
        log = (self.node.root / "reader.log").open("a")
        runs = (HOLDER,) if arguments[0] == "hold" else (AS_USER, str(names.READER_USER))
        where = (arguments[0], f"--folder={self.own.root}")
        command = (sys.executable, "-c", *runs, *where, *arguments[1:])
        return self.node.start(*command, stdout=log, stderr=log)

    def start_plugin(self, *more: str) -> None:
        """Start the plugin."""
        self.node.start_plugin(more=more, wait=20)

    def say_who_holds(self, *more: Giver) -> None:
        """What the operator's answer becomes, for each version that is registered."""
        eventually(lambda: self.inside.registered.names(), deadline=30)
        for name in self.inside.registered.names():
            holders = (OWN_AGENT, *map(holder_of, (self.giver, *more)))
            table = msgspec.msgpack.encode(table_of(*holders))
            write_atomically(self.inside.holders / name, table)

    def publish(self, name: str = "pod-1") -> Path:
        """Give a pod its volume, from which what is away can be read."""
        volume = self.view.publish(name)
        self.say_who_holds()
        eventually(lambda: (volume / "train/away").read_text() == "away", deadline=20, retry_on=(OSError,))
        return volume

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill one of them."""
        process.kill()
        process.wait()

    def stop_reader(self) -> None:
        """Kill holder and reader."""
        self.kill(self.reader)
        self.kill(self.holder)


@pytest.fixture
def reading(node: Node) -> Iterator[ReadingNode]:
    """All processes of such a node but the plugin run."""
    reading = ReadingNode(node)
    reading.giver.process.start()
    yield reading
    reading.giver.process.kill()


@needs_overlays
def test_a_pod_sees_plain_files_only_wherever_their_blocks_are(reading: ReadingNode) -> None:
    reading.start_plugin()
    volume = reading.publish()

    files = [(path, path.lstat()) for path in sorted(volume.rglob("*")) if path.name != "train"]
    assert [path.name for path, _ in files] == ["away", "here"]
    assert all(path.is_file() and not path.is_symlink() for path, _ in files)
    assert [status.st_size for _, status in files] == [4, 4]
    assert [oct(status.st_mode & 0o777) for _, status in files] == ["0o444", "0o444"]
    assert {status.st_dev for _, status in files} == {volume.stat().st_dev}
    assert sorted(os.listdir(volume / "train")) == ["away", "here"]
    assert is_link(volume / "train/here")
    assert (volume / "train/here").read_text() == "here"
    with pytest.raises(OSError, match="Read-only file system"):
        (volume / "train/away").write_text("changed")


@needs_overlays
@pytest.mark.failure_mode("plugin-reader-holder-dead")
def test_with_every_process_dead_a_pod_lists_all_files_and_reads_those_of_its_node(
    reading: ReadingNode,
) -> None:
    reading.start_plugin()
    volume = reading.publish()
    reading.node.kill_plugin(signal.SIGKILL)
    reading.stop_reader()
    drop_page_cache()

    walked = [os.path.join(folder, name) for folder, _, file_names in os.walk(volume) for name in file_names]
    assert [os.path.relpath(path, volume) for path in sorted(walked)] == ["train/away", "train/here"]
    assert [os.stat(path).st_size for path in walked] == [4, 4]
    assert (volume / "train/here").read_text() == "here"
    with pytest.raises(OSError, match="not connected"):
        (volume / "train/away").read_text()


@pytest.mark.failure_mode("no-data-only-overlays")
def test_without_overlays_a_pod_reads_all_files_through_the_client(reading: ReadingNode) -> None:
    reading.start_plugin("--no-overlays")
    volume = reading.publish()

    for name in ("here", "away"):
        assert (volume / "train" / name).read_text() == name
        assert (volume / "train" / name).stat().st_nlink == 1
    assert sorted(os.listdir(volume / "train")) == ["away", "here"]
    (mount,) = reading.node.mounts(reading.node.target())
    assert {"ro", "nosuid", "nodev"} <= set(mount.split(" ")[5].split(","))
    assert mount.split(" - ")[1].startswith("overlay tdcs-view@")
    assert list(reading.view.tier.glob("views/*/*/tree")) == []


@pytest.mark.parametrize("options", [PLAIN, BOUND])
def test_a_running_pod_sees_no_restart_of_plugin_or_reader(
    reading: ReadingNode, options: tuple[str, ...]
) -> None:
    reading.start_plugin(*options)
    volume = reading.publish()

    reading.node.kill_plugin(signal.SIGKILL)
    reading.reader.kill()
    reading.reader.wait()
    reading.reader = reading.start("run", "--node=node-a")
    drop_page_cache()

    assert (volume / "train/away").read_text() == "away"  # waits for the new one
    reading.start_plugin(*options)
    assert reading.view.publish() == volume  # as kubelet asks again
    assert len(reading.node.mounts(reading.node.target())) == 1
    assert (volume / "train/away").read_text() == "away"


@needs_overlays
def test_a_block_that_comes_under_a_running_pod_is_linked_by_the_next_plugin(reading: ReadingNode) -> None:
    reading.start_plugin()
    volume = reading.publish()
    reading.node.kill_plugin(signal.SIGKILL)

    reading.start_plugin()
    put_blocks(reading.view.tier, {AWAY: b"away"})

    eventually(lambda: is_link(volume / "train/away"), deadline=60)
    assert (volume / "train/away").read_text() == "away"


@pytest.mark.parametrize("options", [PLAIN, BOUND])
@pytest.mark.failure_mode("reader-and-holder-killed")
def test_after_holder_and_reader_have_died_a_running_pod_gets_the_new_file_system(
    reading: ReadingNode, options: tuple[str, ...]
) -> None:
    reading.start_plugin(*options)
    volume = reading.publish()

    reading.stop_reader()
    reading.holder = reading.start("hold", AS_CLIENT)
    reading.reader = reading.start("run", "--node=node-a")

    eventually(lambda: (volume / "train/away").read_text() == "away", deadline=60, retry_on=(OSError,))
    assert reading.view.publish("pod-2").joinpath("train/away").read_text() == "away"
    for name in ("pod-1", "pod-2"):
        reading.node.unpublish(reading.node.target(name))
        assert reading.node.mounts(reading.node.target(name)) == []


@pytest.mark.parametrize("options", [PLAIN, BOUND])
def test_a_subpath_gets_the_new_file_system_too_whenever_the_client_dies(
    reading: ReadingNode, options: tuple[str, ...]
) -> None:
    """A mount with `subPath` is one of its own: what is mounted over the whole volume does not reach it."""
    reading.start_plugin(*options)
    volume = reading.publish()
    reading.view.publish("pod-2")
    folder, again = (reading.node.kubelet / "pods/pod-1/volume-subpaths/data/main" / name for name in "01")
    file = reading.node.kubelet / "pods/pod-2/volume-subpaths/data/main/0"
    for path in (folder, again):
        reading.node.inside(path).mkdir(parents=True)
    reading.node.inside(file.parent).mkdir(parents=True)
    reading.node.inside(file).touch()
    # As kubelet does it, for `subPath: train` of two containers, and `subPath: train/away` of another pod.
    for path, pod, sub in (
        (folder, "pod-1", "train"),
        (again, "pod-1", "train"),
        (file, "pod-2", "train/away"),
    ):
        reading.node.run("mount", "--bind", str(reading.node.target(pod) / sub), str(path))
    # A container that has them with mountPropagation: HostToContainer.
    container = reading.node.start(
        *("unshare", "--mount", "--propagation=slave", sys.executable, "-c"),
        "import signal; print('here', flush=True); signal.pause()",
        stdout=subprocess.PIPE,
    )
    assert container.stdout is not None
    assert container.stdout.readline() == "here\n"
    root = Path(f"/proc/{container.pid}/root")
    inside = [Path(f"{root}{folder}") / "away", Path(f"{root}{again}") / "away", Path(f"{root}{file}")]

    for _ in range(2):
        reading.stop_reader()
        drop_page_cache()
        reading.holder = reading.start("hold", AS_CLIENT)
        reading.reader = reading.start("run", "--node=node-a")
        eventually(lambda: (volume / "train/away").read_text() == "away", deadline=60, retry_on=(OSError,))
        for path in inside:
            eventually(lambda path=path: path.read_text() == "away", deadline=60, retry_on=(OSError,))  # type: ignore[misc]

    (options_of_mount,) = {line.split(" ")[5] for line in reading.node.mounts(folder)[-1:]}
    assert {"ro", "nosuid", "nodev"} <= set(options_of_mount.split(","))
    reading.kill(container)
    for path in (folder, again, file):  # as kubelet does it until nothing is mounted there
        while reading.node.mounts(path):
            reading.node.run("umount", str(path))
    for pod in ("pod-1", "pod-2"):
        reading.node.unpublish(reading.node.target(pod))
        assert reading.node.mounts(reading.node.target(pod)) == []


@needs_overlays
@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_a_pod_reads_on_when_two_of_the_processes_behind_its_volume_are_killed_at_once(
    reading: ReadingNode, pair: tuple[str, str]
) -> None:
    """Neither a worker nor a master of the cache runs in this node: each pair is killed with both of them dead."""
    second = Giver(reading.node.root, "second")
    put_blocks(second.tier, {AWAY: b"away"})
    second.process.start()
    reading.start_plugin()
    volume = reading.publish()
    reading.say_who_holds(second)
    kill: dict[str, Callable[[], object]] = {
        "plugin": lambda: reading.node.kill_plugin(signal.SIGKILL),
        "reader": lambda: reading.kill(reading.reader),
        "holder": lambda: reading.kill(reading.holder),
        "agent": reading.giver.process.kill,
    }
    revive: dict[str, Callable[[], object]] = {
        "plugin": reading.start_plugin,
        "reader": lambda: setattr(reading, "reader", reading.start("run", "--node=node-a")),
        "holder": lambda: setattr(reading, "holder", reading.start("hold", AS_CLIENT)),
        "agent": lambda: None,
    }

    try:
        for name in pair:
            kill[name]()
        drop_page_cache()
        assert (volume / "train/here").read_text() == "here"
        for name in pair:
            revive[name]()
        session_is_lost = set(pair) == {"reader", "holder"}
        retry_on = (OSError,) if session_is_lost else ()
        eventually(lambda: (volume / "train/away").read_text() == "away", deadline=60, retry_on=retry_on)
    finally:
        second.process.kill()


@needs_overlays
@pytest.mark.parametrize("off", ["--no-overlays", "--overlays"])
def test_a_version_is_read_right_while_overlays_are_switched_off_or_on(
    reading: ReadingNode, off: str
) -> None:
    """It keeps the form in which it was made."""
    on = {"--no-overlays": "--overlays", "--overlays": "--no-overlays"}[off]
    reading.start_plugin(on)
    before = reading.publish()
    reading.node.kill_plugin(signal.SIGTERM)

    reading.start_plugin(off)
    after = reading.view.publish("pod-2")

    for _ in range(10):
        for volume in (before, after):
            assert [(volume / "train" / name).read_text() for name in ("here", "away")] == ["here", "away"]
        time.sleep(0.2)
    assert before.stat().st_dev == after.stat().st_dev


@pytest.mark.parametrize("options", [PLAIN, BOUND])
def test_what_is_shown_of_a_version_that_no_pod_uses_is_taken_away_and_comes_back(
    reading: ReadingNode, options: tuple[str, ...]
) -> None:
    reading.start_plugin(*options)
    reading.publish()
    (folder_shown,) = (reading.view.tier / names.VIEWS_FOLDER).glob("*/*/shown")
    point = Path("/", *folder_shown.parts[4:])
    assert len(reading.node.mounts(point)) == 1

    reading.node.unpublish(reading.node.target("pod-1"))
    eventually(lambda: reading.node.mounts(point) == [], deadline=60)

    assert (reading.view.publish("pod-2") / "train/away").read_text() == "away"


@needs_overlays
@pytest.mark.failure_mode("node-plugins-upgraded")
def test_an_upgrade_of_the_node_plugin_in_the_middle_of_an_epoch_costs_a_pod_no_read(
    reading: ReadingNode,
) -> None:
    """As the DaemonSet does it: all containers of the old pod are ended politely, then the new ones start."""
    reading.start_plugin()
    volume = reading.publish()
    errors, reads, stop = [], [0], threading.Event()

    def read_on() -> None:
        while not stop.is_set():
            for name in ("here", "away"):
                try:
                    if (volume / "train" / name).read_text() != name:
                        errors.append(f"{name}: other bytes")
                except OSError as error:
                    errors.append(f"{name}: {error}")
                reads[0] += 1

    def goes_on(count: int) -> None:
        until = reads[0] + count
        eventually(lambda: reads[0] > until, deadline=60)

    def forget() -> None:
        while not stop.wait(0.1):
            drop_page_cache()

    threads = [threading.Thread(target=work) for work in (read_on, forget)]
    for thread in threads:
        thread.start()
    holder = reading.holder
    try:
        for _ in range(2):
            goes_on(20)
            reading.reader.send_signal(signal.SIGTERM)
            reading.node.kill_plugin(signal.SIGTERM)
            assert reading.reader.wait(timeout=60) == 0
            goes_on(20)  # by the holder's reserve
            reading.reader = reading.start("run", "--node=node-a", "--patience=3")
            reading.start_plugin()
            goes_on(20)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert errors == []
    assert holder.poll() is None


@needs_overlays
def test_a_pod_that_never_closes_its_files_holds_up_neither_its_end_nor_other_pods(
    reading: ReadingNode,
) -> None:
    reading.start_plugin()
    volume = reading.publish()
    with (
        (volume / "train/away").open("rb", buffering=0) as away,
        (volume / "train/here").open("rb", buffering=0) as file,
    ):
        reading.node.unpublish(reading.node.target("pod-1"))
        assert reading.node.mounts(reading.node.target("pod-1")) == []
        drop_page_cache()
        assert file.read() == b"here"
        # The version is there while something of it is open, or stale: never other bytes, and never forever.
        with suppress(OSError):
            assert away.read() == b"away"
        assert (reading.view.publish("pod-2") / "train/away").read_text() == "away"
