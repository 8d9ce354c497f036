"""The operator on a real control plane: a dataset is loaded, a job waits for it, runs where it is, and ends."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
from tests.controlplane.operator_process import Gate, RunningOperator
from tests.controlplane.operator_world import FILES, SOURCE, TOTAL, World, message_of, reason_of, world
from tests.support.kube import Object, condition
from tests.support.kube.objects import counts_of
from tests.support.twins.engine import Operation
from tests.support.waiting import eventually

from tdcs.model.cache_engine import Source

__all__ = ["world"]


def test_a_dataset_is_loaded_onto_two_nodes_and_a_job_runs_to_its_end(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    world.create_job()
    with world.operator():
        status = world.wait_ready()["status"]
        held = {node["name"]: node["bytes"] for node in status["copies"][0]["nodes"]}
        assert len(held) == 2
        assert held == {name: sum(world.engine.holdings(worker=name).values()) for name in held}
        assert sum(held.values()) == status["totalBytes"] == status["cachedBytes"] == TOTAL
        assert status["totalFiles"] == len(FILES)
        assert status["cachedRatio"] == 1

        world.wait(lambda: condition(world.job(), "Succeeded") == "True")
        job = world.job()["status"]
        pods = {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in world.kube.list("Pod", namespace=world.namespace)
            if "job-name" in pod["metadata"]["labels"]
        }
        assert {place["pod"]: place["node"] for place in job["placement"]} == pods
        near = [held.get(node, 0) / max(held.values()) for node in pods.values()]
        share = [held.get(node, 0) / TOTAL for node in pods.values()]
        assert job["locality"] == pytest.approx(sum(near) / 2, abs=1e-3)
        assert job["localShare"] == pytest.approx(sum(share) / 2, abs=1e-3)
        assert job["state"] == "Succeeded"
        assert counts_of(job)["succeeded"] == 2
        assert job["completionTime"]


def test_a_cache_cluster_has_its_parts_and_says_how_it_is(world: World) -> None:
    world.create_cluster()
    with world.operator():
        world.wait(
            lambda: (
                condition(world.kube.get("CacheCluster", world.cluster, namespace=world.namespace), "Ready")
                in {"True", "False"}
            )
        )
        cluster = world.kube.get("CacheCluster", world.cluster, namespace=world.namespace)
        assert [worker["node"] for worker in cluster["status"]["workers"]] == world.nodes
        assert cluster["status"]["readyReplicas"] == 3
        assert cluster["status"]["capacityBytes"] == 30 * TOTAL
        sets = {obj["metadata"]["name"] for obj in world.kube.list("StatefulSet", namespace=world.namespace)}
        workers = {name for name in sets if "-worker-" in name}
        assert len(workers) == 3
        assert sets == {f"{world.cluster}-master", *workers}
        world.wait(
            lambda: (
                condition(world.kube.get("CacheCluster", world.cluster, namespace=world.namespace), "Ready")
                == "True"
            )
        )

        def placed() -> set[str | None]:
            labels = {"tdcs.io/component": "worker"}
            pods = world.kube.list("Pod", namespace=world.namespace, labels=labels)
            return {pod["spec"].get("nodeName") for pod in pods}

        world.wait(lambda: placed() == set(world.nodes))

        world.kube.patch("CacheCluster", world.cluster, {"spec": {"replicas": 2}}, namespace=world.namespace)
        world.wait(lambda: len(world.kube.list("StatefulSet", namespace=world.namespace)) == 3)

        def listed() -> list[str]:
            status = world.kube.get("CacheCluster", world.cluster, namespace=world.namespace)["status"]
            return [worker["node"] for worker in status["workers"]]

        world.wait(lambda: len(listed()) == 2)
        world.engine.set_worker(name=listed()[0], live=False)
        world.wait(
            lambda: (
                reason_of(world.kube.get("CacheCluster", world.cluster, namespace=world.namespace), "Ready")
                == "WorkerLost"
            )
        )


def test_a_job_stays_suspended_until_its_data_is_there(world: World) -> None:
    world.create_cluster()
    gate = Gate(world.engine, operation="put", free=16)
    gate.open.clear()
    world.create_job()
    with world.operator():
        world.wait(lambda: reason_of(world.job(), "Admitted") == "DatasetNotFound")
        world.create_dataset()
        world.wait(lambda: 0 < (world.dataset().get("status") or {}).get("cachedBytes", 0) < TOTAL)
        status = world.dataset()["status"]
        assert status["state"] == "Loading"
        assert " of 38.1 MiB on " in message_of(world.dataset(), "Ready")
        # The job's controller hears of the Dataset through its own watch, so it may be a moment behind.
        world.wait(lambda: reason_of(world.job(), "Admitted") == "DatasetLoading")
        job = world.kube.get("Job", "train-worker", namespace=world.namespace)
        assert job["spec"]["suspend"] is True
        assert not world.kube.list("Pod", namespace=world.namespace, labels={"tdcs.io/training-job": "train"})
        gate.open.set()
        world.wait(lambda: condition(world.job(), "Succeeded") == "True")
        assert condition(world.dataset(), "Loaded") == "True"


def test_what_the_pods_get(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    world.create_job(name="mnist")
    with world.operator():
        world.wait(lambda: world.kube.find("Job", "mnist-worker", namespace=world.namespace))
        template = world.kube.get("Job", "mnist-worker", namespace=world.namespace)["spec"]["template"]
        assert template["metadata"]["annotations"]["tdcs.io/datasets"] == (
            f'[{{"dataset":"{world.namespace}/pictures","copy":"0"}}]'
        )
        container = template["spec"]["containers"][0]
        # HostToContainer: so that a FUSE client which the node mounts again reaches the pod.
        assert {
            "name": "data-pictures",
            "mountPath": "/data",
            "readOnly": True,
            "mountPropagation": "HostToContainer",
        } in container["volumeMounts"]
        names = [variable["name"] for variable in container["env"]]
        assert names.index("JOB_COMPLETION_INDEX") < names.index("TF_CONFIG")
        service = world.kube.get("Service", "mnist", namespace=world.namespace)
        assert service["spec"]["clusterIP"] == "None"
        world.wait(lambda: world.kube.find("PersistentVolumeClaim", "pictures", namespace=world.namespace))
        claim = world.kube.get("PersistentVolumeClaim", "pictures", namespace=world.namespace)
        assert claim["spec"]["accessModes"] == ["ReadOnlyMany"]
        world.wait(
            lambda: (
                world.kube.get("PersistentVolumeClaim", "pictures", namespace=world.namespace)["status"][
                    "phase"
                ]
                == "Bound"
            )
        )
        volume = world.kube.get("PersistentVolume", f"tdcs.{world.namespace}.pictures")
        world.wait(lambda: world.dataset()["status"].get("mountPath"))
        assert volume["spec"]["csi"]["driver"] == "csi.tdcs.io"
        assert volume["spec"]["csi"]["volumeAttributes"] == {
            "cluster": world.cluster,
            "path": world.dataset()["status"]["mountPath"],
        }


def test_once_all_is_as_wanted_nothing_is_written(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    world.create_job()
    with world.operator() as operator:
        world.wait_ready()
        world.wait(lambda: condition(world.job(), "Succeeded") == "True")
        world.wait(
            lambda: (
                condition(world.kube.get("CacheCluster", world.cluster, namespace=world.namespace), "Ready")
                == "True"
            )
        )
        eventually(lambda: _quiet(operator), deadline=60, describe=lambda: str(operator.writes[-40:]))
        before = _versions(world)
        written = len(operator.writes)
        # Each of these wakes the controllers: the annotation as a change, the polls by themselves.
        for kind, name in (("Dataset", "pictures"), ("TrainingJob", "train")):
            world.kube.patch(kind, name, {"metadata": {"labels": {"a": "b"}}}, namespace=world.namespace)
        world.kube.patch(
            "CacheCluster", world.cluster, {"metadata": {"labels": {"a": "b"}}}, namespace=world.namespace
        )
        woken = time.monotonic()
        world.wait(lambda: time.monotonic() - woken > QUIET_SECONDS)
        assert operator.writes[written:] == []
        assert _versions(world) == before
    with world.operator() as again:
        world.wait(lambda: _quiet(again))
        assert _versions(world) == before


@pytest.mark.failure_mode("operator-killed-during-load")
def test_a_killed_operator_goes_on_where_it_was(world: World) -> None:
    world.create_cluster()
    # However slow the machine is, each of the three is killed while files wait to be loaded.
    allowed = 0

    async def while_allowed(operation: Operation) -> None:
        nonlocal allowed
        if operation.name == "put":
            while not allowed:  # noqa: ASYNC110  set by another thread
                await asyncio.sleep(0.05)
            allowed -= 1

    world.engine.before = while_allowed
    world.create_dataset()
    world.create_job()
    loaded = 0
    for _ in range(3):
        allowed = len(FILES) // 4
        with world.operator():
            world.wait(partial(_more_than, world, loaded))
        bytes_after_kill = _held(world)
        assert loaded < bytes_after_kill < TOTAL  # what is in the cache is not thrown away by the next start
        loaded = bytes_after_kill
    allowed = 10 * len(FILES)
    with world.operator():
        world.wait_ready()
        world.wait(lambda: condition(world.job(), "Succeeded") == "True")
    assert _held(world) == TOTAL
    # A portion that was on its way when the operator stopped may be read twice, the rest may not.
    assert world.engine.source_bytes_read < 1.5 * TOTAL


def test_a_deleted_dataset_and_job_leave_nothing(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    world.create_job()
    with world.operator():
        world.wait_ready()
        world.wait(lambda: condition(world.job(), "Succeeded") == "True")
        world.kube.delete("TrainingJob", "train", namespace=world.namespace)
        world.wait(lambda: not world.kube.list("Job", namespace=world.namespace))
        world.wait(
            lambda: (
                not world.kube.list(
                    "Pod", namespace=world.namespace, labels={"tdcs.io/training-job": "train"}
                )
            )
        )
        world.wait(lambda: world.kube.find("Service", "train", namespace=world.namespace) is None)
        world.kube.delete("Dataset", "pictures", namespace=world.namespace)
        world.wait(lambda: world.kube.find("Dataset", "pictures", namespace=world.namespace) is None)
    assert not world.kube.list("PersistentVolumeClaim", namespace=world.namespace, labels=_OURS)
    assert world.kube.find("PersistentVolume", f"tdcs.{world.namespace}.pictures") is None
    assert _held(world) == 0


def test_two_datasets_of_one_source_share_its_blocks_until_the_last_is_gone(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    with world.operator():
        world.wait_ready()
        world.create_dataset("twin")
        twin = world.wait_ready("twin")
        assert twin["status"]["mountPath"] == world.dataset()["status"]["mountPath"]
        assert world.engine.source_bytes_read == TOTAL
        world.kube.delete("Dataset", "pictures", namespace=world.namespace)
        world.wait(lambda: world.kube.find("Dataset", "pictures", namespace=world.namespace) is None)
        assert _held(world) == TOTAL
        world.kube.delete("Dataset", "twin", namespace=world.namespace)
        world.wait(lambda: world.kube.find("Dataset", "twin", namespace=world.namespace) is None)
        assert _held(world) == 0


@pytest.mark.failure_mode("worker-lost")
def test_blocks_of_a_lost_worker_are_placed_on_others(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    with world.operator():
        first = nodes_of(world.wait_ready())
        lost = sorted(first)[0]
        world.engine.set_worker(name=lost, live=False)
        world.wait(lambda: lost not in nodes_of(world.dataset()))
        # Blocks whose place changed with the nodes are dropped where they were, once they are at the new one.
        world.wait(lambda: sum(nodes_of(world.wait_ready()).values()) == TOTAL)
        assert len(nodes_of(world.dataset())) == 2


def test_a_changed_placement_moves_the_blocks(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    with world.operator():
        assert len(nodes_of(world.wait_ready())) == 2
        world.change_dataset(placement={"nodeCount": 1})
        world.wait(lambda: list(nodes_of(world.dataset()).values()) == [TOTAL])
        world.change_dataset(placement={"mode": "Replicate", "nodeCount": 3})
        world.wait(lambda: list(nodes_of(world.dataset()).values()) == [TOTAL] * 3)
        assert world.wait_ready()["status"]["physicalBytes"] == 3 * TOTAL
        assert _held(world) == 3 * TOTAL


@pytest.mark.failure_mode("dataset-does-not-fit")
def test_what_does_not_fit_is_left_out_and_jobs_run_all_the_same(world: World) -> None:
    world.create_cluster()
    for node in world.nodes:
        world.engine.set_worker(name=node, capacity=TOTAL // 4)
    world.create_dataset(placement={"mode": "Partition", "nodeCount": 2})
    world.create_job()
    with world.operator():
        world.wait(lambda: reason_of(world.dataset(), "Loaded") == "NotAllFits")
        assert 0.4 < world.dataset()["status"]["cachedRatio"] <= 0.5
        assert world.dataset()["status"]["state"] == "Degraded"
        world.wait(lambda: condition(world.job(), "Succeeded") == "True")


@pytest.mark.failure_mode("job-dataset-missing")
def test_what_is_wrong_with_a_dataset_is_said_and_mended_without_a_restart(world: World) -> None:
    world.create_dataset(source={"uri": SOURCE, "secretRef": {"name": "keys"}})
    with world.operator():
        world.wait(lambda: reason_of(world.dataset(), "Ready") == "CacheClusterNotFound")
        assert world.cluster in message_of(world.dataset(), "Ready")
        world.create_cluster()
        world.wait(lambda: reason_of(world.dataset(), "Ready") == "SecretNotFound")
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "keys", "namespace": world.namespace},
            "stringData": {"accessKeyId": "me"},
        }
        world.kube.create(secret)
        world.wait(lambda: reason_of(world.dataset(), "Ready") == "SecretIncomplete")
        assert "secretAccessKey" in message_of(world.dataset(), "Ready")
        world.kube.patch(
            "Secret", "keys", {"stringData": {"secretAccessKey": "s3cr3t"}}, namespace=world.namespace
        )
        world.wait_ready()
        expected = {"CacheClusterNotFound", "SecretNotFound", "SecretIncomplete", "Mounted", "Loaded"}
        world.wait(lambda: expected <= {event["reason"] for event in events_of(world, "Dataset")})
        assert "s3cr3t" not in str(events_of(world, "Dataset")) + str(world.dataset())


@pytest.mark.failure_mode("child-name-taken")
def test_a_foreign_service_of_the_jobs_name_is_left_alone(world: World) -> None:
    world.create_cluster()
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "train", "namespace": world.namespace},
        "spec": {"ports": [{"port": 80}]},
    }
    service = world.kube.create(foreign)
    world.create_job(datasets=[])
    with world.operator():
        world.wait(lambda: reason_of(world.job(), "Admitted") == "NameTaken")
        assert f"Service {world.namespace}/train exists" in message_of(world.job(), "Admitted")
        service_after = world.kube.get("Service", "train", namespace=world.namespace)
        assert service_after["metadata"]["resourceVersion"] == service["metadata"]["resourceVersion"]


def test_a_suspended_job_has_no_pods_and_a_finished_one_goes_after_its_time(world: World) -> None:
    world.create_cluster()
    world.create_job(datasets=[], runPolicy={"suspend": True, "ttlSecondsAfterFinished": 1})
    with world.operator():
        world.wait(lambda: (world.job().get("status") or {}).get("state") == "Suspended")
        assert not world.kube.list("Pod", namespace=world.namespace, labels={"tdcs.io/training-job": "train"})
        world.kube.patch(
            "TrainingJob", "train", {"spec": {"runPolicy": {"suspend": False}}}, namespace=world.namespace
        )
        world.wait(lambda: world.kube.find("TrainingJob", "train", namespace=world.namespace) is None)


QUIET_SECONDS = 3.0
"""A whole round of polls, and some more."""

_OURS = {"tdcs.io/dataset-name": "pictures"}


def events_of(world: World, kind: str) -> list[Object]:
    """The events about objects of a kind."""
    events = world.kube.list("Event", namespace=world.namespace)
    return [event for event in events if event["involvedObject"]["kind"] == kind]


def nodes_of(dataset: Object) -> dict[str, int]:
    """The nodes of a Dataset's copy, with the bytes that are there."""
    return {node["name"]: node["bytes"] for node in dataset["status"]["copies"][0]["nodes"]}


def _held(world: World) -> int:
    return sum(sum(world.engine.holdings(worker=node).values()) for node in world.nodes)


def _more_than(world: World, held: int) -> bool:
    return _held(world) > held


def _versions(world: World) -> dict[str, str]:
    """Resource versions of everything that the operator writes; labels of a test's own do not count."""
    versions = {}
    for kind in ("Job", "Service", "StatefulSet", "DaemonSet", "ConfigMap", "PersistentVolumeClaim"):
        for obj in world.kube.list(kind, namespace=world.namespace):
            versions[f"{kind}/{obj['metadata']['name']}"] = obj["metadata"]["resourceVersion"]
    for kind, obj in (("Dataset", world.dataset()), ("TrainingJob", world.job())):
        versions[kind] = str(obj["status"])
    return versions


def _quiet(operator: RunningOperator) -> bool:
    """Whether a whole round of polls has gone by without a write."""
    return operator.idle_seconds() > QUIET_SECONDS


@pytest.mark.failure_mode("source-refuses")
def test_a_source_that_refuses_is_reported_once_and_tried_again_without_a_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0
    mount = world.engine.mount

    async def counted(*, path: str, source: Source) -> None:
        nonlocal attempts
        attempts += 1
        await mount(path=path, source=source)

    monkeypatch.setattr(world.engine, "mount", counted)
    world.create_cluster()
    world.create_dataset(source={"uri": "s3://nowhere/at-all"})
    with world.operator():
        world.wait(lambda: reason_of(world.dataset(), "Mounted") == "SourceRefused")
        before, tries = world.dataset(), attempts
        assert before["status"]["state"] == "Failed"
        assert before["status"]["mountPath"]
        labels = {"metadata": {"labels": {"looked-at": "again"}}}
        world.kube.patch("Dataset", "pictures", labels, namespace=world.namespace)
        world.wait(lambda: attempts > tries)
        world.wait(lambda: reason_of(world.dataset(), "Mounted") == "SourceRefused")
        assert world.dataset()["status"] == before["status"]
