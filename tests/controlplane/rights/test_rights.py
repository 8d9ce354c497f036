"""One flow each of operator and extender with exactly the chart's rights: no call is refused.

What a flow does not need is named here, and used by others: a run of all tiers compares (`tests/support/rights`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controlplane.extender_world import SCHEDULER, put_dataset, start_extender
from tests.controlplane.operator_command import (
    allow_secrets,
    granted,
    install_rights,
    remove_cluster_wide,
    start_operator,
)
from tests.controlplane.operator_world import FILES, SOURCE, TOTAL, World, reason_of, world
from tests.support.certificates import TestAuthority
from tests.support.controlplane.audit import Call, service_account
from tests.support.controlplane.fixtures import FakeNodes
from tests.support.kube import Object, condition
from tests.support.kube.objects import gpu_pod
from tests.support.programs.ports import free_ports
from tests.support.rights.exceptions import UNUSED
from tests.support.scheduler_configuration import scheduler_configuration
from tests.support.waiting import eventually

from tdcs.api.names import DEFAULT_IMAGE, fuse_name
from tdcs.trust.roles import Role

__all__ = ["world"]

Right = tuple[str, str, str]

ELSEWHERE: dict[Right, str] = {
    ("", "events", "get"): "an event that is there already is counted up",
    ("", "events", "patch"): "an event that is there already is counted up",
    ("", "persistentvolumes", "list"): "asked when a mount has no Dataset any more: do pods still use it?",
    ("", "events", "list"): "quoted where pods are slow to start, or cannot be made",
    ("apps", "daemonsets", "delete"): "FUSE clients go once, when the remote-read client has come",
    ("", "secrets", "delete"): "certificates of nodes that have left the cache",
}
"""What the operator's flow does not need."""


@pytest.fixture
def release(world: World) -> str:
    return f"tdcs-{world.cluster}"


@pytest.fixture
def operator_rights(world: World, release: str) -> Iterator[list[Object]]:
    """What the chart grants the operator, but for the Secrets, which single namespaces grant; its policies hold."""
    templates = ["operator-rbac", "operator", "admission", "admission-operator"]
    objects = install_rights(
        world.kube,
        release=release,
        namespace=world.namespace,
        templates=templates,
        values={"admissionPolicies.fuseImages": [DEFAULT_IMAGE]},  # for the profile Stock below
    )
    yield [obj for obj in objects if obj["metadata"]["name"] != f"{release}-dataset-secrets"]
    remove_cluster_wide(world.plane, objects)


def used(made: list[Call]) -> set[Right]:
    """The rights that calls needed; none of them was refused."""
    refused = [call for call in made if call.code in {401, 403, 422}]  # 422: by a policy
    assert not refused, refused[:3]
    return {right for call in made for right in call.needed}


def test_the_operator_needs_what_it_is_granted(
    world: World, release: str, operator_rights: list[Object], tmp_path: Path
) -> None:
    kube, namespace = world.kube, world.namespace
    allow_secrets(kube, release=release, namespace=namespace)
    world.create_cluster()
    world.create_dataset()
    for name, policy in (("train", "Running"), ("cleaned", "All")):
        world.create_job(
            name, replicas=1, runPolicy={"ttlSecondsAfterFinished": 3600, "cleanPodPolicy": policy}
        )
    engine = {"sources": {SOURCE: FILES}, "workers": dict.fromkeys(world.nodes, 10 * TOTAL)}
    start_operator(
        world.plane,
        release=release,
        namespace=namespace,
        engine=engine,
        folder=tmp_path,
        name="operator-with-rights",
        options=["--trust=selfSigned", f"--trust-prefix={release}-trust"],
    )
    world.wait_ready()
    names = ("train", "cleaned")
    world.wait(lambda: all(condition(world.job(name), "Succeeded") == "True" for name in names))
    world.wait(lambda: kube.find("Job", "cleaned-worker", namespace=namespace) is None)
    kube.create(
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "Preload",
            "metadata": {"name": "more", "namespace": namespace},
            "spec": {"datasetRef": {"name": "pictures"}, "ttlSecondsAfterFinished": 0},
        }
    )
    world.wait(lambda: kube.find("Preload", "more", namespace=namespace) is None)
    # Waits for a person, and says so twice.
    world.create_job("stuck", datasets=[{"name": "nothing", "mountPath": "/data"}])
    world.wait(lambda: reason_of(world.job("stuck"), "Admitted") == "DatasetNotFound")
    for name in (*names, "stuck"):
        kube.patch(
            "TrainingJob", name, {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 0}}}, namespace=namespace
        )
    world.wait(lambda: kube.find("TrainingJob", "train", namespace=namespace) is None)
    kube.delete("Dataset", "pictures", namespace=namespace)
    world.wait(lambda: kube.find("Dataset", "pictures", namespace=namespace) is None)
    budget = f"{world.cluster}-last-copies"  # it goes with the data, or else with the CacheCluster
    world.wait(lambda: kube.find("PodDisruptionBudget", budget, namespace=namespace) is None)
    kube.patch("CacheCluster", world.cluster, {"spec": {"profile": "Stock"}}, namespace=namespace)
    fuse = fuse_name(cluster=world.cluster)
    world.wait(lambda: kube.find("DaemonSet", fuse, namespace=namespace) is not None)
    kube.delete("CacheCluster", world.cluster, namespace=world.namespace)
    world.wait(lambda: kube.find("CacheCluster", world.cluster, namespace=world.namespace) is None)
    user = service_account(f"{release}-operator", namespace=namespace)
    rights = granted(operator_rights)

    def unneeded() -> list[Right]:
        needed = used(list(world.plane.audit.calls(user=user)))
        return sorted(rights - needed - ELSEWHERE.keys() - {right[1:] for right in UNUSED})

    # The last calls may not be in the log yet; a refused one ends in a failure all the same.
    eventually(lambda: not unneeded(), deadline=30, describe=lambda: str(unneeded()))
    assert ELSEWHERE.keys() <= rights, "no longer granted"


def test_the_extender_needs_what_it_is_granted(
    world: World, release: str, fake_nodes: FakeNodes, tmp_path: Path
) -> None:
    plane, kube, namespace = world.plane, world.kube, world.namespace
    objects = install_rights(
        kube, release=release, namespace=namespace, templates=["scheduler-rbac", "scheduler", "place-by-data"]
    )
    (port,) = free_ports(1)
    certificate = TestAuthority().folder(tmp_path, Role.OPERATOR)
    webhook = [f"--webhook-port={port}", f"--webhook-certificate={certificate}"]
    try:
        account = f"{release}-scheduler"
        rights_file = plane.kubeconfig_as(service_account=account, namespace=namespace)
        extender = start_extender(plane, kubeconfig=rights_file, options=webhook)
        plane.start_scheduler(
            name="kube-scheduler-tdcs", config=scheduler_configuration(extender_url=extender.url)
        )
        put_dataset(extender, kube, namespace=namespace, held={world.nodes[0]: 1000})
        kube.create(
            gpu_pod(
                name="bad",
                namespace=namespace,
                scheduler=SCHEDULER,
                annotations={"tdcs.io/datasets": "pictures"},
            )
        )
        user = service_account(account, namespace=namespace)

        def needed() -> set[Right]:
            return used(list(plane.audit.calls(user=user)))

        eventually(lambda: ("", "events", "create") in needed(), deadline=90, describe=extender.process.tail)
        # One that is started later finds the event of the first, and counts it up.
        plane.remove("extender")
        second = start_extender(plane, kubeconfig=rights_file)
        second.prioritize(kube.get("Pod", "bad", namespace=namespace))
        rights = granted([obj for obj in objects if obj["metadata"]["name"] == f"{release}-extender"])
        eventually(lambda: rights <= needed(), deadline=30, describe=lambda: str(rights - needed()))
    finally:
        remove_cluster_wide(world.plane, objects)
