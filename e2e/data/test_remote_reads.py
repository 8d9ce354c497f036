"""Pods read what is not on their node through the remote-read client, on whole nodes: kubelet, containers, mounts that
cross them, certificates.

Skipped where the release is installed without the client: see deploy/local/README.md, "TDCS with other values".
"""

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.support.waiting import at_this_load

from e2e.conftest import RESTRICTED
from e2e.support.metrics import metrics_of
from e2e.support.pods import finished
from e2e.support.reading import SYSTEM, checks, failures, pod_on, reading_pod, rounds, shell, wait_rounds
from tdcs_local import demo
from tdcs_local.kind import images
from tdcs_local.kind.kubectl import Kubectl, Object
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets, operations
from tdcs_local.store.operations import Made

NAME = "spread"
BUCKET = "e2e-remote"
MADE = Made(files=120, size="20KiB-2MiB", seed="5")
PLUGIN = "app.kubernetes.io/component=csi"
READER_PORT = 9809
LONGEST_SECONDS = 5.0
"""No read waits longer while processes are killed and upgraded around it."""

# Every process on the node with these two words side by side in its command.
KILL = """
import os, signal, sys
wanted, killed = [word.encode() for word in sys.argv[1:]], 0
for entry in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{entry}/cmdline", "rb").read().split(b"\\0")
        if int(entry) != os.getpid() and any(words[i : i + 2] == wanted for i in range(len(words))):
            os.kill(int(entry), signal.SIGKILL)
            killed += 1
    except OSError:
        pass  # it has ended
print(killed)
"""

# What somebody tries who has taken the client over, in its container: what of it the kernel lets them.
TAKEN_OVER = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)

def lines(pid):
    return dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))

def mounted():
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")

def others():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if lines(pid)["Uid"].split()[0] != str(os.getuid()):
                yield pid
        except OSError:
            pass  # it has ended

attempts = {
    "the node's files": lambda: os.listdir("/proc/1/root/etc"),
    "mount": mounted,
    "FUSE": lambda: os.open("/dev/fuse", os.O_RDWR),
    "another registration": lambda: open("/var/lib/tdcs/reader/versions/x", "w"),
    "another socket": lambda: os.rename("/var/lib/tdcs/reader/holder.sock", "/var/lib/tdcs/reader/x"),
    "another cache": lambda: os.mkdir("/var/lib/tdcs/cache/x"),
}
found = {"root": os.getuid() == 0, "capabilities": int(lines("self")["CapEff"], 16), "let": [], "seen": 0}
for what, attempt in attempts.items():
    try:
        attempt()
        found["let"].append(what)
    except OSError:
        pass
for pid in others():
    found["seen"] += 1
    for secret in ("environ", "mem", "root/etc"):
        try:
            os.listdir(f"/proc/{pid}/{secret}") if "/" in secret else open(f"/proc/{pid}/{secret}", "rb").read(1)
            found["let"].append(f"{secret} of process {pid}")
        except OSError:
            pass
print(json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A Dataset in parts on two nodes, and a pod on the third one and on one of the two that reads it all the time."""

    namespace: str
    total_bytes: int
    held: dict[str, int]
    away: str

    @property
    def near(self) -> str:
        """A node with a part of it."""
        return min(self.held)

    def pod_of(self, node: str) -> str:
        """The pod that reads on a node."""
        return f"reads-on-{node}"


@pytest.fixture(scope="module")
def spread(
    tdcs: None,
    store_filled: None,
    kubectl: Kubectl,
    reporter: Reporter,
    workers: list[str],
) -> Iterator[Spread]:
    """The Dataset is loaded, and both pods have read it once."""
    namespace = f"e2e-remote-{uuid.uuid4().hex[:8]}"
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": RESTRICTED}}
    )
    operations.fill("small", bucket=BUCKET, seeded=MADE, reporter=reporter)
    datasets.grant_access(kubectl, namespace=namespace, reporter=reporter)
    placement = {"mode": "Partition", "nodeCount": 2}
    kubectl.apply(datasets.dataset(NAME, namespace=namespace, bucket=BUCKET, placement=placement))
    datasets.wait_ready(kubectl, NAME, namespace=namespace)
    (held,) = datasets.copies_of(kubectl, NAME, namespace=namespace).values()
    held = {node: size for node, size in held.items() if size}
    (away,) = set(workers) - set(held)
    total = operations.manifest(BUCKET)["totalBytes"]
    spread_data = Spread(namespace=namespace, total_bytes=total, held=held, away=away)
    assert len(held) == 2
    assert sum(held.values()) == total
    image = f"tdcs/tdcs:{images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)['tdcs']}"
    kubectl.apply(checks(namespace, bucket=BUCKET))
    for node in (away, spread_data.near):
        name = spread_data.pod_of(node)
        kubectl.apply(reading_pod(name, namespace=namespace, claim=NAME, node=node, image=image))
    for node in (away, spread_data.near):
        wait_rounds(kubectl, spread_data.pod_of(node), 1, namespace=namespace)
    yield spread_data
    for resource in ("pods", "datasets.tdcs.io"):
        kubectl("delete", resource, "--all", "-n", namespace, "--wait", timeout=180)
    kubectl.delete("namespace", namespace, timeout=300)


def wait_more(kubectl: Kubectl, spread: Spread) -> None:
    """Wait until both pods have begun and ended a round after this moment."""
    namespace = spread.namespace
    names = [spread.pod_of(node) for node in (spread.away, spread.near)]
    now = {name: len(rounds(kubectl, name, namespace=namespace)) for name in names}
    for name, done in now.items():
        wait_rounds(kubectl, name, done + 2, namespace=namespace)


def plugin_log(kubectl: Kubectl, node: str) -> str:
    """What the node plugin of a node has said last."""
    return kubectl(
        "logs", pod_on(kubectl, node, PLUGIN)["metadata"]["name"], "-n", SYSTEM, "-c", "csi", "--tail=40"
    )


def remote_reads(kubectl: Kubectl, spread: Spread, node: str) -> dict[str, float]:
    """Reads of the Dataset that the client of a node has answered since it began, by origin."""
    plugin = pod_on(kubectl, node, PLUGIN)["metadata"]["name"]
    text = metrics_of(kubectl, plugin, container="reader", port=READER_PORT, host="reader.tdcs.io")
    thing = kubectl.get("datasets.tdcs.io", NAME, namespace=spread.namespace) or {}
    path, bytes_by_origin = thing["status"]["mountPath"], dict[str, float]()
    for labels, value in re.findall(r"^tdcs_reader_reads_total\{(.*)\} (\S+)$", text, re.MULTILINE):
        if f'path="{path}"' in labels:
            origin = re.search(r'origin="(\w+)"', labels)
            assert origin is not None, labels
            bytes_by_origin[origin[1]] = bytes_by_origin.get(origin[1], 0) + float(value)
    return bytes_by_origin


def kill_processes(kubectl: Kubectl, node: str, *words: str) -> int:
    """Kill every process of a node with these words in its command; how many there were."""
    plugin = pod_on(kubectl, node, PLUGIN)["metadata"]["name"]
    printed = kubectl("exec", plugin, "-n", SYSTEM, "-c", "csi", "--", "python3", "-c", KILL, *words)
    return int(printed)


def container_of(kubectl: Kubectl, node: str, selector: str, name: str) -> Object:
    """The state of a container of the system pod on a node."""
    statuses = pod_on(kubectl, node, selector).get("status", {}).get("containerStatuses", [])
    status: Object = next((status for status in statuses if status["name"] == name), {})
    return status


def wait_restarted(kubectl: Kubectl, node: str, selector: str, name: str, *, before: int) -> None:
    """Wait until a container that was killed is ready again."""

    def look() -> str | None:
        status = container_of(kubectl, node, selector, name)
        ready = status.get("ready") and status.get("restartCount", 0) > before
        return None if ready else f"{status.get('restartCount')} restarts, ready: {status.get('ready')}"

    kubectl.wait(look, what=f"container {name} on {node} is not ready again", seconds=120)


def test_a_pod_sees_plain_files_wherever_their_bytes_are_and_reads_the_right_ones(
    spread: Spread, kubectl: Kubectl
) -> None:
    sent = operations.payload_bytes_sent(bucket=BUCKET)
    before = remote_reads(kubectl, spread, spread.away)
    wait_more(kubectl, spread)
    for node in (spread.away, spread.near):
        files = [
            int(
                shell(
                    kubectl,
                    spread.pod_of(node),
                    f"find /data {predicate} | wc -l",
                    namespace=spread.namespace,
                )
            )
            for predicate in ("-type f", "-type f -links +1", "! -type d ! -type f", "-name '.tdcs*'")
        ]
        linked = files.pop(1)
        assert files == [MADE.files, 0, 0], plugin_log(kubectl, node)
        # What is there is a link to the cached block.
        assert linked == 0 if node == spread.away else 0 < linked < MADE.files
        assert not failures(rounds(kubectl, spread.pod_of(node), namespace=spread.namespace))
    after = remote_reads(kubectl, spread, spread.away)
    elsewhere = [sum(origins.get(origin, 0) for origin in ("peer", "buffer")) for origins in (before, after)]
    assert elsewhere[1] - elsewhere[0] >= MADE.files
    assert operations.payload_bytes_sent(bucket=BUCKET) - sent < 0.02 * spread.total_bytes


@pytest.mark.threat("reader-taken")
def test_who_takes_the_client_over_gets_nothing_of_its_node(spread: Spread, kubectl: Kubectl) -> None:
    plugin = pod_on(kubectl, spread.away, PLUGIN)["metadata"]["name"]
    printed = kubectl("exec", plugin, "-n", SYSTEM, "-c", "reader", "--", "python3", "-c", TAKEN_OVER)
    report = json.loads(printed)
    assert report.pop("seen") > 20  # the node's processes: so none of them was asked in vain
    assert report == {"root": False, "capabilities": 0, "let": []}


@pytest.mark.failure_mode("node-processes-killed-with-certificates")
def test_no_read_fails_while_reader_agent_and_plugin_are_killed_and_upgraded(
    spread: Spread, kubectl: Kubectl
) -> None:
    before = container_of(kubectl, spread.away, PLUGIN, "reader")["restartCount"]
    assert kill_processes(kubectl, spread.away, "reader", "run") >= 1
    wait_more(kubectl, spread)
    wait_restarted(kubectl, spread.away, PLUGIN, "reader", before=before)

    # Of its part there is no other copy: meanwhile it comes from the source.
    worker = "tdcs.io/component=worker"
    before = container_of(kubectl, spread.near, worker, "agent")["restartCount"]
    assert kill_processes(kubectl, spread.near, "agent", "run") >= 1
    kubectl("rollout", "restart", "daemonset/tdcs-csi", "-n", SYSTEM)
    kubectl("rollout", "status", "daemonset/tdcs-csi", "-n", SYSTEM, "--timeout=280s", timeout=300)
    wait_restarted(kubectl, spread.near, worker, "agent", before=before)
    wait_more(kubectl, spread)

    longest = 0.0
    for node in (spread.away, spread.near):
        name = spread.pod_of(node)
        shell(kubectl, name, "touch /tmp/end", namespace=spread.namespace)
        log = finished(kubectl, name, spread.namespace)
        lines = [json.loads(line) for line in log.splitlines()]
        assert not failures(lines)
        longest = max(longest, *(line["longest"] for line in lines))
        print(f"{node}: {sum(line['files'] for line in lines)} files, none failed")
    print(f"the longest read took {longest:.2f} s")
    assert longest < at_this_load(LONGEST_SECONDS)
