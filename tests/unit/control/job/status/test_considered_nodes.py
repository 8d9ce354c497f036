"""What a job's status keeps of the nodes when its pods were placed, and what `tdcs explain job` says by it later."""

import json

from tests.unit.cli.builders import held, printed
from tests.unit.control.jobs import GPU, Jobs

from tdcs.api.trainingjob_status import CONSIDERATIONS_LIMIT, CONSIDERED_NODES_LIMIT
from tdcs.cli.explain.explained_job import JobWorld, explain
from tdcs.control.node_usage import NOTHING, Usage
from tdcs.decide.place.considered_nodes import consider
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, NODES, PODS

READS = [{"name": "pictures", "mountPath": "/data"}]


def with_data(jobs: Jobs, **nodes: int) -> Object:
    """The dataset, of which these nodes hold so many bytes of 100."""
    obj = held(**nodes)["pictures"]
    obj["metadata"] = {"name": "pictures", "namespace": "n", "uid": "pictures", "generation": 1}
    jobs.server.store(DATASETS)["n", "pictures"] = obj
    return obj


def explained(jobs: Jobs, name: str = "train") -> str:
    """What the command prints now."""
    server = jobs.server
    return printed(
        explain(
            JobWorld(
                job=jobs.training_job(name),
                datasets={"pictures": server.store(DATASETS)["n", "pictures"]},
                own_pods=jobs.pods(name),
                nodes=list(server.store(NODES).values()),
                pods=list(server.store(PODS).values()),
            )
        )
    )


async def test_explain_argues_with_what_was_free_and_held_when_the_pods_were_placed() -> None:
    async with Jobs(gpus={"a": 4, "b": 4, "c": 4}) as jobs:
        with_data(jobs, a=100, b=10)
        await jobs.stranger("full", node="a", gpus=3)
        await jobs.create(workers=1, gpus=2, datasets=READS)
        await jobs.until(lambda: jobs.bound("train") == 1 and jobs.status().get("considered"))
        (then,) = jobs.status()["considered"]
        assert {node["name"]: (node["cachedBytes"], node["free"][GPU]) for node in then["nodes"]} == {
            "a": (100, "1"),
            "b": (10, "4"),
        }
        # Later the other node is empty, and its data is gone: what was decided before is argued with what was then.
        await jobs.server.delete(PODS, name="full", namespace="else")
        with_data(jobs, b=10, c=100)
        await jobs.run()
        await jobs.until_state("Running")
        assert jobs.status()["considered"] == [then]
        text = explained(jobs)
        assert (
            "is on b, which held 10 bytes of its 100 bytes when it was placed (score 1 of 10), "
            f"though others held more: a had score 10: it had 1 {GPU} free for the 2 {GPU} that the pod asks for"
        ) in text
        assert "c has" not in text
        for pod in jobs.pods():
            await jobs.end(pod)
        await jobs.until_state("Succeeded")
        assert "was on b, which held 10 bytes" in explained(jobs)


async def test_room_that_the_jobs_own_pods_took_is_said_to_be_theirs() -> None:
    async with Jobs(gpus={"a": 2, "b": 2}) as jobs:
        with_data(jobs, a=100)
        await jobs.create(workers=2, gpus=2, datasets=READS)
        await jobs.until(lambda: jobs.bound("train") == 2 and len(jobs.status().get("placement", ())) == 2)
        assert f"a had score 10: other pods of the job took its 2 {GPU} that were free" in explained(jobs)


async def test_pods_that_are_placed_again_are_explained_by_what_there_was_then() -> None:
    async with Jobs(gpus={"a": 2, "b": 2}) as jobs:
        with_data(jobs, a=100)
        await jobs.server.merge(NODES, name="a", patch={"spec": {"unschedulable": True}})
        await jobs.create(workers=1, gpus=2, datasets=READS, runPolicy={"startTimeoutSeconds": 86_400})
        await jobs.until(lambda: jobs.bound("train") == 1 and jobs.status().get("considered"))
        assert "a had score 10: its labels or taints kept the pod away" in explained(jobs)
        await jobs.server.merge(NODES, name="a", patch={"spec": {"unschedulable": None}})
        for number in range(CONSIDERATIONS_LIMIT + 1):
            jobs.advance(3600)
            (pod,) = (pod for pod in jobs.pods() if pod["status"]["phase"] != "Failed")
            await jobs.end(pod, code=1)
            await jobs.until(
                lambda number=number: (
                    len(jobs.pods()) == number + 2  # type: ignore[misc]
                    and any(
                        place["pod"] == jobs.pods()[-1]["metadata"]["name"]
                        for place in jobs.status().get("placement", ())
                    )
                )
            )
        records = jobs.status()["considered"]
        assert len(records) == CONSIDERATIONS_LIMIT
        assert [record["time"] for record in records] == sorted(record["time"] for record in records)


def test_what_is_kept_of_a_large_cluster_is_bounded() -> None:
    names = [f"gpu-pool-a-{index:04}.eu-west-1.compute.internal" for index in range(2000)]
    copy = CopyOnNodes(
        total_bytes=10**15, node_bytes={name: 10**12 - index for index, name in enumerate(names)}
    )
    resources = {"limits": {"cpu": "96", "memory": "1024Gi", GPU: "8", "rdma/hca": "8"}}
    considered = consider(
        placed_on=names[1000:],
        templates={"Worker": {"containers": [{"name": "main", "resources": resources}]}},
        held=[copy],
        wanted_copies=[copy],
        node_of=lambda name: {"metadata": {"name": name}},
        free=lambda name, node: {"cpu": 95_500, "memory": 2**40, GPU: 8, "rdma/hca": 8},
        now="2026-01-01T00:00:00Z",
    )
    assert len(considered.nodes) == CONSIDERED_NODES_LIMIT
    assert considered.nodes_omitted == 1000 - CONSIDERED_NODES_LIMIT // 2
    assert considered.nodes[0].free["cpu"] == "95500m"
    assert len(json.dumps(considered.model_dump(by_alias=True, mode="json"))) < 4096


def test_a_pod_without_a_node_takes_nothing() -> None:
    assert Usage().takes(("n", "none")) == NOTHING
