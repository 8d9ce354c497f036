"""What a watched loop writes in its container, as the node plugin reads it: two distributions that never import each
other."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tdcs.node.csi.loader_waits import LoaderWaits
from tdcs.node.csi.pod_pressure import PodPressures

POD = "0b0c3f4e-1c5a-4f0e-9d2b-6a7c8d9e0f11"
TRAINING = """
import sys
import time
from tdcs_train.loader import watch

def batches():
    for number in range(3):
        time.sleep(0.1)
        yield number

for batch in watch(batches()):
    pass
from tdcs_train.loader import watching
watching._process.flush()
print("trained", flush=True)
sys.stdin.read()
"""


def group_of(folder: Path, process: int) -> PodPressures:
    """The control groups of a node on which the pod has this process."""
    group = folder / "kubepods" / f"pod{POD}" / "container"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text(f"{process}\n")
    return PodPressures(folder)


def test_the_plugin_reads_what_a_loop_in_a_container_wrote(tmp_path: Path) -> None:
    container = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs shm /dev/shm; exec "$@"', "sh"]
    environment = {**os.environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    with subprocess.Popen(
        [*container, sys.executable, "-c", TRAINING],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "trained\n"
        waits = LoaderWaits(Path("/proc"), group_of(tmp_path / "own", process.pid)).of(POD)
        process.communicate("")
    assert waits is not None
    assert 0.3 <= waits.waited <= waits.seconds
    # Gone with its container.
    assert LoaderWaits(Path("/proc"), group_of(tmp_path / "gone", process.pid)).of(POD) is None


def test_files_in_the_memory_of_the_host_are_nobodys(tmp_path: Path) -> None:
    """A pod with hostIPC has them before it as well as all others."""
    proc = tmp_path / "proc"
    proc.mkdir()
    for process in ("1", "7"):
        (proc / process).symlink_to("/proc/self")
    file = Path(f"/dev/shm/tdcs-loader-waits.test-{os.getpid()}-{time.monotonic_ns()}")
    file.write_text('{"seconds": 10, "waited": 5}')
    try:
        assert LoaderWaits(proc, group_of(tmp_path / "groups", 7)).of(POD) is None
        (proc / "1").unlink()
        wait = LoaderWaits(proc, group_of(tmp_path / "again", 7)).of(POD)
        assert wait is not None  # the host is what made the difference
    finally:
        file.unlink()
