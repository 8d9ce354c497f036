"""How long reads of a pod waited: real processes in a control group that has a pod's name, and a real FUSE session."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import (
    Giver,
    ReaderNode,
    drop_page_cache,
    holder_of,
    shown_from_elsewhere,
    small_version,
    table_of,
)
from tests.support.waiting import eventually

from tdcs.engine.pod_wait_table import PodWait, read_pod_waits
from tdcs.node.csi.pod_pressure import PodPressures

pytestmark = needs_fuse

POD = "0b0c3f4e-1c5a-4f0e-9d2b-6a7c8d9e0f11"
HELD_SECONDS = 0.4
"""How long the agent that has the bytes stands still; after 0.7 s another one would be asked."""

_READ = """
import json, os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
begin = time.monotonic()
size = len(open(sys.argv[2], "rb").read())
print(json.dumps({"size": size, "seconds": time.monotonic() - begin}))
"""


@pytest.fixture
def groups() -> Iterator[Path]:
    """The machine's control groups of version 2, with one of a pod."""
    root = Path(tempfile.mkdtemp(prefix="tdcs-groups-"))
    pod = root / f"kubepods-{os.getpid()}" / f"pod{POD}"
    if subprocess.run(
        ["mount", "-t", "cgroup2", "none", str(root)], check=False, capture_output=True
    ).returncode:
        root.rmdir()
        pytest.skip("control groups of version 2 cannot be mounted here")
    try:
        pod.mkdir(parents=True)
        yield root
    finally:
        for folder in (pod, pod.parent):
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()
        subprocess.run(["umount", str(root)], check=False)
        root.rmdir()


@pytest.mark.parametrize("origin", ["peer", "source"])
def test_what_a_pod_waited_is_counted_for_it_by_what_it_waited_for(
    node: ReaderNode, groups: Path, origin: str
) -> None:
    version = small_version(node.folder, {"picture": os.urandom(300_000)})
    if origin == "peer":
        giver = Giver(node.folder, "giver")
        giver.put(version.manifest, node.folder / "source")
        holder = holder_of(giver)
    else:
        giver = Giver(node.folder, "giver", source=version.source)
        holder = holder_of(giver, slots=bytes(512), reads_source=True)
    giver.process.start()
    root = node.register(version, tables=table_of(holder))
    node.start()
    assert (root / "picture").stat().st_size == 300_000
    file = node.own.pod_waits
    assert read_pod_waits(file) == []

    os.kill(giver.process.pid, signal.SIGSTOP)
    group = groups / f"kubepods-{os.getpid()}" / f"pod{POD}"
    child = subprocess.Popen(
        [sys.executable, "-c", _READ, str(group / "cgroup.procs"), str(root / "picture")],
        stdout=subprocess.PIPE,
    )
    eventually(lambda: read_pod_waits(file), deadline=20)
    time.sleep(HELD_SECONDS)  # what is measured
    os.kill(giver.process.pid, signal.SIGCONT)
    report = json.loads(child.communicate(timeout=30)[0])
    assert report["size"] == 300_000
    assert report["seconds"] >= HELD_SECONDS

    def counted() -> PodWait | None:
        (wait,) = read_pod_waits(file)
        return wait if wait.peer + wait.source >= 0.9 * HELD_SECONDS else None

    wait = eventually(counted, deadline=5)
    assert wait is not None
    assert wait.pod == POD
    waits = {"peer": wait.peer, "source": wait.source}
    # The kernel asks for what follows before it is waited for: so the read is in work for a little less or more.
    assert 0.9 * HELD_SECONDS <= waits.pop(origin) <= report["seconds"] + 0.05
    assert list(waits.values()) == [0]

    # What is read again from memory waits for nothing.
    drop_page_cache()
    assert len((root / "picture").read_bytes()) == 300_000
    assert read_pod_waits(file) == [wait]  # this process is of no pod

    pressure = PodPressures(groups).of(POD)
    if pressure is not None:  # the kernel counts the wait for the remote-read client as one for a file
        assert pressure.waited >= 0.8 * HELD_SECONDS
    giver.process.kill()


def test_the_table_outlives_the_reader_and_its_serving_processes(node: ReaderNode, groups: Path) -> None:
    files = {str(number): os.urandom(50_000) for number in range(4)}
    giver, root = shown_from_elsewhere(node, files)
    node.start()
    group = groups / f"kubepods-{os.getpid()}" / f"pod{POD}" / "cgroup.procs"

    counted = 0.0

    def read(name: str) -> None:
        nonlocal counted
        before = counted
        subprocess.run(
            [sys.executable, "-c", _READ, str(group), str(root / name)],
            check=True,
            timeout=30,
            capture_output=True,
        )

        def more() -> bool:
            # A wait is counted after its read was answered.
            nonlocal counted
            counted = sum(wait.peer for wait in read_pod_waits(node.own.pod_waits))
            return counted > before

        eventually(more, deadline=10)

    read("0")
    for pid in node.workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    read("1")
    node.reader.kill()  # the holder's reserve serves
    read("2")
    giver.process.kill()
