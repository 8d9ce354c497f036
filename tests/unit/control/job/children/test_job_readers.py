"""Pipelines: workers that read a dataset, workers that read none, and what the operator makes of them."""

import json
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.cli.builders import held, node, printed
from tests.unit.cli.builders import job as job_object
from tests.unit.control.builders import JOB_OBJECT, NOW, dataset, job_spec
from tests.unit.control.jobs import role

from tdcs.api.readers import is_reader, parse_readers
from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.cli.explain.explained_job import JobWorld, explain
from tdcs.control.job import job_children, job_status
from tdcs.control.job.framework_rendezvous import environment
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.observed_job import JobView, Observed
from tdcs.model.job_pods import PodView
from tdcs.model.kube_objects import Object


def pipeline(readers: str = "0-1", *, workers: int = 3, **more: Any) -> TrainingJobSpec:
    """A PyTorch job of which some workers read the dataset."""
    use = {"name": "pictures", "mountPath": "/data", "readers": readers}
    specs = {"Worker": role(workers)}
    return job_spec(**{"framework": "PyTorch", "roles": specs, "datasets": [use], **more})


@pytest.mark.parametrize(
    ("text", "indices"), [("0", {0}), ("0-2", {0, 1, 2}), ("0,4", {0, 4}), ("0-1,3-4", {0, 1, 3, 4})]
)
def test_readers_are_indices_and_ranges(text: str, indices: set[int]) -> None:
    assert parse_readers(text) == indices
    assert {index for index in range(10) if is_reader(text, index)} == indices
    assert is_reader(None, 7)
    assert is_reader(text, None)


@pytest.mark.parametrize(
    ("readers", "more", "sentence"),
    [
        ("", {}, "indices of workers"),
        ("0-", {}, "indices of workers"),
        ("first", {}, "indices of workers"),
        ("2-1", {}, "ends before it begins"),
        ("0-3", {}, "a worker that the job may not have"),
        ("0", {"scheduling": {"mode": "Affinity"}}, "scheduling.mode Extender"),
        ("0-2", {"elastic": {"minReplicas": 2, "maxReplicas": 3}}, "elastic.minReplicas less 1"),
    ],
)
def test_readers_that_cannot_be_are_refused_with_the_reason(
    readers: str, more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        pipeline(readers, **more)


def test_the_pods_annotation_says_which_workers_read() -> None:
    spec = pipeline()
    job = job_children.job(owner=JOB_OBJECT, spec=spec, role="Worker", suspended=False)
    annotations = job["spec"]["template"]["metadata"]["annotations"]
    assert json.loads(annotations["tdcs.io/datasets"]) == [
        {"dataset": "n/pictures", "copy": "0", "readers": "0-1"}
    ]


def pod(index: int, where: str) -> PodView:
    return PodView(
        name=f"train-worker-{index}-x", index=str(index), node=where, phase="Running", ready=True, created=NOW
    )


def test_workers_that_read_nothing_do_not_count_in_locality() -> None:
    observed = Observed(
        spec=pipeline(),
        status=TrainingJobStatus(),
        datasets={"pictures": dataset(nodes={"a": 50, "b": 50})},
        present=frozenset({"pictures"}),
        created=NOW,
        jobs={"Worker": JobView(exists=True, active=3)},
        pods=[pod(0, "a"), pod(1, "b"), pod(2, "far")],
    )
    data = decisions.data(observed, now=NOW)
    decision = decisions.decision_of(observed=observed, data=data)
    status = job_status.status_of(observed, decision=decision, outcome=None, now=NOW)
    assert (status.locality, status.local_share) == (1.0, 0.5)
    assert len(status.placement) == 3


def test_explain_says_of_a_worker_that_it_reads_no_data() -> None:
    def worker(index: int, where: str) -> Object:
        return {
            "metadata": {
                "name": f"train-worker-{index}-x",
                "namespace": "team",
                "labels": {"tdcs.io/role": "worker"},
                "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            },
            "spec": {"nodeName": where, "containers": [{"name": "main"}]},
            "status": {"phase": "Running"},
        }

    obj = job_object(state="Running")
    obj["spec"]["workers"] = 2
    obj["spec"]["datasets"][0]["readers"] = "0"
    pods = [worker(0, "a"), worker(1, "b")]
    explanation = explain(
        JobWorld(job=obj, datasets=held(a=100), own_pods=pods, nodes=[node("a"), node("b")], pods=pods)
    )
    assert "no node holds more" in explanation.pods[0].sentence
    assert "reads no data: any node is as good" in explanation.pods[1].sentence
    assert "reads no data: any node" in printed(explanation)


def test_a_pytorch_job_knows_its_parameter_servers_and_they_get_no_rank() -> None:
    spec = job_spec(framework="PyTorch", roles={"Worker": role(2), "PS": role(2)})

    def variables(role: Any) -> dict[str, str]:
        variables_of = environment(job="train", namespace="n", spec=spec, role=role)
        return {variable["name"]: variable.get("value", "") for variable in variables_of}

    hosts = "train-ps-0.train.n.svc:29500,train-ps-1.train.n.svc:29500"
    assert variables("Worker")["TDCS_PS_HOSTS"] == hosts
    assert variables("Worker")["WORLD_SIZE"] == "2"
    assert variables("PS") == {"TDCS_PS_HOSTS": hosts}


def test_the_servers_of_a_pytorch_job_end_with_worker_0() -> None:
    spec = job_spec(framework="PyTorch", roles={"Worker": role(2), "PS": role(1)}, datasets=[])
    done = PodView(name="w0", index="0", node="a", phase="Succeeded", finished=NOW, created=NOW)
    observed = Observed(
        spec=spec,
        status=TrainingJobStatus(),
        created=NOW,
        jobs={
            "Worker": JobView(exists=True, active=1, first_succeeded=True),
            "PS": JobView(exists=True, active=1),
        },
        pods=[done],
    )
    assert decisions.outcome(observed, now=NOW) is None
    later = "2026-01-01T00:01:00Z"
    outcome = decisions.outcome(observed, now=later)
    assert outcome is not None
    assert outcome.succeeded
