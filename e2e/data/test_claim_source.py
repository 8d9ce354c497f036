"""A PersistentVolumeClaim as the source of a Dataset, on a real cluster: a thousand files through the pod that serves
it, and no byte wrong.

The claim is on one node alone, as a ReadWriteOnce volume does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import describe
from e2e.support.pods import finished, pod
from tdcs_local.kind import release
from tdcs_local.kind.kubectl import Kubectl, Object, unmet

SYSTEM = release.NAMESPACE
NAME = NAMESPACE = "e2e-claim"
FILES = 1000
SELECTOR = "tdcs.io/component=claim-server"

FILL = """
mkdir -p /volume/train/sub /volume/train/lost+found
for n in $(seq 0 999); do seq $n $((n + 3000)) > /volume/train/sub/$n.txt; done
echo secret > /volume/outside.txt
ln -sf ../outside.txt /volume/train/out.txt
chmod 700 /volume/train/lost+found
chmod -R a+rX /volume/train/sub
chmod a+rx /volume /volume/train
"""
CHECKSUMS = "cd /data; find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum"


def expected() -> str:
    """What CHECKSUMS prints."""
    lines = {
        f"./sub/{number}.txt": "".join(f"{line}\n" for line in range(number, number + 3001))
        for number in range(FILES)
    }
    text = "".join(
        f"{hashlib.sha256(content.encode()).hexdigest()}  {path}\n" for path, content in sorted(lines.items())
    )
    return hashlib.sha256(text.encode()).hexdigest()


def volume(node: str) -> list[Object]:
    """A namespace with a claim that is bound to a folder of one node."""
    of_both = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": NAME},
            "spec": {
                **of_both,
                "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": NAMESPACE, "name": NAME},
                "hostPath": {"path": f"/var/tmp/{NAME}", "type": "DirectoryOrCreate"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {**of_both, "volumeName": NAME, "resources": {"requests": {"storage": "1Gi"}}},
        },
    ]


def mounting(name: str, *, image: str, script: str, claim: str, at: str, **spec: Any) -> Object:
    return pod(
        name,
        image=image,
        script=script,
        namespace=NAMESPACE,
        container={"volumeMounts": [{"name": "data", "mountPath": at}]},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        **spec,
    )


def dataset() -> Object:
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "Dataset",
        "metadata": {"name": f"{NAME}-data", "namespace": NAMESPACE},
        "spec": {
            "cacheClusterRef": {"name": NAME},
            "source": {"uri": f"pvc://{NAME}/train"},
            "placement": {"mode": "Replicate", "nodeCount": 1},
        },
    }


def native(node: str) -> Object:
    """A cache of agents alone, on one other node."""
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "CacheCluster",
        "metadata": {"name": NAME, "namespace": SYSTEM},
        "spec": {
            "engine": "Native",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "storage": {"tiers": [{"medium": "SSD", "capacity": "1Gi"}]},
        },
    }


@pytest.fixture
def claim(tdcs: None, kubectl: Kubectl, toolbox: str, workers: list[str]) -> Iterator[None]:
    """The claim, filled on the first node, and a cache on the second one."""
    try:
        kubectl.apply(*volume(workers[0]), native(workers[1]))
        filler = mounting(f"{NAME}-fill", image=toolbox, script=FILL, claim=NAME, at="/volume")
        # The folder is made for root.
        filler["spec"]["securityContext"] = {"runAsUser": 0}
        kubectl.apply(filler)
        finished(kubectl, f"{NAME}-fill", NAMESPACE)
        kubectl("delete", "pod", f"{NAME}-fill", "-n", NAMESPACE, "--wait=true")
        yield
    finally:
        for kind, name, *where in (
            ("dataset", f"{NAME}-data", "-n", NAMESPACE),
            ("cachecluster", NAME, "-n", SYSTEM),
            ("namespace", NAMESPACE),
            ("pv", NAME),
        ):
            kubectl("delete", kind, name, *where, "--ignore-not-found", "--wait=true")


def test_a_claim_on_one_node_is_cached_on_another_one_and_its_pod_goes(
    claim: None, kubectl: Kubectl, toolbox: str
) -> None:
    kubectl.apply(dataset())

    def live_dataset() -> Object:
        return kubectl.get("datasets.tdcs.io", f"{NAME}-data", namespace=NAMESPACE) or {}

    def unready() -> str | None:
        status = live_dataset().get("status") or {}
        is_loaded = unmet(live_dataset(), "Ready") is None and status.get("cachedRatio") == 1
        return None if is_loaded else json.dumps(status.get("conditions"))

    kubectl.wait(
        unready, what="the Dataset is not loaded", seconds=300, explain=lambda: describe(kubectl, NAMESPACE)
    )
    assert live_dataset()["status"]["totalFiles"] == FILES
    reader = mounting(f"{NAME}-read", image=toolbox, script=CHECKSUMS, claim=f"{NAME}-data", at="/data")
    kubectl.apply(reader)
    try:
        assert finished(kubectl, f"{NAME}-read", NAMESPACE).split()[0] == expected()
    finally:
        kubectl("delete", "pod", f"{NAME}-read", "-n", NAMESPACE, "--ignore-not-found", "--wait=true")

    def objects_left() -> str | None:
        pods = kubectl.list("pods", namespace=NAMESPACE, selector=SELECTOR)
        secrets = kubectl.list("secrets", namespace=NAMESPACE, selector=SELECTOR)
        names = [obj["metadata"]["name"] for obj in (*pods, *secrets)]
        return f"there are {names}" if names else None

    kubectl.wait(objects_left, what="the pod of the claim has not gone", seconds=400)
