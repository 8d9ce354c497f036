"""Compiled models: a Job for each of two targets, a Dataset of what they wrote, and jobs that score on three nodes."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.test_training import logs_of, succeeded
from tdcs_local import demo
from tdcs_local.kind import images
from tdcs_local.kind.kubectl import Kubectl, condition
from tdcs_local.progress import Reporter
from tdcs_local.store import operations
from tdcs_local.store.operations import Made

LABEL = "tdcs.io/target"
TARGETS = ("x86-64-v2", "x86-64-v3")
BUCKET = "compiled"


@pytest.fixture(scope="module")
def image(kubectl: Kubectl, reporter: Reporter) -> str:
    """The image that compiles and scores is on the nodes."""
    return f"tdcs/train-tvm:{images.ensure(['train-tvm'], reporter=reporter)['train-tvm']}"


def example(name: str, image: str) -> list[dict[str, Any]]:
    """The objects of an example file, in the demo's namespace and with this checkout's image."""
    text = (demo.EXAMPLES / name).read_text().replace("tdcs/train-tvm:dev", image)
    return [
        {**thing, "metadata": {**thing["metadata"], "namespace": demo.NAMESPACE}}
        for thing in yaml.safe_load_all(text)
    ]


@pytest.fixture(scope="module")
def labelled(kubectl: Kubectl, workers: list[str]) -> Iterator[dict[str, str]]:
    """The target of each worker, as its label says: two that models are compiled for, and an older one."""
    targets = dict(zip(workers, (*TARGETS, "x86-64"), strict=True))
    for node, target in targets.items():
        kubectl("label", "node", node, f"{LABEL}={target}", "--overwrite")
    yield targets
    for node in targets:
        kubectl("label", "node", node, f"{LABEL}-")


@pytest.fixture(scope="module")
def compiled(
    tdcs: None, store_filled: None, image: str, labelled: dict[str, str], kubectl: Kubectl, reporter: Reporter
) -> Iterator[dict[str, dict[str, Any]]]:
    """What the compile Jobs printed, by target; the Dataset of the artifacts is loaded onto all nodes afterwards."""
    demo.apply_dataset(reporter=reporter, kubectl=kubectl)
    # A new seed replaces what an earlier run left in the bucket, so that everything is built in this one.
    other = Made(files=1, size="1KiB", seed=uuid.uuid4().hex)
    operations.fill("small", bucket=BUCKET, made=other, reporter=reporter)
    printed = {}
    jobs = example("compile-digits.yaml", image)
    kubectl.apply(*jobs)
    for job in jobs:
        name = job["metadata"]["name"]
        wait_for_job(kubectl, name)
        said = json.loads(kubectl("logs", f"job/{name}", "-n", demo.NAMESPACE))
        printed[said["manifest"]["target"]] = said
    kubectl.apply(*example("dataset-compiled.yaml", image))
    yield printed
    demo.forget(kubectl=kubectl)  # other tests begin without these jobs and datasets
    kubectl.delete("datasets.tdcs.io", BUCKET, namespace=demo.NAMESPACE)
    for name in (*(job["metadata"]["name"] for job in jobs), "compile-again"):
        kubectl.delete("job", name, namespace=demo.NAMESPACE)


def wait_for_job(kubectl: Kubectl, name: str) -> None:
    def look() -> str | None:
        job = kubectl.get("job", name, namespace=demo.NAMESPACE) or {}
        assert condition(job, "Failed").get("status") != "True", kubectl(
            "logs", f"job/{name}", "-n", demo.NAMESPACE
        )
        return None if condition(job, "Complete").get("status") == "True" else "the job runs"

    explain = ("describe", "pods", "-n", demo.NAMESPACE, "-l", f"job-name={name}")
    kubectl.wait(look, what=f"Job {name} did not complete", seconds=240, explain=lambda: kubectl(*explain))


def score_job(name: str, *, image: str, node: str, target: str) -> dict[str, Any]:
    """The example job with one pod, on a node of which the processor is treated as the label says."""
    (job,) = example("trainingjob-score.yaml", image)
    job["metadata"]["name"] = name
    worker = job["spec"]["replicaSpecs"]["Worker"]
    worker["replicas"] = 1
    pod = worker["template"]["spec"]
    pod["nodeSelector"] = {"kubernetes.io/hostname": node}
    pod["containers"][0]["env"] = [
        {"name": "PODS", "value": "3"},
        {"name": "TDCS_TRAIN_TARGET", "value": target},
    ]
    return job


def test_each_pod_scores_with_the_artifact_of_its_node_and_compiles_nothing(
    compiled: dict[str, dict[str, Any]], labelled: dict[str, str], image: str, kubectl: Kubectl
) -> None:
    assert {target: said["built"] for target, said in compiled.items()} == dict.fromkeys(TARGETS, True)
    sent: list[int] = []
    for number, (node, target) in enumerate(list(labelled.items())[:2]):
        name = f"score-{number}"
        kubectl.apply(score_job(name, image=image, node=node, target=target))
        succeeded(kubectl, name, seconds=300)
        (log,) = logs_of(kubectl, name)
        line = json.loads(log.strip().splitlines()[-1])
        print(json.dumps(line))
        assert line["target"] == target
        assert line["key"] == compiled[target]["manifest"]["key"]
        assert line["compiled_here"] is False
        assert line["images"] > 0
        sent.append(operations.payload_bytes_sent(bucket=BUCKET))
    print(json.dumps({"sent_by_the_source_after_each_job": sent}))
    assert sent[1] - sent[0] < 16384  # listings; the artifacts are 4 MB


def test_a_node_with_a_third_target_says_which_command_to_run(
    compiled: dict[str, dict[str, Any]], labelled: dict[str, str], image: str, kubectl: Kubectl
) -> None:
    node, target = list(labelled.items())[2]
    kubectl.apply(score_job("score-third", image=image, node=node, target=target))

    def look() -> str | None:
        job = kubectl.get("trainingjobs.tdcs.io", "score-third", namespace=demo.NAMESPACE) or {}
        return None if condition(job, "Failed").get("status") == "True" else "it has not failed"

    kubectl.wait(look, what="TrainingJob score-third did not fail", seconds=300)
    (log,) = logs_of(kubectl, "score-third")
    assert (
        "This makes one: tdcs-train compile /opt/train/bin/digits_model.py:model --name digits --target x86-64 "
        in log
    )


def test_a_second_compile_job_builds_nothing(
    compiled: dict[str, dict[str, Any]], image: str, kubectl: Kubectl
) -> None:
    job = example("compile-digits.yaml", image)[0]
    job["metadata"]["name"] = "compile-again"
    kubectl.apply(job)
    wait_for_job(kubectl, "compile-again")
    said = json.loads(kubectl("logs", "job/compile-again", "-n", demo.NAMESPACE))
    assert said["built"] is False
    assert said["manifest"] == compiled["x86-64-v2"]["manifest"]
