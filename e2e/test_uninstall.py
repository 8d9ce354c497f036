"""What an uninstall does first: jobs, data and caches go, and leave nothing on the nodes' disks.

Last: it deletes every Dataset and CacheCluster. The next run of this tier (or `make install`) makes the cache anew.
"""

import pytest

from tdcs_local import demo, release
from tdcs_local.kubectl import Kubectl, Object, condition
from tdcs_local.steps import Reporter

CACHES = "/var/lib/tdcs/cache"
BLOCKS = f"find {CACHES} -path '*/alluxioworker/*' -type f | wc -l"
LEFT = f"find {CACHES} -mindepth 2 -not -path '*/.tiers/*' '(' -type f -o -name alluxioworker ')' | head -n 5"


def looker(*, node: str, namespace: str, image: str) -> Object:
    """A pod that sees the caches' folder of a node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"look-{node}", "namespace": namespace},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "600"],
                    "volumeMounts": [{"name": "caches", "mountPath": CACHES, "readOnly": True}],
                }
            ],
            "volumes": [{"name": "caches", "hostPath": {"path": CACHES, "type": "DirectoryOrCreate"}}],
        },
    }


@pytest.fixture
def lookers(kubectl: Kubectl, privileged_namespace: str, workers: list[str], toolbox: str) -> dict[str, str]:
    """The name of a running pod on each node."""
    names = {node: f"look-{node}" for node in workers}
    kubectl.apply(*(looker(node=node, namespace=privileged_namespace, image=toolbox) for node in workers))

    def look() -> str | None:
        pods = kubectl.list("pods", namespace=privileged_namespace)
        late = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") != "Running"]
        return f"{', '.join(late)} do not run" if late else None

    kubectl.wait(look, what="the pods that look at the disks do not run", seconds=180)
    return names


def test_before_tdcs_goes_its_data_goes_from_every_disk(
    tdcs: None,
    store_filled: None,
    kubectl: Kubectl,
    reporter: Reporter,
    privileged_namespace: str,
    lookers: dict[str, str],
) -> None:
    def seen(command: str) -> dict[str, str]:
        return {
            node: kubectl("exec", pod, "-n", privileged_namespace, "--", "sh", "-ec", command).strip()
            for node, pod in lookers.items()
        }

    demo.load_dataset(reporter=reporter, kubectl=kubectl)
    held = demo.node_bytes(kubectl)
    before = seen(BLOCKS)
    assert held
    assert all(int(before[node]) > 0 for node in held), (held, before)

    release.clear(reporter=reporter, kubectl=kubectl, seconds=120)

    assert [thing for resource, _ in release.CUSTOM_RESOURCES for thing in kubectl.list(resource)] == []
    assert seen(LEFT) == dict.fromkeys(lookers, "")
    volumes = [volume["metadata"]["name"] for volume in kubectl.list("persistentvolumes")]
    assert not [name for name in volumes if name.startswith("tdcs.")]
    operator = kubectl.get("deployments", "tdcs-operator", namespace=release.NAMESPACE)
    assert condition(operator, "Available").get("status") == "True"
