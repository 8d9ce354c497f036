"""Workloads of Kueue start when their data is there: the operator with Kueue's own definitions, on a real API server.

Kueue's manager does not run here: the test reserves quota as it does, by a write to the Workload's status. The
definitions come with Kueue's Go module, from Go's module cache, and with TDCS_ECOSYSTEM=1 (`make ecosystem`) they are
fetched; without them the test is skipped.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controlplane.operator_command import (
    allow_secrets,
    granted,
    install_rights,
    remove_cluster_wide,
    start_operator,
)
from tests.controlplane.operator_world import FILES, SOURCE, TOTAL, World, world
from tests.support.controlplane.audit import service_account
from tests.support.controlplane.fixtures import TEST_LABEL
from tests.support.ecosystem.kueue import KUEUE_API, kueue_definitions
from tests.support.kube import KubeRequestError, Object, condition
from tests.support.waiting import eventually

__all__ = ["world"]

API_VERSION = KUEUE_API


@pytest.fixture
def release(world: World) -> str:
    return f"tdcs-{world.cluster}"


@pytest.fixture
def rights(world: World, release: str) -> Iterator[list[Object]]:
    """Kueue's kinds, and what the chart grants the operator there, with its default policies."""
    world.kube.install_crds(kueue_definitions())
    objects = install_rights(
        world.kube,
        release=release,
        namespace=world.namespace,
        templates=["operator-rbac", "operator", "kueue", "admission", "admission-operator"],
        values={"kueue.enabled": True},
    )
    yield objects
    remove_cluster_wide(world.plane, objects)
    for kind, name in (
        ("AdmissionCheck", world.cluster),
        ("DataCheck", world.cluster),
        ("WorkloadPriorityClass", world.cluster),
        ("ResourceFlavor", f"{world.cluster}-old"),
        ("ResourceFlavor", f"{world.cluster}-new"),
    ):
        world.kube.delete(kind, name)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def put_check(world: World, **spec: object) -> None:
    """An AdmissionCheck for data, with its DataCheck."""
    reference = {"apiGroup": "tdcs.io", "kind": "DataCheck", "name": world.cluster}
    world.kube.create(
        {
            "apiVersion": API_VERSION,
            "kind": "AdmissionCheck",
            "metadata": {"name": world.cluster},
            "spec": {"controllerName": "tdcs.io/data", "parameters": reference},
        }
    )
    world.wait(lambda: active(world) == "False")  # there are no parameters yet
    world.kube.create(
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "DataCheck",
            "metadata": {"name": world.cluster},
            "spec": spec,
        }
    )
    world.wait(lambda: active(world) == "True")


def active(world: World) -> str | None:
    return condition(world.kube.get("AdmissionCheck", world.cluster), "Active")


def put_workload(world: World, name: str, *, claim: str) -> None:
    """A Workload as Kueue makes it for a Job that mounts a claim, and waits for quota."""
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "train"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}],
    }
    world.kube.create(
        {
            "apiVersion": API_VERSION,
            "kind": "Workload",
            "metadata": {"name": name, "namespace": world.namespace},
            "spec": {
                "queueName": "gpu",
                "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}],
            },
        }
    )
    wait = {"name": world.cluster, "state": "Pending", "message": "", "lastTransitionTime": now()}
    patch_status(world, name, {"admissionChecks": [wait]})


def reserve(world: World, name: str) -> None:
    """What Kueue's scheduler does: the Workload has quota, and its checks may answer."""
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": now(),
    }
    patch_status(world, name, {"conditions": [reserved]})


def patch_status(world: World, name: str, status: Object) -> None:
    world.kube.patch("Workload", name, {"status": status}, namespace=world.namespace, subresource="status")


def state(world: World, name: str) -> Object:
    status = world.kube.get("Workload", name, namespace=world.namespace)["status"]
    check_state: Object = next(check for check in status["admissionChecks"] if check["name"] == world.cluster)
    return check_state


def quota(world: World, name: str) -> Object:
    """The condition of a Workload about its quota."""
    status = world.kube.get("Workload", name, namespace=world.namespace)["status"]
    quota_condition: Object = next(cond for cond in status["conditions"] if cond["type"] == "QuotaReserved")
    return quota_condition


def admit(world: World, name: str, *, flavor: str) -> None:
    """What Kueue's scheduler does once all checks are ready: every pod set has a flavor."""
    workload = world.kube.get("Workload", name, namespace=world.namespace)
    sets = [
        {"name": pod_set["name"], "count": pod_set["count"], "flavors": {"nvidia.com/gpu": flavor}}
        for pod_set in workload["spec"]["podSets"]
    ]
    statuses = {"QuotaReserved": "True", "Admitted": "True", "Evicted": "False"}
    put_conditions(world, name, statuses, admission={"clusterQueue": "q", "podSetAssignments": sets})


def put_conditions(world: World, name: str, wanted: dict[str, str], **status: object) -> None:
    """Change conditions of a Workload, and leave the others."""
    live = world.kube.get("Workload", name, namespace=world.namespace)
    conditions = {
        condition["type"]: condition for condition in (live.get("status") or {}).get("conditions") or ()
    }
    new_conditions = {
        kind: {"type": kind, "status": value, "reason": "Test", "message": "", "lastTransitionTime": now()}
        for kind, value in wanted.items()
    }
    patch_status(world, name, {"conditions": list((conditions | new_conditions).values()), **status})


def is_true(world: World, name: str, kind: str) -> bool:
    return condition(world.kube.get("Workload", name, namespace=world.namespace), kind) == "True"


def preempted_and_admitted_again(world: World) -> None:
    """A TrainingJob in a queue: admitted where no node is, evicted, and admitted again where nodes are."""
    kube, name = world.kube, "trainingjob-queued"
    labels = {"old": {"no": "node"}, "new": {TEST_LABEL: world.namespace}}
    for flavor, nodes in labels.items():
        kube.create(
            {
                "apiVersion": API_VERSION,
                "kind": "ResourceFlavor",
                "metadata": {"name": f"{world.cluster}-{flavor}"},
                "spec": {"nodeLabels": nodes},
            }
        )
    kube.create(
        {
            "apiVersion": API_VERSION,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": world.cluster},
            "value": 70,
            "description": "",
        }
    )
    queue = {"kueue.x-k8s.io/queue-name": "gpu", "kueue.x-k8s.io/priority-class": world.cluster}
    world.create_job(
        "queued",
        labels=queue,
        framework="PyTorch",
        elastic={"minReplicas": 1, "maxReplicas": 2},
        runPolicy={"suspend": True},
    )

    def is_active() -> object:
        workload = kube.find("Workload", name, namespace=world.namespace) or {"spec": {}}
        return workload["spec"].get("active")

    world.wait(lambda: is_active() is False)
    kube.patch(
        "TrainingJob", "queued", {"spec": {"runPolicy": {"suspend": False}}}, namespace=world.namespace
    )
    world.wait(lambda: is_active() is True)
    workload = kube.get("Workload", name, namespace=world.namespace)
    assert workload["spec"]["priority"] == 70
    assert [(pod_set["name"], pod_set["count"]) for pod_set in workload["spec"]["podSets"]] == [("worker", 2)]

    def template() -> Object:
        job_spec: Object = kube.get("Job", "queued-worker", namespace=world.namespace)["spec"]
        return job_spec

    world.wait(lambda: world.job("queued")["status"].get("reason") == "WaitsInKueue")
    assert template()["suspend"] is True
    admit(world, name, flavor=f"{world.cluster}-old")
    world.wait(lambda: not template()["suspend"])
    assert template()["template"]["spec"]["nodeSelector"]["no"] == "node"
    selector = {"tdcs.io/training-job": "queued"}
    world.wait(lambda: len(kube.list("Pod", namespace=world.namespace, labels=selector)) == 2)
    # It runs by the quota of this queue, and stays in it.
    for queue_name in (None, "other"):
        change = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue_name}}}
        with pytest.raises(KubeRequestError, match="runs by the quota of LocalQueue gpu, and stays in it"):
            kube.patch("TrainingJob", "queued", change, namespace=world.namespace)
    put_conditions(world, name, {"Evicted": "True"})
    world.wait(lambda: not is_true(world, name, "QuotaReserved"))
    assert template()["suspend"] is True
    assert "admission" not in kube.get("Workload", name, namespace=world.namespace)["status"]
    assert is_true(world, name, "Requeued")
    assert not kube.list("Pod", namespace=world.namespace, labels=selector)
    admit(world, name, flavor=f"{world.cluster}-new")
    world.wait(lambda: world.job("queued")["status"].get("state") == "Succeeded")
    assert "no" not in template()["template"]["spec"]["nodeSelector"]
    world.wait(lambda: is_true(world, name, "Finished"))


def left_its_queue(world: World) -> None:
    """A TrainingJob whose label of a queue is taken away: its Workload goes, with what it would hold."""
    world.create_job("leaves", labels={"kueue.x-k8s.io/queue-name": "gpu"}, framework="None")
    name = "trainingjob-leaves"
    world.wait(lambda: world.kube.find("Workload", name, namespace=world.namespace) is not None)
    without = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}}
    world.kube.patch("TrainingJob", "leaves", without, namespace=world.namespace)
    world.wait(lambda: world.kube.find("Workload", name, namespace=world.namespace) is None)


def test_a_workload_starts_with_its_data_and_waits_without_quota_until_it_is_there(
    world: World, release: str, rights: list[Object], tmp_path: Path
) -> None:
    kube, namespace = world.kube, world.namespace
    allow_secrets(kube, release=release, namespace=namespace)
    world.create_cluster()
    engine = {
        "sources": {SOURCE: FILES, "s3://pictures/cold": FILES},
        "workers": dict.fromkeys(world.nodes, 10 * TOTAL),
    }
    operator = start_operator(
        world.plane,
        release=release,
        namespace=namespace,
        engine=engine,
        folder=tmp_path,
        name="operator-with-kueue",
        options=["--kueue"],
    )
    put_check(world, holdQuota="2s", lookAhead=2)
    world.create_dataset()
    later = "2035-01-01T00:00:00Z"
    world.create_dataset("cold", preload={"startTime": later}, source={"uri": "s3://pictures/cold"})
    world.wait_ready()
    world.wait(lambda: condition(world.dataset("cold"), "Mounted") == "True")

    put_workload(world, "warm", claim="pictures")
    reserve(world, "warm")
    world.wait(lambda: state(world, "warm")["state"] == "Ready")

    # It had quota at once, and nothing says how fast its data comes: it gives its quota back after two seconds. Then it
    # waits as others do, and its data is loaded.
    put_workload(world, "cold", claim="cold")
    reserve(world, "cold")
    world.wait(lambda: quota(world, "cold")["reason"] == "OnHold")
    assert quota(world, "cold")["status"] == "False"
    world.wait(lambda: kube.find("Preload", "ahead-cold", namespace=namespace) is not None)
    world.wait(lambda: world.dataset("cold")["status"].get("loadedRatio") == 1.0)
    world.wait(lambda: quota(world, "cold")["reason"] == "Pending")
    assert state(world, "cold")["state"] == "Pending"
    reserve(world, "cold")
    world.wait(lambda: state(world, "cold")["state"] == "Ready")

    preempted_and_admitted_again(world)
    left_its_queue(world)

    user = service_account(f"{release}-operator", namespace=namespace)
    rights_of_role = granted(
        [obj for obj in rights if obj["metadata"]["name"] == f"{release}-operator-kueue"]
    )

    def unneeded() -> list[tuple[str, str, str]]:
        calls = list(world.plane.audit.calls(user=user))
        refused = [call for call in calls if call.code in {401, 403}]
        assert not refused, refused[:3]
        return sorted(rights_of_role - {right for call in calls for right in call.needed})

    eventually(lambda: not unneeded(), deadline=30, describe=lambda: f"{unneeded()}\n{operator.tail()}")
