"""The command `tdcs operator` with exactly the rights that the chart grants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controlplane.operator_command import (
    allow_secrets,
    install_rights,
    remove_cluster_wide,
    start_operator,
)
from tests.controlplane.operator_world import (
    FILE_BYTES,
    FILES,
    SOURCE,
    TOTAL,
    World,
    message_of,
    reason_of,
    world,
)
from tests.support.kube import condition
from tests.support.programs.processes import Process

__all__ = ["world"]

SECRET = "s3cr3t-of-the-test"


@pytest.fixture
def release(world: World) -> Iterator[str]:
    """The chart's service account and rights of the operator, installed under a release name of their own."""
    name = f"tdcs-{world.cluster}"
    objects = install_rights(
        world.kube,
        release=name,
        namespace=world.namespace,
        templates=["operator-rbac", "operator"],
        # For its own certificates it may read Secrets of its namespace, where the tests' Datasets are, too.
        values={"trust.enabled": False},
    )
    yield name
    remove_cluster_wide(world.plane, objects)


def start(
    world: World, *, release: str, tmp_path: Path, speed: float = 20_000_000, name: str = "operator"
) -> Process:
    """The operator's process, as its service account, once its health endpoint is green."""
    return start_operator(
        world.plane,
        release=release,
        namespace=world.namespace,
        engine={
            "sources": {SOURCE: FILES},
            "workers": dict.fromkeys(world.nodes, 10 * TOTAL),
            "bytesPerSecond": speed,
        },
        folder=tmp_path,
        name=name,
    )


def test_the_rights_of_the_chart_are_enough_and_secrets_need_one_more(
    world: World, release: str, tmp_path: Path
) -> None:
    kube = world.kube
    world.create_cluster()
    secret = {"accessKeyId": "me", "secretAccessKey": SECRET}
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "keys", "namespace": world.namespace},
            "stringData": secret,
        }
    )
    world.create_dataset(source={"uri": SOURCE, "secretRef": {"name": "keys"}})
    world.create_job(runPolicy={"ttlSecondsAfterFinished": 3600})
    process = start(world, release=release, tmp_path=tmp_path)

    world.wait(lambda: reason_of(world.dataset(), "Ready") == "SecretForbidden")
    message = message_of(world.dataset(), "Ready")
    assert f"Secret {world.namespace}/keys" in message
    assert (
        f"kubectl create rolebinding tdcs-dataset-secrets --clusterrole={release}-dataset-secrets" in message
    )
    assert f"--serviceaccount={world.namespace}:{release}-operator -n {world.namespace}" in message
    allow_secrets(world.kube, release=release, namespace=world.namespace)
    world.wait_ready()
    world.wait(lambda: condition(world.job(), "Succeeded") == "True")
    kube.patch(
        "TrainingJob",
        "train",
        {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 0}}},
        namespace=world.namespace,
    )
    world.wait(lambda: kube.find("TrainingJob", "train", namespace=world.namespace) is None)
    kube.delete("Dataset", "pictures", namespace=world.namespace)
    world.wait(lambda: kube.find("Dataset", "pictures", namespace=world.namespace) is None)

    log = process.log.read_text()
    # What an earlier test left may still be going: in such a namespace nothing can be made.
    refused = [line for line in log.splitlines() if "HTTP 403" in line and "being terminated" not in line]
    assert not refused, refused[:3]
    assert SECRET not in log


@pytest.mark.deep(
    "tests/controlplane/operator/test_operator_command.py::test_a_killed_process_is_followed_by_one_that_ends_the_work"
)
@pytest.mark.failure_mode("leading-operator-killed")
def test_a_process_that_stands_by_takes_over_from_one_that_was_killed(
    world: World, release: str, tmp_path: Path
) -> None:
    allow_secrets(world.kube, release=release, namespace=world.namespace)
    world.create_cluster()
    first = start(world, release=release, tmp_path=tmp_path)
    world.create_dataset()
    world.wait_ready()
    second = start(world, release=release, tmp_path=tmp_path, name="second")
    world.wait(lambda: "is held by" in second.log.read_text())
    first.kill()
    world.create_job()
    world.wait(lambda: condition(world.job(), "Succeeded") == "True")
    assert "is held by this process" in second.log.read_text()


@pytest.mark.failure_mode("operator-killed-during-load")
def test_a_killed_process_is_followed_by_one_that_ends_the_work(
    world: World, release: str, tmp_path: Path
) -> None:
    allow_secrets(world.kube, release=release, namespace=world.namespace)
    world.create_cluster()
    world.create_dataset()
    world.create_job()
    process = start(world, release=release, tmp_path=tmp_path, speed=2 * FILE_BYTES)
    world.wait(lambda: 0 < (world.dataset().get("status") or {}).get("cachedBytes", 0) < TOTAL)
    process.kill()
    path = world.dataset()["status"]["mountPath"]
    process.start()
    world.wait_ready()
    world.wait(lambda: condition(world.job(), "Succeeded") == "True")
    assert world.dataset()["status"]["mountPath"] == path
