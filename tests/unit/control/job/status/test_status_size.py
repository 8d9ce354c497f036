"""What statuses weigh, and how often they are written: bounded, whatever a job and a cluster are."""

import json

from tests.unit.control.job.queue.test_job_requeue import observed_of
from tests.unit.control.jobs import Jobs

from tdcs.api.cachecluster import CacheClusterStatus, CacheWorker
from tdcs.api.dataset import Copy, DatasetStatus
from tdcs.cli import crd_documents
from tdcs.control.job.job_status import places_of
from tdcs.kube.apply import digest_of
from tdcs.model.job_pods import PodView
from tdcs.model.kube_resources import PODS

ETCD_LIMIT = 1_572_864
"""Bytes of a request that etcd takes, by default."""


async def test_the_readiness_of_a_hundred_pods_is_a_few_writes() -> None:
    async with Jobs(gpus={f"n{i}": 8 for i in range(13)}) as jobs:
        await jobs.create(workers=100)
        await jobs.until(lambda: jobs.bound("train") == 100)
        jobs.server.writes.clear()
        for number, pod in enumerate(jobs.pods("train")):
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await jobs._merge(PODS, pod, {"status": ready})
            if number % 10 == 0:
                await jobs.until(lambda: True)
        await jobs.until_state("Running")
        writes = sum(write.startswith("status TrainingJob") for write in jobs.server.writes)
        assert writes <= 5
        # The last of them is written too, a moment later.
        await jobs.until(lambda: jobs.status()["replicaStatuses"][0].get("ready") == 100)
        await jobs.until(lambda: jobs.status()["message"] == "100 of 100 pods run")


def test_the_placement_of_a_thousand_workers_is_bounded_and_a_move_of_any_is_noticed() -> None:
    def worker(index: int, node: str) -> PodView:
        name = f"resnet-50-large-batch-worker-{index}-abcde"
        return PodView(name=name, index=str(index), node=node, phase="Running")

    pods = [worker(index, f"gpu-pool-a-{index:04}.eu-west-1.compute.internal") for index in range(1000)]
    places = places_of(observed_of(*pods, replicas=1000), copies=())
    assert (len(places.listed), places.omitted) == (128, 872)
    listed = [place.model_dump(by_alias=True, mode="json") for place in places.listed]
    assert len(json.dumps(listed)) < 24 * 1024
    moved = places_of(observed_of(*pods[:-1], worker(999, "elsewhere"), replicas=1000), copies=())
    assert moved.listed == places.listed
    assert moved.digest != places.digest
    assert places.digest == digest_of({pod.name: pod.node for pod in pods})
    few = places_of(observed_of(*pods[:100], replicas=100), copies=())
    assert (len(few.listed), few.omitted, few.digest) == (100, 0, None)


def node(index: int) -> str:
    return f"gke-train-h100-pool-1-8f3a2b1c-{index:04}"


def test_the_statuses_of_five_thousand_nodes_fit_into_one_object() -> None:
    workers = [
        CacheWorker(node=node(i), state="Ready", capacity_bytes=3 * 10**12, used_bytes=2_345_678_901_234)
        for i in range(5000)
    ]
    nodes = [{"name": node(i), "bytes": 123_456_789_012, "arriving": 123_456} for i in range(5000)]
    copies = [Copy.model_validate({"id": str(number), "nodes": nodes}) for number in range(2)]
    for status in (CacheClusterStatus(workers=workers), DatasetStatus(copies=copies)):
        text = json.dumps(status.model_dump(by_alias=True, exclude_none=True, mode="json"))
        assert len(text) < ETCD_LIMIT * 0.6


def test_lists_of_nodes_and_pods_have_no_record_of_who_wrote_each_item() -> None:
    """The API server's managedFields of a list map take more than such an item."""
    schemas = {
        kind.plural: crd_documents.definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for kind in crd_documents.KINDS
    }
    of = {
        plural: schema["properties"].get("status", {}).get("properties", {})
        for plural, schema in schemas.items()
    }
    lists = [
        of["cacheclusters"]["workers"],
        of["datasets"]["copies"]["items"]["properties"]["nodes"],
        of["trainingjobs"]["placement"],
    ]
    assert [schema["x-kubernetes-list-type"] for schema in lists] == ["atomic"] * 3
