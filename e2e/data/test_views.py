"""What a pod's volume is on a real node where the data is: links to cached blocks; and what survives what.

Uses the example Dataset, which is whole on two of the three nodes.
"""

from typing import Any

import pytest

from e2e.support.jobs import PRINT_CHECKSUMS, expected_digest
from e2e.support.pods import pod
from e2e.support.reading import SYSTEM, pod_on, run_reader, shell
from tdcs_local import demo
from tdcs_local.errors import LocalError
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.progress import Reporter

# Reads files forever and says so, or says what went wrong.
READ_ON = (
    "cd /data; while :; do for f in $(find . -name '*.jpg' | head -n 200); do "
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
