"""`tdcs explain job`: the plan of tdcs-train next to where the pods are and what was measured."""

import json
from typing import Any

from tests.unit.cli.builders import job, node, pod, printed

from tdcs.cli.explain.explained_job import JobWorld, explain
from tdcs.model.kube_objects import Object

LINK = {"machines": 3, "bytesPerSecond": 12_000_000.0, "latencySeconds": 0.001}


def planned(replicas: list[int], levels: list[dict[str, Any]], *, gpus: int = 1, text: str = "") -> Object:
    """A running job with a plan in the template of its workers."""
    train = job(state="Running")
    document = {
        "stages": [{"nodes": ["node2"], "replicas": count} for count in replicas],
        "expectedSeconds": 0.5,
        "levels": levels,
    }
    (container,) = train["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    container["env"] = [{"name": "TDCS_TRAIN_PLAN", "value": text or json.dumps(document)}]
    container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    train["spec"]["workers"] = sum(replicas) // gpus
    return train


def explained(train: Object, *nodes: str, message: str = "") -> str:
    pods = [pod(f"p{number}", node=name) for number, name in enumerate(nodes)]
    if message:
        ended = {"exitCode": 143, "message": message}
        pods[0]["status"]["containerStatuses"] = [{"name": "main", "lastState": {"terminated": ended}}]
    names = sorted(set(nodes))
    return printed(
        explain(JobWorld(job=train, own_pods=pods, nodes=[node(name) for name in names], pods=pods))
    )


def test_stages_are_shown_on_their_nodes_with_what_was_planned() -> None:
    text = explained(planned([2, 1], [LINK]), "a", "b", "c")
    assert (
        "planned as a pipeline of 2 stages, 2-1 workers, over links of 96 Mbit/s, 0.5 s a mini-batch" in text
    )
    assert "stage 0 (workers 0 to 1) on a and b; stage 1 (worker 2) on c" in text
    assert "share a node" not in text
    assert "share a node" in explained(planned([2, 1], [LINK]), "a", "a", "c")


def test_workers_that_the_plan_takes_for_one_machine_are_named_where_they_are_torn_apart() -> None:
    levels = [{**LINK, "machines": 2}, {**LINK, "machines": 2}]
    torn = explained(planned([2, 2], levels), "a", "b", "c", "c")
    assert "The plan takes workers 0 to 1 for one machine, and they are on a and b: the slower links" in torn
    together = explained(planned([2, 2], levels, gpus=2), "a", "b")
    assert "stage 0 (workers 0 to 1) on a; stage 1 (workers 2 to 3) on b" in together
    assert "for one machine" not in together


def test_a_measured_mini_batch_stands_next_to_the_expected_one() -> None:
    text = explained(planned([2, 1], [LINK]), "a", "b", "c", message='{"secondsPerMiniBatch": 0.55}')
    assert "It took 0.55 s a mini-batch, 1.10 times what the plan expects" in text


def test_a_run_that_flushes_is_compared_with_what_the_plan_expects_of_flushes() -> None:
    message = '{"secondsPerMiniBatch": 0.9, "flushedMicroBatches": 4}'
    text = explained(planned([1, 1, 1], [LINK]), "a", "b", "c", message=message)
    assert "0.5 s with a full pipeline, about 0.75 s in mode flush with 4 micro-batches" in text
    assert "It took 0.9 s a mini-batch, 1.20 times" in text
    # Data parallel has no pipeline to fill.
    alone = explained(planned([3], [LINK]), "a", "b", "c", message=message)
    assert "It took 0.9 s a mini-batch, 1.80 times what the plan expects." in alone


def test_what_is_no_plan_says_nothing() -> None:
    for text in ("", "[]", "{}", '{"stages": [{"replicas": -1}]}', '{"stages": [3]}', "[" * 100_000):
        assert "planned as" not in explained(planned([1], [], text=text or "no json"), "a")
    assert "It took" not in explained(planned([1], []), "a", message="stopped")
