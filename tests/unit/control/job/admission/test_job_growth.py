"""Workers of an elastic job that grows are made when their data is on the nodes that they will find."""

from typing import Any

import pytest
from tests.unit.control.jobs import Jobs

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.control.node_usage import Usage
from tdcs.decide.job.elastic_growth import lacks, nodes_for
from tdcs.model.kube_resources import DATASETS

CLAIM = ("n", "pictures")


def dataset(nodes: dict[str, tuple[int, int]], **spec: Any) -> dict[str, Any]:
    """A mounted Dataset with bytes that are on nodes, and bytes that are to come there."""
    copy_nodes = [
        {"name": name, "bytes": held, **({"arriving": coming} if coming else {})}
        for name, (held, coming) in nodes.items()
    ]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Dataset",
        "metadata": {"name": "pictures", "namespace": "n", "uid": "d"},
        "spec": {"source": {"uri": "s3://pictures"}, **spec},
        "status": {
            "conditions": [
                {
                    "type": "Mounted",
                    "status": "True",
                    "reason": "Mounted",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "mountPath": "/datasets/pictures",
            "claimName": "pictures",
            "totalBytes": 8,
            "cachedBytes": 8,
            "cachedRatio": 1.0,
            "copies": [{"id": "0", "mode": "Replicate", "nodes": copy_nodes}],
        },
    }


@pytest.mark.parametrize(
    ("nodes", "spec", "workers", "new", "expected"),
    [
        ({"a": (8, 0), "b": (8, 0)}, {}, {"a", "b"}, True, False),
        ({"a": (8, 0), "b": (4, 4)}, {}, {"a", "b"}, False, True),
        ({"a": (8, 0), "b": (0, 8)}, {}, {"a", "b"}, False, True),
        ({"a": (8, 0)}, {}, {"a", "b"}, True, True),
        ({"a": (8, 0)}, {}, {"a", "b"}, False, False),  # the cache has had its time, and brings nothing there
        ({"a": (8, 0)}, {}, {"a"}, True, False),  # no worker there
        ({"a": (8, 0)}, {}, None, False, True),  # one comes
        ({"a": (8, 0)}, {"placement": {"nodeCount": 1}}, {"a", "b"}, True, False),
        ({}, {"preload": {"enabled": False}}, {"a", "b"}, True, False),
    ],
)
def test_data_is_awaited_where_it_comes_or_will(
    nodes: dict[str, tuple[int, int]],
    spec: dict[str, Any],
    workers: set[str] | None,
    new: bool,
    expected: bool,
) -> None:
    pictures = Dataset.model_validate(dataset(nodes, **spec))
    assert lacks(pictures, nodes=("b",), workers=workers, new=new) is expected


def test_the_nodes_with_the_data_are_found_first_and_one_is_filled_before_the_next() -> None:
    room = {"a": 0, "b": 2, "c": 4, "d": 1}
    assert nodes_for(2, room=room, holding={"a", "c"}) == ("c",)
    assert nodes_for(6, room=room, holding={"c"}) == ("c", "d", "b")
    assert nodes_for(9, room=room, holding=()) == ("d", "b", "c")
    assert nodes_for(1, room={}, holding=()) == ()


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
