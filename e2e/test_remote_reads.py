"""The remote-read client on real nodes: plain files in every pod's volume, no FUSE clients of Alluxio, upgrades unseen.

The release is upgraded to `reader.enabled` for these tests and back after them, so they run only when asked for:
`TDCS_E2E_READER=1 .venv/bin/python -m pytest e2e/test_remote_reads.py`.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.test_training import PRINT_CHECKSUMS, expected_digest
from e2e.test_views import SYSTEM, held, pod_on, reader, readers, run_reader, shell
from tdcs_local import demo
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.progress import Reporter

__all__ = ["held", "readers"]

pytestmark = pytest.mark.skipif(
    os.environ.get("TDCS_E2E_READER") != "1", reason="it upgrades the release: set TDCS_E2E_READER=1"
)

# Reads all files for ever, forgetting nothing, and says how long the longest one took.
READ_ON = (
    "cd /data; while :; do find . -type f | head -n 300 | while read -r f; do "
    's=$(date +%s%N); cat "$f" >/dev/null || echo "FAILED $f"; e=$(( ($(date +%s%N) - s) / 1000000 )); '
    '[ "$e" -lt 300 ] || echo "slow $e ms"; done; echo round; done'
)


@pytest.fixture(scope="session", autouse=True)
def training_image_on_its_way() -> None:
    """No test here trains: the large image stays where it is."""


@pytest.fixture(scope="module", autouse=True)
def with_reader(tdcs: None, kubectl: Kubectl, reporter: Reporter) -> Iterator[None]:
    """The release with the remote-read client."""
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    release.install(reporter=reporter, kubectl=kubectl, tags=tags, settings={"reader.enabled": "true"})
    yield
    release.install(reporter=reporter, kubectl=kubectl, tags=tags)


@pytest.fixture
def away(held: dict[str, int], workers: list[str]) -> str:
    """A node without any of the data."""
    return (set(workers) - set(held)).pop()


def fuse_clients(kubectl: Kubectl) -> list[dict[str, Any]]:
    """The pods of Alluxio's FUSE clients."""
    return kubectl.list("pods", namespace=SYSTEM, selector="tdcs.io/component=fuse")


def test_alluxios_fuse_clients_go_when_all_nodes_have_the_remote_read_client(kubectl: Kubectl) -> None:
    def look() -> str | None:
        found = fuse_clients(kubectl)
        return f"{len(found)} are left" if found else None

    kubectl.wait(look, what="FUSE clients run beside the remote-read client", seconds=120)


def test_a_pod_where_no_data_is_sees_plain_files_only_and_reads_them(
    away: str, kubectl: Kubectl, toolbox: str, readers: list[str]
) -> None:
    name = run_reader(kubectl, readers, reader("view-plain", node=away, image=toolbox))

    assert shell(kubectl, name, "find /data -type l | wc -l") == "0"
    assert shell(kubectl, name, "find /data -name .tdcs | wc -l") == "0"
    assert shell(kubectl, name, "find /data -type f | wc -l") == shell(
        kubectl, name, "find /data ! -type d | wc -l"
    )
    assert shell(kubectl, name, PRINT_CHECKSUMS).split()[0] == expected_digest()


def test_a_pod_reads_on_while_the_node_plugin_and_its_reader_are_replaced(
    away: str, kubectl: Kubectl, toolbox: str, readers: list[str]
) -> None:
    busy = run_reader(kubectl, readers, reader("view-upgrade", node=away, image=toolbox, script=READ_ON))

    def rounds() -> int:
        return kubectl("logs", busy, "-n", demo.NAMESPACE).count("round")

    for _ in range(2):
        plugin = pod_on(kubectl, away, "app.kubernetes.io/component=csi")["metadata"]["name"]
        kubectl("delete", "pod", plugin, "-n", SYSTEM, "--grace-period=0", "--force")
        before = rounds()
        kubectl.wait(
            lambda before=before: None if rounds() > before else "no round has ended",  # type: ignore[misc]
            what="the pod does not read on",
            seconds=120,
        )
    log = kubectl("logs", busy, "-n", demo.NAMESPACE)
    assert "FAILED" not in log
    print("reads of 300 ms or more:", [line for line in log.splitlines() if line.startswith("slow")])
