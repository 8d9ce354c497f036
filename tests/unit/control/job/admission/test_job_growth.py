"""Workers of an elastic job that grows are made when their data is on the nodes that they will find."""

from typing import Any

from tests.unit.control.jobs import Jobs
from tests.unit.decide.job.test_elastic_growth import dataset

from tdcs.api import names
from tdcs.control.node_usage import Usage
from tdcs.model.kube_resources import DATASETS

CLAIM = ("n", "pictures")


def test_expected_pods_count_where_a_claim_is_read_until_they_are_expected_no_more() -> None:
    claims: list[tuple[str, str]] = []
    usage = Usage(on_claim=claims.append)
    usage.expect(("n", "train"), claims=[CLAIM], nodes=["b"])
    assert usage.nodes_of(CLAIM) == {"b"}
    assert not usage.is_mounted(CLAIM)
    usage.expect(("n", "train"), claims=[CLAIM], nodes=["b"])
    assert claims == [CLAIM]
    usage.expect(("n", "train"), claims=(), nodes=())
    assert usage.nodes_of(CLAIM) == frozenset()
    assert claims == [CLAIM, CLAIM]


async def test_a_job_that_grows_gets_its_worker_when_the_data_is_on_the_node_that_it_will_find() -> None:
    async with Jobs(gpus={"a": 1, "b": 1}) as jobs:
        cluster = {"spec": {}, "status": {"workers": [{"node": node, "state": "Ready"} for node in "ab"]}}
        clusters: Any = jobs.context.stores.cache_clusters
        clusters[names.SYSTEM_NAMESPACE, names.DEFAULT_CACHE_CLUSTER] = cluster
        await jobs.server.create(DATASETS, obj=dataset({"a": (8, 0)}))
        await jobs.create(
            workers=1,
            framework="PyTorch",
            elastic={"minReplicas": 1, "maxReplicas": 2},
            datasets=[{"name": "pictures", "mountPath": "/data"}],
        )
        await jobs.until(lambda: jobs.bound("train") == 1)
        assert jobs.usage.nodes_of(CLAIM) == {"a"}
        await jobs.change(workers=2)
        await jobs.until(lambda: jobs.usage.nodes_of(CLAIM) == {"a", "b"})
        assert jobs.status()["admittedWorkers"] == 2
        assert len(jobs.pods()) == 1
        coming = jobs.server.store(DATASETS)["n", "pictures"]
        coming["status"] = dataset({"a": (8, 0), "b": (4, 4)})["status"]
        await jobs.play()
        assert len(jobs.pods()) == 1
        coming["status"] = dataset({"a": (8, 0), "b": (8, 0)})["status"]
        await jobs.until(lambda: jobs.bound("train") == 2)
        # It shrinks, and ends: nothing is expected anywhere any more.
        await jobs.change(workers=1)
        await jobs.until(lambda: len(jobs.pods()) == 1 and jobs.usage.nodes_of(CLAIM) == {"a"})
