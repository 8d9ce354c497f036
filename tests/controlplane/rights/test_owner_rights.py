"""Where the API server checks who may block an owner's deletion, the operator needs its rights to finalizers.

The admission plugin OwnerReferencesPermissionEnforcement, which OpenShift has on by default, asks the authorizer: no
request to finalizers is ever made, so the audit log cannot show that these rights are used.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.controlplane.operator_command import granted, install_rights, remove_cluster_wide
from tests.controlplane.operator_world import World, world
from tests.support.kube import KubeRequestError, Object
from tests.support.rights.exceptions import UNUSED

from tdcs.kube.apply import owner_reference

__all__ = ["world"]

STORAGE = {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Mi"}}}
CHILDREN: dict[str, tuple[str, dict[str, Any]]] = {
    "cacheclusters": ("ConfigMap", {}),
    "datasets": ("PersistentVolumeClaim", {"spec": {**STORAGE, "storageClassName": ""}}),
    "trainingjobs": ("Service", {"spec": {"clusterIP": "None"}}),
}
"""By the plural of the owner's kind, a child that the operator makes."""


def without(roles: list[Object], resource: str) -> list[Object]:
    """The roles without what they say of a resource."""
    return [
        {**role, "rules": [rule for rule in role["rules"] if resource not in rule["resources"]]}
        for role in roles
    ]


def test_every_right_to_finalizers_is_tried_here() -> None:
    assert {right.resource for right in UNUSED} == {f"{plural}/finalizers" for plural in CHILDREN}


@pytest.mark.parametrize("plural", CHILDREN)
def test_a_child_that_blocks_its_owners_deletion_needs_the_right_to_finalizers(
    world: World, plural: str
) -> None:
    kube, namespace = world.kube, world.namespace
    release = f"tdcs-{world.cluster}"
    objects = install_rights(
        kube, release=release, namespace=namespace, templates=["operator-rbac", "operator"]
    )
    try:
        world.create_cluster()
        world.create_dataset()
        world.create_job()
        owner = {
            "cacheclusters": kube.get("CacheCluster", world.cluster, namespace=namespace),
            "datasets": world.dataset(),
            "trainingjobs": world.job(),
        }[plural]
        operator = world.plane.client_as(service_account=f"{release}-operator", namespace=namespace)
        kind, content = CHILDREN[plural]

        def refusal(name: str) -> str:
            metadata = {"name": name, "namespace": namespace, "ownerReferences": [owner_reference(owner)]}
            try:
                operator.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, **content})
            except KubeRequestError as error:
                return str(error)
            kube.delete(kind, name, namespace=namespace)
            return ""

        # The server knows of new roles a moment later.
        world.wait(lambda: not refusal("with-the-right"))
        roles = [obj for obj in objects if "rules" in obj]
        fewer = without(roles, f"{plural}/finalizers")
        assert granted(roles) - granted(fewer) == {("tdcs.io", f"{plural}/finalizers", "update")}
        for role in fewer:
            kube.apply(role)
        world.wait(lambda: "cannot set blockOwnerDeletion" in refusal("without-the-right"))
    finally:
        remove_cluster_wide(world.plane, objects)
