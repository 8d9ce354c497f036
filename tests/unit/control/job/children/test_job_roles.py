"""The roles of a job: the environment of each framework's pods, and whose end is the job's."""

import json
from typing import Any

import pytest
from tests.unit.control.builders import JOB_OBJECT, NOW, job_spec

from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.control.job import job_children
from tdcs.control.job.framework_rendezvous import environment, too_long
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.observed_job import JobView, Observed, job_view
from tdcs.model.job_pods import PodView

LATER = "2026-01-01T00:01:00Z"


def roles(framework: str, *, gpus: int = 1, **more: Any) -> TrainingJobSpec:
    """A job of this framework with so many pods of each role; other keywords are fields of the spec."""
    counts = {name: more.pop(name) for name in ("Worker", "PS", "Chief", "Launcher") if name in more}
    container = {"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    template = {"spec": {"containers": [container]}}
    specs = {name: {"replicas": count, "template": template} for name, count in counts.items()}
    return job_spec(framework=framework, roles=specs, **more)


def environment_of(spec: TrainingJobSpec, role: Role) -> dict[str, str]:
    """The variables of a role's pods; those that kubelet takes from the pod's own index as '<index>'."""
    variables = environment(job="train", namespace="n", spec=spec, role=role)
    return {variable["name"]: variable.get("value", "<index>") for variable in variables}


def test_tensorflow_with_parameter_servers_lists_every_role() -> None:
    spec = roles("TensorFlow", Chief=1, Worker=2, PS=1)
    tf_config = json.loads(environment_of(spec, "PS")["TF_CONFIG"].replace("$(JOB_COMPLETION_INDEX)", "0"))
    assert tf_config == {
        "cluster": {
            "chief": ["train-chief-0.train.n.svc:2222"],
            "worker": ["train-worker-0.train.n.svc:2222", "train-worker-1.train.n.svc:2222"],
            "ps": ["train-ps-0.train.n.svc:2222"],
        },
        "task": {"type": "ps", "index": 0},
    }


def test_pytorch_gets_what_init_process_group_and_torchrun_read() -> None:
    values = environment_of(roles("PyTorch", Worker=3, gpus=4), "Worker")
    assert values == {
        "MASTER_ADDR": "train-worker-0.train.n.svc",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "3",
        "RANK": "<index>",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "<index>",
        "PET_MASTER_ADDR": "train-worker-0.train.n.svc",
        "PET_MASTER_PORT": "29500",
    }


def test_an_elastic_pytorch_job_meets_at_worker_0_and_has_no_fixed_size() -> None:
    spec = roles("PyTorch", Worker=2, elastic={"minReplicas": 1, "maxReplicas": 4})
    values = environment_of(spec, "Worker")
    assert values["PET_NNODES"] == "1:4"
    assert values["PET_RDZV_ENDPOINT"] == "train-worker-0.train.n.svc:29500"
    assert not {"WORLD_SIZE", "RANK", "PET_NODE_RANK"} & values.keys()


def test_horovods_launcher_gets_the_hosts_and_slots() -> None:
    values = environment_of(roles("Horovod", Launcher=1, Worker=2, gpus=2), "Launcher")
    assert values == {
        "TDCS_WORKER_HOSTS": "train-worker-0.train.n.svc:2,train-worker-1.train.n.svc:2",
        "TDCS_WORKER_SLOTS": "4",
    }


def test_every_role_has_a_job_and_only_readers_are_drawn_to_the_data() -> None:
    spec = roles("TensorFlow", Chief=1, Worker=2, PS=3)
    jobs = {
        role: job_children.job(owner=JOB_OBJECT, spec=spec, role=role, suspended=True)
        for role in spec.by_role()
    }
    assert {role: (job["metadata"]["name"], job["spec"]["completions"]) for role, job in jobs.items()} == {
        "Chief": ("train-chief", 1),
        "PS": ("train-ps", 3),
        "Worker": ("train-worker", 2),
    }
    drawn = {
        role
        for role, job in jobs.items()
        if "tdcs.io/datasets" in job["spec"]["template"]["metadata"]["annotations"]
    }
    assert drawn == {"Chief", "Worker"}
    assert all(job["spec"]["template"]["spec"]["volumes"] for job in jobs.values())


def test_evictions_are_no_failures_but_only_where_the_api_lets_us_say_so() -> None:
    spec = job_spec()
    job = job_children.job(owner=JOB_OBJECT, spec=spec, role="Worker", suspended=True)
    assert job["spec"]["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    pod = {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "train"}]}
    again = job_spec(roles={"Worker": {"template": {"spec": pod}}})
    job = job_children.job(owner=JOB_OBJECT, spec=again, role="Worker", suspended=True)
    assert "podFailurePolicy" not in job["spec"]


def test_pods_that_read_nothing_are_labelled_so_that_none_places_them_by_data() -> None:
    spec = roles("TensorFlow", Chief=1, Worker=2, PS=1)
    assert spec.datasets
    labels_by_role = {
        role: job_children.pod_template(owner=JOB_OBJECT, spec=spec, role=role)["metadata"]["labels"]
        for role in spec.by_role()
    }
    labels = {role: role_labels.get("tdcs.io/place-by-data") for role, role_labels in labels_by_role.items()}
    assert labels == {"Chief": None, "Worker": None, "PS": "false"}


def ending(spec: TrainingJobSpec, *, pods: tuple[PodView, ...] = (), now: str = NOW, **jobs: JobView) -> str:
    """How it ended, in a word."""
    views: dict[Role, JobView] = {role: jobs.get(role.lower(), JobView()) for role in spec.by_role()}
    observed = Observed(spec=spec, status=TrainingJobStatus(), jobs=views, pods=pods)
    outcome = decisions.outcome(observed, now=now)
    return "goes on" if outcome is None else "succeeded" if outcome.succeeded else "failed"


DONE = JobView(complete=True)
LOST = JobView(failure="BackoffLimitExceeded: too many")
FIRST = JobView(active=1, succeeded=1, first_succeeded=True)
PS_JOB = roles("TensorFlow", Chief=1, Worker=2, PS=1)
ALL_REDUCE = roles("TensorFlow", Worker=2)
PARALLEL = roles("None", Worker=2)

ENDINGS: dict[str, tuple[str, str]] = {
    "the chief succeeded, servers and workers serve on": (ending(PS_JOB, chief=DONE), "succeeded"),
    "all workers ended but the chief has not": (ending(PS_JOB, worker=DONE), "goes on"),
    "a parameter server is lost for good": (ending(PS_JOB, ps=LOST), "failed"),
    "the chief succeeded although a worker was lost": (ending(PS_JOB, chief=DONE, worker=LOST), "succeeded"),
    "all workers succeeded": (ending(ALL_REDUCE, worker=DONE), "succeeded"),
    "worker 0 succeeded, its pod is gone": (ending(ALL_REDUCE, worker=FIRST), "succeeded"),
    "worker 0 of a job without a framework is one of many": (ending(PARALLEL, worker=FIRST), "goes on"),
    "nothing is to be ended, so all workers count": (
        ending(roles("TensorFlow", Worker=2, runPolicy={"cleanPodPolicy": "None"}), worker=FIRST),
        "goes on",
    ),
    "the launcher succeeded": (ending(roles("Horovod", Launcher=1, Worker=2), launcher=DONE), "succeeded"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_the_job_ends_as_its_deciding_role_does(name: str) -> None:
    actual, expected = ENDINGS[name]
    assert actual == expected


def test_the_other_workers_get_time_to_end_by_themselves() -> None:
    first = PodView(name="w0", role="Worker", index="0", phase="Succeeded", finished=NOW)
    assert ending(ALL_REDUCE, pods=(first,), worker=FIRST) == "goes on"
    assert ending(ALL_REDUCE, pods=(first,), worker=FIRST, now=LATER) == "succeeded"


@pytest.mark.parametrize(
    ("indexes", "first"),
    [("0", True), ("0-2,5", True), ("0,3", True), ("1-3", False), ("10", False), ("", False)],
)
def test_whether_worker_0_succeeded_is_read_from_the_completed_indexes(indexes: str, first: bool) -> None:
    assert job_view({"status": {"completedIndexes": indexes}}).first_succeeded is first


def test_a_limit_that_nobody_asks_for_any_more_is_lifted() -> None:
    limited = job_spec(framework="None", runPolicy={"backoffLimit": 2, "activeDeadlineSeconds": 60})
    job = job_children.job(owner=JOB_OBJECT, spec=limited, role="Worker", suspended=False)
    lifted = {"spec": {"backoffLimit": 6, "activeDeadlineSeconds": None}}
    lasting = job_spec(framework="None")
    assert job_children.changes(live=job, spec=lasting, role="Worker", suspended=False) == lifted
    defaulted = {**job, "spec": {**job["spec"], "backoffLimit": 6, "activeDeadlineSeconds": None}}
    assert job_children.changes(live=defaulted, spec=lasting, role="Worker", suspended=False) == {}


def test_a_list_of_pods_that_no_program_could_be_given_is_refused() -> None:
    many = roles("TensorFlow", Chief=1, Worker=1000, PS=1000)
    refusal = too_long(job="a" * 50, namespace="n" * 63, spec=many)
    value = environment_of(many, "Worker")["TF_CONFIG"]
    assert "the variable TF_CONFIG, which lists every pod of the job, would have" in refusal
    assert "at most 131072" in refusal
    assert too_long(job="train", namespace="n", spec=roles("TensorFlow", Worker=100)) == ""
    assert len(value) < 131072  # with short names it is no trouble
    assert too_long(job="train", namespace="n", spec=many) == ""


def test_only_an_elastic_jobs_size_follows() -> None:
    bounds = {"minReplicas": 1, "maxReplicas": 4}
    job = job_children.job(
        owner=JOB_OBJECT, spec=roles("PyTorch", Worker=2, elastic=bounds), role="Worker", suspended=False
    )
    three = roles("PyTorch", Worker=3, elastic=bounds)
    assert job_children.changes(live=job, spec=three, role="Worker", suspended=False) == {
        "spec": {"completions": 3, "parallelism": 3}
    }
    fixed = roles("PyTorch", Worker=3)
    job = job_children.job(owner=JOB_OBJECT, spec=roles("PyTorch", Worker=2), role="Worker", suspended=False)
    assert job_children.changes(live=job, spec=fixed, role="Worker", suspended=False) == {}
