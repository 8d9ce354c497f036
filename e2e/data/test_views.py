"""What a pod's volume is on a real node: links to cached blocks where they are, FUSE elsewhere; and what survives what.

Uses the example Dataset, which lies whole on two of the three nodes.
"""

import time
from typing import Any

import pytest
from tests.support.waiting import at_this_load

from e2e.support.jobs import PRINT_CHECKSUMS, expected_digest
from e2e.support.pods import pod
from e2e.support.reading import SYSTEM, pod_on, run_reader, shell
from tdcs_local import demo
from tdcs_local.errors import LocalError
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.progress import Reporter
from tdcs_local.store import operations

BACK_SECONDS = 10.0
"""Within this time after its FUSE client was killed, a running pod can open files again that are not on its node."""
TRIES = 3

# Reads files for ever and says so, or says what went wrong.
READ_ON = (
    "cd /data; while :; do for f in $(find . -name '*.jpg' ! -path './.tdcs/*' | head -n 200); do "
    'cat "$f" >/dev/null || echo "FAILED $f"; done; echo round; done'
)


@pytest.fixture(scope="module")
def held(tdcs: None, store_filled: None, kubectl: Kubectl, reporter: Reporter) -> dict[str, int]:
    """The nodes that hold the example Dataset, which is loaded if it is not."""
    return demo.load_dataset(reporter=reporter, kubectl=kubectl).held


def reader(name: str, *, node: str, image: str, script: str = "sleep infinity") -> dict[str, Any]:
    """An unprivileged pod on a node with the Dataset's claim at /data, as any user would write it."""
    return pod(
        name,
        image=image,
        script=script,
        namespace=demo.NAMESPACE,
        nodeSelector={"kubernetes.io/hostname": node},
        container={
            "volumeMounts": [
                {
                    "name": "data",
                    "mountPath": "/data",
                    "readOnly": True,
                    "mountPropagation": "HostToContainer",
                }
            ]
        },
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": demo.DATASET, "readOnly": True}}],
    )


def seconds_until_opened(kubectl: Kubectl, name: str, files: list[str]) -> float:
    """How long it takes until a pod can open any of these files."""
    begin = time.monotonic()

    def look() -> str | None:
        try:
            shell(kubectl, name, f"cat /data/{files[int(time.monotonic() - begin) % len(files)]} >/dev/null")
        except LocalError as error:
            return str(error)
        return None

    kubectl.wait(look, what="files cannot be opened again", seconds=100)
    return time.monotonic() - begin


def grown_up(kubectl: Kubectl, client: str) -> None:
    """Wait until a FUSE client is old enough to be started again by its container, not by kubelet, which pauses."""
    begun = "$(cut -d ' ' -f 22 /proc/$(pidof java)/stat) / $(getconf CLK_TCK)"
    age = f"echo $(($(cut -d . -f 1 /proc/uptime) - {begun}))"

    def look() -> str | None:
        seconds = int(shell(kubectl, client, age, namespace=SYSTEM))
        return None if seconds > 12 else f"it is {seconds} s old"

    kubectl.wait(look, what="the FUSE client does not live on", seconds=60)


def test_where_the_data_is_every_file_is_a_link_to_its_block(
    held: dict[str, int], kubectl: Kubectl, toolbox: str, readers: list[str]
) -> None:
    name = run_reader(kubectl, readers, reader("view-native", node=min(held), image=toolbox))

    assert shell(kubectl, name, "find /data -type l | wc -l") == "0"
    assert shell(kubectl, name, "find /data -type f -links 1 | wc -l") == "0"
    assert shell(kubectl, name, "ls -A /data | grep -c tdcs || true") == "0"
    assert shell(kubectl, name, PRINT_CHECKSUMS).split()[0] == expected_digest()
    for change in ("touch /data/new", "f=$(find /data -type f | head -n 1); : >>$f"):
        with pytest.raises(LocalError, match=r"Read-only file system|Permission denied"):
            shell(kubectl, name, change)


def test_a_pod_where_no_data_is_reads_through_fuse_and_reads_on_after_its_client_was_killed(
    held: dict[str, int],
    remote_reader: bool,
    kubectl: Kubectl,
    workers: list[str],
    toolbox: str,
    readers: list[str],
) -> None:
    if remote_reader:
        pytest.skip("there are no FUSE clients of Alluxio: pods read as in test_remote_reads.py")
    (away,) = set(workers) - set(held)
    name = run_reader(kubectl, readers, reader("view-fuse", node=away, image=toolbox))
    files = shell(kubectl, name, "cd /data; find . -type l | LC_ALL=C sort | head -n 40").split()
    assert len(files) == 40
    client = pod_on(kubectl, away, "tdcs.io/component=fuse")["metadata"]["name"]

    took: list[float] = []
    # The best of some: on a machine whose processors others want, any single start of the client may be slow.
    while len(took) < TRIES and not (took and took[-1] < at_this_load(BACK_SECONDS)):
        if took:
            grown_up(kubectl, client)
        shell(kubectl, client, "kill -9 $(pidof java)", namespace=SYSTEM)
        # Files of its own for each try, another one each time: one that was opened could come from the kernel's cache.
        took.append(seconds_until_opened(kubectl, name, files[len(took) :: TRIES]))
    print(
        f"new opens worked again {', '.join(f'{one:.1f}' for one in took)} s after the FUSE client was killed"
    )
    assert took[-1] < at_this_load(BACK_SECONDS)
    printed = shell(kubectl, name, f"cd /data; sha256sum {' '.join(files)}").splitlines()
    sums = {entry["path"]: entry["sha256"] for entry in operations.manifest(demo.DATASET)["files"]}
    assert printed == [f"{sums[file.removeprefix('./')]}  {file}" for file in files]


@pytest.mark.deep(
    "e2e/data/test_remote_reads.py::test_no_read_fails_while_reader_agent_and_plugin_are_killed_and_upgraded"
)
def test_a_plugin_that_is_replaced_disturbs_no_reader_and_serves_new_pods(
    held: dict[str, int], kubectl: Kubectl, toolbox: str, readers: list[str]
) -> None:
    node = min(held)
    busy = run_reader(kubectl, readers, reader("view-busy", node=node, image=toolbox, script=READ_ON))
    plugin = pod_on(kubectl, node, "app.kubernetes.io/component=csi")["metadata"]["name"]

    kubectl("delete", "pod", plugin, "-n", SYSTEM, "--grace-period=0", "--force")
    name = run_reader(kubectl, readers, reader("view-next", node=node, image=toolbox))

    assert shell(kubectl, name, "find /data -type l | wc -l") == "0"
    log = kubectl("logs", busy, "-n", demo.NAMESPACE)
    assert "round" in log
    assert "FAILED" not in log
