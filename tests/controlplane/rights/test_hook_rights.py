"""The rights of the chart's hooks are those that their commands use: before upgrade and uninstall, and in `helm test`.

Each command runs as a process with its service account; the API server's audit log says what it asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.controlplane.operator_command import TDCS, granted, install_rights, remove_cluster_wide
from tests.controlplane.operator_world import World, world
from tests.support.controlplane.audit import service_account
from tests.support.kube import Kube, Object
from tests.support.waiting import eventually

__all__ = ["world"]

Right = tuple[str, str, str]


@pytest.fixture
def release(world: World) -> Iterator[str]:
    name = f"tdcs-{world.cluster}"
    yield name
    world.kube.delete_all("TrainingJob", namespace=world.namespace)


def finish_smoke_test(kube: Kube, namespace: str) -> None:
    """Do what the operator would: the job of the smoke test has succeeded."""

    def jobs() -> list[Object]:
        return kube.list("TrainingJob", namespace=namespace)

    eventually(jobs, deadline=60)
    ended = {"type": "Succeeded", "status": "True", "reason": "x", "message": ""}
    ended["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    name = jobs()[0]["metadata"]["name"]
    status = {"status": {"conditions": [ended]}}
    kube.patch("TrainingJob", name, status, namespace=namespace, subresource="status")


def forget_a_definition(kube: Kube) -> None:
    """As before a version that brings a new kind."""
    kube.delete("CustomResourceDefinition", "datachecks.tdcs.io")
    eventually(lambda: kube.find("CustomResourceDefinition", "datachecks.tdcs.io") is None, deadline=60)


@pytest.mark.parametrize(
    ("hook", "template"),
    [
        ("uninstall", "uninstall"),
        ("crd-upgrade", "crd-upgrade"),
        ("smoke-test", "tests/smoke-test"),
    ],
)
def test_a_hook_needs_what_it_is_granted(world: World, release: str, hook: str, template: str) -> None:
    kube, namespace = world.kube, world.namespace
    account = f"{release}-{hook}"
    arguments: dict[str, tuple[list[str], Callable[[], None]]] = {
        "uninstall": (["delete-caches", "--namespace", namespace, world.cluster], world.create_cluster),
        "crd-upgrade": (["crds", "--apply"], lambda: forget_a_definition(kube)),
        "smoke-test": (["smoke-test", f"--namespace={namespace}", "--image=x"], lambda: None),
    }
    words, prepare = arguments[hook]
    objects = install_rights(
        kube,
        release=release,
        namespace=namespace,
        templates=[template],
        values={"cacheCluster.name": world.cluster, "crds.upgrade": True},
    )
    try:
        prepare()
        process = world.plane.run(
            name=account,
            argv=[str(TDCS), *words],
            kubeconfig=world.plane.kubeconfig_as(service_account=account, namespace=namespace),
        )
        if hook == "smoke-test":
            finish_smoke_test(kube, namespace)
        eventually(lambda: not process.alive, deadline=90, describe=process.tail)
        assert "Error" not in process.tail()
        user, rights = service_account(account, namespace=namespace), granted(objects)

        def unneeded() -> set[Right]:
            calls = list(world.plane.audit.calls(user=user))
            refused = [call for call in calls if call.code in {401, 403}]
            assert not refused, refused[:3]
            return rights - {right for call in calls for right in call.needed}

        # The last calls may not be in the log yet.
        eventually(lambda: not unneeded(), deadline=30, describe=lambda: str(unneeded()))
    finally:
        remove_cluster_wide(world.plane, objects)
