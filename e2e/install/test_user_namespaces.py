"""What TDCS does only now and then in the namespaces of users, where it has rights of its own for that.

`make rights` finds them used nowhere but in the release's namespace without these tests.
"""

import json

import pytest

from e2e.conftest import describe
from e2e.support.jobs import reading_job
from e2e.support.pods import pod
from tdcs.api import names
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets, operations
from tdcs_local.store.operations import Made

BUCKET, NAME = "e2e-users", "pictures"
FILES = Made(files=10, size="10KiB")


@pytest.fixture
def dataset(tdcs: None, store_filled: None, kubectl: Kubectl, reporter: Reporter, namespace: str) -> str:
    """A Dataset in the test's namespace, ready."""
    operations.fill("small", bucket=BUCKET, seeded=FILES, reporter=reporter)
    datasets.grant_access(kubectl, namespace=namespace, reporter=reporter)
    kubectl.apply(datasets.dataset(NAME, namespace=namespace, bucket=BUCKET))
    datasets.wait_ready(kubectl, NAME, namespace=namespace)
    return NAME


def test_what_has_ended_is_deleted_when_its_time_is_over(
    dataset: str, kubectl: Kubectl, namespace: str, toolbox: str
) -> None:
    job = reading_job("short", image=toolbox, workers=1, namespace=namespace, dataset=dataset)
    job["spec"]["runPolicy"] = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0}
    preload = {
        "apiVersion": names.API_VERSION,
        "kind": "Preload",
        "metadata": {"name": "warm", "namespace": namespace},
        "spec": {"datasetRef": {"name": dataset}, "ttlSecondsAfterFinished": 0},
    }
    kubectl.apply(job, preload)

    def objects_left() -> str | None:
        kinds = ("trainingjobs.tdcs.io", "preloads.tdcs.io", "jobs", "pods")
        leftovers = [
            f"{kind}/{obj['metadata']['name']}"
            for kind in kinds
            for obj in kubectl.list(kind, namespace=namespace)
        ]
        return ", ".join(leftovers) or None

    kubectl.wait(
        objects_left,
        what="what has ended is still there",
        seconds=120,
        explain=lambda: describe(kubectl, namespace),
    )
    assert kubectl.get("datasets.tdcs.io", dataset, namespace=namespace)


def test_a_pod_gets_an_event_when_its_dataset_does_not_exist(
    tdcs: None, kubectl: Kubectl, namespace: str, toolbox: str
) -> None:
    placed = pod("lost", image=toolbox, script="true", namespace=namespace)
    placed["metadata"]["annotations"] = {
        names.ANNOTATION_DATASETS: json.dumps([{"dataset": f"{namespace}/nowhere"}])
    }
    placed["spec"]["schedulerName"] = "tdcs-scheduler"
    kubectl.apply(placed)

    def look() -> str | None:
        events = kubectl.list("events", namespace=namespace)
        messages = [event["message"] for event in events if event["reason"] == "DatasetNotFound"]
        return None if any("nowhere" in message for message in messages) else f"events: {events}"

    kubectl.wait(look, what="no event names the Dataset", seconds=60)
