"""An operator that works in some namespaces only, by Roles there."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controlplane.operator_command import install_rights, remove_cluster_wide, start_operator
from tests.controlplane.operator_world import FILES, SOURCE, TOTAL, World, world
from tests.support.controlplane.audit import service_account
from tests.support.controlplane.fixtures import TEST_LABEL
from tests.support.kube import KubeRequestError, condition

from tdcs.api.base import UNSEEN

__all__ = ["world"]


class Namespaces:
    """Namespaces with names of the test's own, each with its `World`."""

    def __init__(self, home: World) -> None:
        self._home = home
        self.made: list[World] = []

    def make(self, suffix: str) -> World:
        """A namespace, with the nodes and the cache of the test."""
        plane, home = self._home.plane, self._home
        name = f"{home.namespace[-20:].strip('-')}-{suffix}"
        plane.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        plane.wait_for_namespace(name)
        made_world = World(plane=plane, namespace=name, nodes=home.nodes)
        made_world.cluster = home.cluster
        self.made.append(made_world)
        return made_world

    def clear(self) -> None:
        for namespace_world in self.made:
            namespace_world.clear()
            namespace_world.kube.delete("Namespace", namespace_world.namespace)


@pytest.fixture
def namespaces(world: World) -> Iterator[Namespaces]:
    namespaces = Namespaces(world)
    yield namespaces
    namespaces.clear()


def create_job(team: World, *, nodes_of: str) -> None:
    """A TrainingJob of one pod that reads the Dataset, on the nodes of the test."""
    container = {"name": "main", "image": "train:test", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {
        "schedulerName": "default-scheduler",
        "nodeSelector": {TEST_LABEL: nodes_of},
        "containers": [container],
    }
    team.create_job(roles={"Worker": {"replicas": 1, "template": {"spec": pod}}})


@pytest.mark.threat("token-secrets", "token-jobs")
def test_with_roles_in_its_namespaces_alone_the_operator_works_there_and_asks_for_nothing_else(
    world: World, namespaces: Namespaces, tmp_path: Path
) -> None:
    release = f"tdcs-{world.cluster}"
    team, data, unserved_world = (namespaces.make(suffix) for suffix in ("team", "data", "other"))
    unserved_world.create_dataset()  # before there is a policy that refuses it
    create_job(data, nodes_of=world.namespace)  # among the Datasets' namespaces only
    served = {"dataset": [team.namespace, data.namespace], "job": [team.namespace]}
    objects = install_rights(
        world.kube,
        release=release,
        namespace=world.namespace,
        templates=["operator-rbac", "operator", "admission", "admission-operator"],
        values={
            "scope": "Namespaces",
            "datasetNamespaces": served["dataset"],
            "jobNamespaces": served["job"],
        },
        everywhere=True,
    )
    try:
        world.create_cluster()
        begin = world.plane.audit.size
        start_operator(
            world.plane,
            release=release,
            namespace=world.namespace,
            engine={"sources": {SOURCE: FILES}, "workers": dict.fromkeys(world.nodes, 10 * TOTAL)},
            folder=tmp_path,
            name="operator-of-namespaces",
            options=[
                "--scope=namespaces",
                *(
                    f"--{kind}-namespace={name}"
                    for kind, served_names in served.items()
                    for name in served_names
                ),
            ],
        )
        for namespace_world in (team, data):
            namespace_world.create_dataset()
        create_job(team, nodes_of=world.namespace)
        team.wait_ready()
        team.wait(lambda: condition(team.job(), "Succeeded") == "True")
        data_state = functools.partial(data.dataset)
        data.wait(lambda: data_state().get("status", {}).get("conditions"))
        # Where it does not work, nothing becomes of objects, and kubectl apply says so.
        assert unserved_world.dataset()["status"] == UNSEEN
        assert data.job()["status"] == UNSEEN
        with pytest.raises(KubeRequestError, match="TDCS does not work in namespace") as refused:
            unserved_world.create_dataset("second")
        assert "datasetNamespaces" in str(refused.value)
        with pytest.raises(KubeRequestError, match="jobNamespaces"):
            data.create_job("second")
        team.kube.delete("TrainingJob", "train", namespace=team.namespace)
        team.kube.delete("Dataset", "pictures", namespace=team.namespace)
        team.wait(lambda: team.kube.find("Dataset", "pictures", namespace=team.namespace) is None)
        world.kube.delete("CacheCluster", world.cluster, namespace=world.namespace)
        calls = list(
            world.plane.audit.calls(
                user=service_account(f"{release}-operator", namespace=world.namespace), since=begin
            )
        )
        assert calls
        assert not [call for call in calls if call.code in {401, 403, 422}]
        assert {call.namespace for call in calls} <= {"", world.namespace, team.namespace, data.namespace}
        wide = {(call.resource, call.verb) for call in calls if not call.namespace}
        assert {resource for resource, _ in wide} <= {
            "namespaces", "nodes", "pods", "persistentvolumes", "priorityclasses", "runtimeclasses", "servicecidrs",
        }  # fmt: skip
        thief = world.plane.client_as(service_account=f"{release}-operator", namespace=world.namespace)
        for kind in ("Dataset", "Job", "PersistentVolumeClaim", "Secret", "Event"):
            with pytest.raises(KubeRequestError) as error:
                thief.list(kind, namespace=unserved_world.namespace)
            assert error.value.code == 403
    finally:
        remove_cluster_wide(world.plane, objects)
