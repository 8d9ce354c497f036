"""TrainingJobs in a queue of the real Kueue, installed by its chart: they wait for quota, are preempted, go on where
their data is, and run to their end without Kueue.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence

import pytest
from tests.support.ecosystem.kueue import KUEUE_API
from tests.support.kube.claimed_pods import CLAIM
from tests.support.report import record

from e2e.ecosystem import managers
from e2e.support.jobs import PRINT_CHECKSUMS, expected_digest, reading_job, succeeded
from e2e.support.pods import NOBODY, UNPRIVILEGED
from tdcs_local.errors import LocalError
from tdcs_local.kind.kubectl import Kubectl, Object, condition

QUEUE = "kueue.x-k8s.io/queue-name"
GPU = "nvidia.com/gpu"
NAME, URGENT = "tdcs-e2e", "tdcs-e2e-urgent"
QUOTA = 4
RETURN_SECONDS = 5
"""From a job's preemption until its quota is free."""

READ_AND_STAY = f"trap 'exit 143' TERM; {PRINT_CHECKSUMS}; until [ -e /tmp/end ]; do sleep 0.2; done"

pytestmark = pytest.mark.usefixtures("kueue_enabled")


def queue_objects(namespace: str) -> list[Object]:
    """A ClusterQueue with four GPUs, its LocalQueue, and a class of priority."""

    def object_of(kind: str, name: str, **more: object) -> Object:
        return {"apiVersion": KUEUE_API, "kind": kind, "metadata": {"name": name}, **more}

    quota = {"name": NAME, "resources": [{"name": GPU, "nominalQuota": QUOTA}]}
    local = object_of("LocalQueue", "gpu", spec={"clusterQueue": NAME})
    return [
        object_of("ResourceFlavor", NAME),
        object_of(
            "ClusterQueue",
            NAME,
            spec={
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{"coveredResources": [GPU], "flavors": [quota]}],
            },
        ),
        {**local, "metadata": {"name": "gpu", "namespace": namespace}},
        object_of("WorkloadPriorityClass", URGENT, value=1000, description=""),
    ]


@pytest.fixture
def queue(kubectl: Kubectl, namespace: str) -> Iterator[None]:
    """The queue admits. It goes before its namespace, whether Kueue is there or not."""
    objects = queue_objects(namespace)

    def applied() -> str | None:
        try:
            kubectl.apply(*objects)
        except LocalError as error:  # the webhook of a manager that just became ready
            return error.why
        return None

    kubectl.wait(applied, what="Kueue takes no queue", seconds=60)
    kubectl.wait(
        lambda: (
            None
            if condition(kubectl.get("clusterqueues.kueue.x-k8s.io", NAME), "Active").get("status") == "True"
            else "not Active"
        ),
        what="the ClusterQueue does not admit",
        seconds=60,
    )
    yield
    release_all(kubectl, objects, namespace=namespace)


def release_all(kubectl: Kubectl, objects: Sequence[Object], *, namespace: str) -> None:
    """Delete jobs and queues, and take the finalizers away, which only a Kueue that runs would."""
    kubectl("delete", "trainingjobs.tdcs.io,jobs.batch", "--all", "-n", namespace, "--wait=false")
    for obj in reversed(objects):
        kind, scope = f"{obj['kind']}s", ("-n", namespace)
        if obj["kind"] == "WorkloadPriorityClass":
            kind = "WorkloadPriorityClasses"
        with contextlib.suppress(LocalError):  # the definitions have gone with Kueue
            name = obj["metadata"]["name"]
            kubectl("delete", f"{kind}.kueue.x-k8s.io", name, *scope, "--ignore-not-found", "--wait=false")
            no_finalizers = '{"metadata": {"finalizers": null}}'
            kubectl("patch", f"{kind}.kueue.x-k8s.io", name, *scope, "--type=merge", "-p", no_finalizers)


def queued(name: str, *, image: str, namespace: str, workers: int, script: str) -> Object:
    """A TrainingJob in the queue, with a GPU for each worker."""
    job = reading_job(name, image=image, workers=workers, script=script, namespace=namespace, dataset=CLAIM)
    job["metadata"]["labels"] = {QUEUE: "gpu"}
    (role,) = job["spec"]["replicaSpecs"]
    spec = role["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 2
    # The queue has a quota of GPUs and of nothing else.
    spec["containers"][0]["resources"] = {"limits": {GPU: "1"}}
    return job


def urgent_job(namespace: str, *, image: str) -> Object:
    """A Job of Kubernetes that takes all GPUs of the quota for three seconds."""
    container = {
        "name": "main",
        "image": image,
        "command": ["sleep", "3"],
        "resources": {"limits": {GPU: str(QUOTA // 2)}},
        "securityContext": UNPRIVILEGED,
    }
    labels = {QUEUE: "gpu", "kueue.x-k8s.io/priority-class": URGENT}
    pod = {"restartPolicy": "Never", "securityContext": NOBODY, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "urgent", "namespace": namespace, "labels": labels},
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": pod}},
    }


class Jobs:
    """The TrainingJobs of a namespace, in Kueue's eyes and ours."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace

    def status(self, name: str) -> Object:
        obj = self._kubectl.get("trainingjobs.tdcs.io", name, namespace=self._namespace) or {}
        status: Object = obj.get("status") or {}
        return status

    def wait_state(self, name: str, state: str, *, seconds: float = 90) -> None:
        """Wait until a job says this."""

        def look() -> str | None:
            status = self.status(name)
            state_now = f"{status.get('state')} ({status.get('reason')}): {status.get('message')}"
            return None if state in {status.get("state"), status.get("reason")} else state_now

        kinds = "trainingjobs.tdcs.io,workloads.kueue.x-k8s.io,pods"
        self._kubectl.wait(
            look,
            what=f"TrainingJob {name} is not {state}",
            seconds=seconds,
            explain=lambda: self._kubectl("describe", kinds, "-n", self._namespace),
        )

    def workload(self, name: str) -> Object:
        obj = self._kubectl.get("workloads.kueue.x-k8s.io", f"trainingjob-{name}", namespace=self._namespace)
        return obj or {}

    def wait_condition(self, name: str, kind: str, status: str) -> None:
        """Wait until Kueue says this of a job's Workload."""
        self._kubectl.wait(
            lambda: None if condition(self.workload(name), kind).get("status") == status else f"not {status}",
            what=f"{kind} of the Workload of {name}",
            seconds=90,
            explain=lambda: str(self.workload(name)),
        )

    def nodes(self, name: str) -> set[str]:
        """Nodes of the pods of a job that run."""
        selector = f"tdcs.io/training-job={name}"
        pods = self._kubectl.list("pods", namespace=self._namespace, selector=selector)
        return {pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running"}

    def end(self, name: str) -> None:
        """Let the pods of a job end well."""
        selector = f"tdcs.io/training-job={name}"
        for pod in self._kubectl.list("pods", namespace=self._namespace, selector=selector):
            name_of_pod = pod["metadata"]["name"]
            self._kubectl("exec", name_of_pod, "-n", self._namespace, "--", "touch", "/tmp/end")

    def sums(self, name: str) -> list[str]:
        """What the pods of a job have printed first."""
        selector = f"tdcs.io/training-job={name}"
        pods = self._kubectl.list("pods", namespace=self._namespace, selector=selector)
        logs = (self._kubectl("logs", pod["metadata"]["name"], "-n", self._namespace) for pod in pods)
        return [log.split()[0] for log in logs]


def test_a_job_waits_for_quota_and_a_preempted_one_goes_on_where_its_data_is(
    queue: None,
    holders: set[str],
    kubectl: Kubectl,
    namespace: str,
    toolbox: str,
    request: pytest.FixtureRequest,
) -> None:
    jobs = Jobs(kubectl, namespace)
    kubectl.apply(queued("patient", image=toolbox, namespace=namespace, workers=3, script=READ_AND_STAY))
    jobs.wait_state("patient", "Running")
    assert jobs.nodes("patient") <= holders
    kubectl.apply(queued("waiting", image=toolbox, namespace=namespace, workers=2, script=PRINT_CHECKSUMS))
    jobs.wait_state("waiting", "WaitsInKueue")
    kubectl.wait(
        lambda: (
            None
            if "insufficient unused quota" in jobs.status("waiting")["message"]
            else jobs.status("waiting")["message"]
        ),
        what="the job that waits does not say for what",
        seconds=30,
    )

    kubectl.apply(urgent_job(namespace, image=toolbox))
    jobs.wait_condition("patient", "Evicted", "True")
    evicted = time.monotonic()
    jobs.wait_condition("patient", "QuotaReserved", "False")
    seconds = time.monotonic() - evicted
    record(request.config, f"quota given back {seconds:.1f} s after the preemption, on nodes")
    assert seconds <= RETURN_SECONDS
    kubectl("wait", "job/urgent", "-n", namespace, "--for=condition=Complete", "--timeout=60s")
    jobs.wait_state("patient", "Running")
    assert jobs.nodes("patient") <= holders
    worker = kubectl.get("jobs.batch", "patient-worker", namespace=namespace) or {}
    # Made suspended, started, suspended, started: each change of a spec counts one.
    assert worker["metadata"]["generation"] == 4

    jobs.end("patient")
    succeeded(kubectl, "patient", namespace=namespace)
    succeeded(kubectl, "waiting", namespace=namespace)
    assert jobs.sums("patient") + jobs.sums("waiting") == [expected_digest()] * 5


def test_without_kueue_a_job_that_runs_goes_on_and_one_that_waits_says_so(
    queue: None, holders: set[str], kubectl: Kubectl, namespace: str, toolbox: str
) -> None:
    """It is the last test with Kueue: what Helm removes with it, the definitions too, stays away."""
    jobs = Jobs(kubectl, namespace)
    kubectl.apply(queued("running", image=toolbox, namespace=namespace, workers=3, script=READ_AND_STAY))
    jobs.wait_state("running", "Running")
    kubectl.apply(queued("waiting", image=toolbox, namespace=namespace, workers=2, script=PRINT_CHECKSUMS))
    jobs.wait_state("waiting", "WaitsInKueue")
    managers.uninstall(kubectl, "kueue")
    jobs.end("running")
    succeeded(kubectl, "running", namespace=namespace)
    assert jobs.sums("running") == [expected_digest()] * 3
    kubectl.wait(
        lambda: (
            None if "there is no Kueue" in jobs.status("waiting")["message"] else str(jobs.status("waiting"))
        ),
        what="the job that waits does not say that there is no Kueue",
        seconds=120,
    )
    assert not jobs.nodes("waiting")
