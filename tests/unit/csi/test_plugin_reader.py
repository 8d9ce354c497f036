"""Views over the remote-read client: the plugin, a reader and its holder as processes of one node, real mounts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.readers import Giver, holder_of, table_of
from tests.support.waiting import eventually
from tests.unit.csi.conftest import Node, needs_fuse
from tests.unit.csi.view_node import ViewNode
from tests.unit.csi.views.builders import put_blocks

from tdcs.api import names
from tdcs.reader.registration import ReaderFolder, write_atomically

pytestmark = needs_fuse


class ReadingNode:
    """A node with one of two blocks; an agent elsewhere has the other."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.own = ReaderFolder(node.root / "reader")
        node.share(self.own.root)
        self.inside = ReaderFolder(node.inside(self.own.root))
        self.inside.prepare()
        self.view = ViewNode(node, here={"here"})
        self.giver = Giver(node.root, "giver")
        put_blocks(self.giver.tier, {2: b"away"})
        self.holder = self.start("hold")
        self.reader = self.start("run", "--node=node-a", "--patience=3")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A process of the client, in the node's mount namespace."""
        log = (self.node.root / "reader.log").open("a")
        command = (
            sys.executable,
            "-m",
            "tdcs.reader",
            arguments[0],
            f"--folder={self.own.root}",
            *arguments[1:],
        )
        return self.node.start(*command, stdout=log, stderr=log)

    def start_plugin(self) -> None:
        """Start the plugin, which has views lead to the client."""
        self.node.start_plugin(
            more=(
                "--views",
                f"--cache-root={self.node.cache_root}",
                "--master=127.0.0.1:1",
                f"--reader-root={self.own.root}",
            ),
            wait=20,
        )

    def say_who_holds(self) -> None:
        """What the operator's answer becomes, for each version that is registered."""
        eventually(lambda: self.inside.registered(), deadline=30)
        for name in self.inside.registered():
            table = msgspec.msgpack.encode(table_of(holder_of(self.giver)))
            write_atomically(self.inside.holders / name, table)


@pytest.fixture
def reading(node: Node) -> Iterator[ReadingNode]:
    """All processes of such a node run."""
    found = ReadingNode(node)
    found.giver.process.start()
    found.start_plugin()
    yield found
    found.giver.process.kill()


def test_what_is_not_here_is_read_from_the_agent_that_has_it(reading: ReadingNode) -> None:
    volume = reading.view.publish()
    reading.say_who_holds()

    assert (volume / "train/here").read_text() == "here"
    assert (volume / "train/here").stat().st_nlink == 2
    eventually(lambda: (volume / "train/away").read_text() == "away", deadline=20, retry_on=(OSError,))
    assert (volume / "train/away").is_symlink()
    assert (volume / "train/away").stat().st_size == 4
    assert [name for name in os.listdir(volume) if name.startswith(".tdcs")] == []


def test_a_running_pod_sees_no_restart_of_plugin_or_reader_and_links_what_comes(reading: ReadingNode) -> None:
    volume = reading.view.publish()
    reading.say_who_holds()
    eventually(lambda: (volume / "train/away").read_text() == "away", deadline=20, retry_on=(OSError,))

    reading.node.kill_plugin(signal.SIGKILL)
    reading.reader.kill()
    reading.reader.wait()
    reading.reader = reading.start("run", "--node=node-a")
    Path("/proc/sys/vm/drop_caches").write_text("3")

    assert (volume / "train/away").read_text() == "away"  # waits for the new one
    reading.start_plugin()
    put_blocks(reading.view.tier, {2: b"away"})
    eventually(lambda: not (volume / "train/away").is_symlink(), deadline=60)
    assert (volume / "train/away").read_text() == "away"
    assert names.BLOCK_FOLDER in os.listdir(reading.view.tier)


def test_after_holder_and_reader_have_died_a_running_pod_gets_the_new_file_system(
    reading: ReadingNode,
) -> None:
    volume = reading.view.publish()
    reading.say_who_holds()
    eventually(lambda: (volume / "train/away").read_text() == "away", deadline=20, retry_on=(OSError,))

    for process in (reading.reader, reading.holder):
        process.kill()
        process.wait()
    Path("/proc/sys/vm/drop_caches").write_text("3")
    assert (volume / "train/here").read_text() == "here"
    reading.holder = reading.start("hold")
    reading.reader = reading.start("run", "--node=node-a")

    eventually(lambda: (volume / "train/away").read_text() == "away", deadline=60, retry_on=(OSError,))
