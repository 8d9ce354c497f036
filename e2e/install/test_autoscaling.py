"""The chart's HorizontalPodAutoscaler of the cache, with a real Prometheus and a real prometheus-adapter.

It takes minutes, and the adapter has to be built: it runs with TDCS_ECOSYSTEM=1 (`make autoscaling`). Prints what the
source sent for the data that is read while workers come and go.
"""

import json
from collections.abc import Iterator

import pytest
from tests.support.ecosystem.go_modules import fetches

from e2e.support import monitoring
from e2e.support.jobs import PRINT_CHECKSUMS, expected_digest, logs_of, reading_job, succeeded
from tdcs_local import demo
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl, Object, condition
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets, operations
from tdcs_local.store.operations import Made

pytestmark = pytest.mark.skipif(
    not fetches(), reason="takes minutes, with programs that are built; make autoscaling runs it"
)

SYSTEM = release.NAMESPACE
READ, BURST = "e2e-read", "e2e-burst"
SIZES = {READ: Made(files=300, size="100KiB", seed="7"), BURST: Made(files=200, size="100KiB", seed="8")}
NAMESPACE = "tdcs-e2e-monitoring"
SETTINGS = {
    # Of Prometheus: metrics are for the namespace `monitoring` otherwise.
    r"networkPolicy.monitoring[0].namespaceSelector.matchLabels.kubernetes\.io/metadata\.name": NAMESPACE,
    "autoscaling.enabled": "true",
    "autoscaling.minReplicas": "2",
    "autoscaling.maxReplicas": "3",
    # A percent of 2 GiB: 31 MB take two workers, and 51 MB three.
    "autoscaling.targetPercent": "1",
    "autoscaling.scaleDownDelaySeconds": "0",
}

# Every file again and again; a read that fails shows as another sum.
READ_ON = f"until [ -e /tmp/end ]; do ({PRINT_CHECKSUMS}) 2>&1; sleep 0.2; done; echo end"


@pytest.fixture(scope="module")
def measured(
    tdcs: None, store_filled: None, kubectl: Kubectl, reporter: Reporter, toolbox: str
) -> Iterator[str]:
    """The namespace of Prometheus and the adapter; the chart's cache is scaled by what they measure."""
    namespace = NAMESPACE
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": privileged}}
    )
    demo.forget(kubectl=kubectl)
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    try:
        release.install(reporter=reporter, kubectl=kubectl, tags=tags, settings=SETTINGS)
        # One worker a minute leaves in the chart: here one a second, as far as drains let it.
        quick = [{"op": "replace", "path": "/spec/behavior/scaleDown/policies/0/periodSeconds", "value": 1}]
        kubectl("patch", "hpa", release.CACHE_CLUSTER, "-n", SYSTEM, "--type=json", "-p", json.dumps(quick))
        rule = kubectl.get("configmap", "tdcs-prometheus-adapter", namespace=SYSTEM) or {}
        monitoring.start(kubectl, namespace=namespace, image=toolbox, rules=rule["data"]["config.yaml"])
        yield namespace
    finally:
        monitoring.stop(kubectl, namespace=namespace)
        release.install(reporter=reporter, kubectl=kubectl, tags=tags)
        # What the autoscaler asked for last stays otherwise.
        every = [{"op": "remove", "path": "/spec/replicas"}]
        kubectl("patch", "cacheclusters.tdcs.io", release.CACHE_CLUSTER, "-n", SYSTEM, "--type=json",
                "-p", json.dumps(every))  # fmt: skip
        kubectl.wait(
            lambda: None if set(states(kubectl).values()) == {"Ready"} and len(states(kubectl)) == 3 else "",
            what="the cache has not its three workers again",
            seconds=180,
        )
        kubectl.delete("namespace", namespace, timeout=180)


def cache(kubectl: Kubectl) -> Object:
    return kubectl.get("cacheclusters.tdcs.io", release.CACHE_CLUSTER, namespace=SYSTEM) or {}


def states(kubectl: Kubectl) -> dict[str, str]:
    """The state of each cache worker, by its node."""
    return {worker["node"]: worker["state"] for worker in cache(kubectl).get("status", {}).get("workers", [])}


def wait_workers(kubectl: Kubectl, count: int, *, holding: int, namespace: str) -> set[str]:
    """Wait until there are so many workers, and so many bytes of the Dataset that is read on all of them together; the
    states that workers had meanwhile."""
    states_met: set[str] = set()

    def look() -> str | None:
        now = states(kubectl)
        states_met.update(now.values())
        (held,) = datasets.copies_of(kubectl, READ, namespace=namespace).values() or [{}]
        held = {node: size for node, size in held.items() if size}
        settled = set(now.values()) == {"Ready"} and len(now) == count
        whole = held.keys() == now.keys() and sum(held.values()) == holding
        return None if settled and whole else f"workers {now}, bytes {held}"

    kubectl.wait(
        look,
        what=f"the cache has not {count} workers with all that is read",
        seconds=240,
        explain=lambda: "\n".join(
            (
                kubectl("describe", "hpa,cacheclusters.tdcs.io", "-n", SYSTEM),
                kubectl("describe", "datasets.tdcs.io", "-n", namespace),
            )
        ),
    )
    return states_met


def test_wanted_bytes_add_a_worker_and_their_end_removes_it_by_a_drain_while_a_job_reads(
    measured: str, kubectl: Kubectl, reporter: Reporter, namespace: str, toolbox: str
) -> None:
    for bucket, files in SIZES.items():
        operations.fill("small", bucket=bucket, seeded=files, reporter=reporter)
    total = operations.manifest(READ)["totalBytes"]
    datasets.grant_access(kubectl, namespace=namespace, reporter=reporter)
    spread = {"mode": "Partition", "nodeCount": 3}
    kubectl.apply(
        datasets.dataset(READ, namespace=namespace, bucket=READ, placement=spread),
        reading_job(READ, image=toolbox, workers=1, script=READ_ON, namespace=namespace, dataset=READ),
    )
    wait_workers(kubectl, 2, holding=total, namespace=namespace)
    sent = operations.payload_bytes_sent(bucket=READ)

    kubectl.apply(
        datasets.dataset(
            BURST, namespace=namespace, bucket=BURST, eviction={"policy": "Pin"}, placement=spread
        )
    )
    wait_workers(kubectl, 3, holding=total, namespace=namespace)
    burst = kubectl.get("hpa", release.CACHE_CLUSTER, namespace=SYSTEM) or {}
    assert condition(burst, "ScalingActive")["status"] == "True"

    kubectl.delete("datasets.tdcs.io", BURST, namespace=namespace)
    states_met = wait_workers(kubectl, 2, holding=total, namespace=namespace)
    assert "Draining" in states_met
    assert cache(kubectl)["spec"]["replicas"] == 2

    rounds = len(logs_of(kubectl, READ, namespace=namespace)[0].splitlines())
    kubectl.wait(
        lambda: (
            None
            if len(logs_of(kubectl, READ, namespace=namespace)[0].splitlines()) > rounds + 1
            else "no round has ended since"
        ),
        what="the job does not read on",
        seconds=60,
    )
    kubectl("exec", f"job/{READ}-worker", "-n", namespace, "--", "touch", "/tmp/end")
    status = succeeded(kubectl, READ, namespace=namespace)
    assert [role_status.get("failed", 0) for role_status in status["replicaStatuses"]] == [0]
    (log,) = logs_of(kubectl, READ, namespace=namespace)
    *sums, end = log.splitlines()
    assert end == "end"
    assert {line.split()[0] for line in sums} == {expected_digest(READ)}
    again = operations.payload_bytes_sent(bucket=READ) - sent
    print(json.dumps({"bytes": total, "rounds_read": len(sums), "sent_by_the_source_while_scaling": again}))
