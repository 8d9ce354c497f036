"""The real Kueue, and jobs of any kind that wait for their data at the AdmissionCheck tdcs.io/data.

Kueue's manager is built by `make ecosystem`; where it is not built the tests are skipped. The test is the kubelet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.controlplane.ecosystem.kueue_world import (
    Queues,
    evictions,
    holds,
    kueue,
    plain,
    unmade_queues,
)
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_process import paced_engine
from tests.controlplane.operator_world import FILES, SOURCE, TOTAL
from tests.support.ecosystem.kueue import KUEUE_API
from tests.support.kube import Object, condition

__all__ = ["jobs", "kueue", "unmade_queues"]

COLD = "s3://pictures/cold"


@pytest.fixture
def check(jobs: JobWorld) -> Iterator[str]:
    """An AdmissionCheck for data; its name."""
    kube, name = jobs.kube, jobs.cluster
    parameters = {"apiGroup": "tdcs.io", "kind": "DataCheck", "name": name}
    kube.create(
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "DataCheck",
            "metadata": {"name": name},
            "spec": {"holdQuota": "2s", "lookAhead": 0},
        }
    )
    kube.create(
        {
            "apiVersion": KUEUE_API,
            "kind": "AdmissionCheck",
            "metadata": {"name": name},
            "spec": {"controllerName": "tdcs.io/data", "parameters": parameters},
        }
    )
    yield name
    kube.patch("AdmissionCheck", name, {"metadata": {"finalizers": None}})
    kube.delete("AdmissionCheck", name)
    kube.delete("DataCheck", name)


@pytest.fixture
def refusal(jobs: JobWorld) -> Iterator[str]:
    """What a policy of the cluster says that lets no Workload of the namespace be put on hold."""
    kube, name, text = jobs.kube, jobs.cluster, "holds are not wanted here"
    held = "object.?status.?conditions.orValue([]).exists(each, each.reason == 'OnHold')"
    rule = {
        "apiGroups": ["kueue.x-k8s.io"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["workloads/status"],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": jobs.namespace}}
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
        "validations": [{"expression": f"!({held})", "message": text}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    for kind, spec in (
        ("ValidatingAdmissionPolicy", policy),
        ("ValidatingAdmissionPolicyBinding", binding),
    ):
        kube.create(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": name},
                "spec": spec,
            }
        )
    yield text
    kube.delete("ValidatingAdmissionPolicyBinding", name)
    kube.delete("ValidatingAdmissionPolicy", name)


def copy_read(pod: Object) -> str:
    """The copy of its one Dataset that a pod's annotation names."""
    (read,) = json.loads(pod["metadata"]["annotations"]["tdcs.io/datasets"])
    return str(read["copy"])


def two_sources(jobs: JobWorld) -> None:
    """A cache that can read two of them."""
    jobs.engine = paced_engine(
        sources={SOURCE: FILES, COLD: FILES}, workers=dict.fromkeys(jobs.nodes, 10 * TOTAL)
    )
    jobs.create_cluster()


def test_jobs_with_warm_data_start_at_once_and_each_reads_a_copy_of_its_own(
    jobs: JobWorld, unmade_queues: Queues, check: str
) -> None:
    two_sources(jobs)
    with jobs.operator(kueue=True):
        unmade_queues.create(checks=[check])
        jobs.create_dataset(placement={"mode": "Partition", "copies": 2, "nodeCount": 1})
        jobs.wait_ready()
        for name in ("first", "second"):
            plain(jobs, name, pods=4, gpus=1, claims=["pictures"])
            jobs.run_pods(name, count=4)
        copies = [{copy_read(pod) for pod in jobs.pods(name)} for name in ("first", "second")]
        assert sorted(map(sorted, copies)) == [["0"], ["1"]]


def create_cold_then_warm(jobs: JobWorld, queues: Queues, *, check: str) -> None:
    """A job without its data, which gets all of the quota, and then one with its data, which needs all of it."""
    queues.create(checks=[check])
    jobs.create_dataset()
    jobs.wait_ready()
    # Nothing loads it until the test says so.
    jobs.create_dataset("cold", source={"uri": COLD}, preload={"startTime": "2035-01-01T00:00:00Z"})
    plain(jobs, "cold", pods=4, gpus=2, claims=["cold"])
    jobs.wait(lambda: holds(queues.workload_of("cold")))
    plain(jobs, "warm", pods=4, gpus=2, claims=["pictures"])


def test_a_job_with_warm_data_passes_a_cold_one_that_came_first_and_gives_its_quota_back(
    jobs: JobWorld, unmade_queues: Queues, check: str
) -> None:
    two_sources(jobs)
    queues = unmade_queues
    with jobs.operator(kueue=True):
        create_cold_then_warm(jobs, queues, check=check)
        jobs.wait(lambda: holds(queues.workload_of("warm")))
        assert not holds(queues.workload_of("cold"))
        jobs.run_pods("warm", count=4)
        assert not jobs.pods("cold")
        for pod in jobs.pods("warm"):
            jobs.end_pod(pod)
        jobs.wait(lambda: queues.used() == 0)
        jobs.kube.patch("DataCheck", check, {"spec": {"lookAhead": 1}})
        jobs.run_pods("cold", count=4)
        # It has given it back without an eviction: it had never started.
        assert condition(queues.workload_of("cold"), "Evicted") is None


def check_of(workload: Object, *, name: str) -> Object:
    """What an AdmissionCheck says of a Workload."""
    state: Object = next(check for check in workload["status"]["admissionChecks"] if check["name"] == name)
    return state


def test_where_a_hold_is_refused_a_warm_job_still_passes_a_cold_one_and_that_runs_with_its_data(
    jobs: JobWorld, unmade_queues: Queues, check: str, refusal: str
) -> None:
    two_sources(jobs)
    queues = unmade_queues
    with jobs.operator(kueue=True):
        create_cold_then_warm(jobs, queues, check=check)
        jobs.wait(lambda: refusal in check_of(queues.workload_of("cold"), name=check)["message"])
        assert check_of(queues.workload_of("cold"), name=check)["state"] == "Retry"
        # Kueue takes its quota back after ten seconds, and queues it behind those that came meanwhile.
        jobs.wait(lambda: holds(queues.workload_of("warm")))
        assert not holds(queues.workload_of("cold"))
        jobs.run_pods("warm", count=4)
        assert not jobs.pods("cold")
        for pod in jobs.pods("warm"):
            jobs.end_pod(pod)
        jobs.wait(lambda: holds(queues.workload_of("cold")))
        jobs.kube.patch("DataCheck", check, {"spec": {"lookAhead": 1}})
        jobs.run_pods("cold", count=4)
        assert evictions(queues.workload_of("cold")) > 0
