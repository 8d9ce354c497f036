"""Another tenant's source by its sharing, or as its ServiceAccount: what nobody gave, or took back, gives nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.programs.token_service import AMAZON, ROLE, TokenService, token_service

from e2e.attacks.conftest import BUCKET, SYSTEM, VICTIM, World, dataset
from e2e.attacks.test_sources import gone
from e2e.support.host import host_of, signer
from e2e.support.pods import finished, pod
from tdcs.api import names
from tdcs_local.kind.kubectl import Object
from tdcs_local.store import datasets, operations

STORE = "http://store.identity.example"
NOWHERE = "e2e-redirects"
"""A cache without nodes: whether a Dataset may read its source is decided before."""


def share(world: World, *grants: Object) -> None:
    """The victim shares its Dataset in this way, and in no other."""
    patch = json.dumps({"spec": {"sharedWith": list(grants)}})
    world.kubectl("patch", "datasets.tdcs.io", VICTIM, "-n", world.victim, "--type=merge", "-p", patch)


def reference(world: World, name: str, **spec: Any) -> Object:
    """The tenant's Dataset of the victim's source."""
    thing = dataset(name, namespace=world.tenant.namespace, uri="", **spec)
    thing["spec"]["source"] = {"datasetRef": {"namespace": world.victim, "name": VICTIM}}
    return thing


@pytest.fixture
def paths(world: World) -> Iterator[list[str]]:
    """The files of the victim's Dataset, which is ready. What it shares is taken back in the end."""
    datasets.wait_ready(world.kubectl, VICTIM, namespace=world.victim)
    yield sorted(str(file["path"]) for file in operations.manifest(BUCKET)["files"])
    share(world)


@pytest.mark.threat("forged-grant")
def test_a_grant_in_a_status_or_an_annotation_grants_nothing(world: World, paths: list[str]) -> None:
    grant = {"sharedWith": [{"namespaces": [world.tenant.namespace]}]}
    victim = (world.kubectl.get("datasets.tdcs.io", VICTIM, namespace=world.victim) or {})["status"]
    thing = reference(world, "forged-grant")
    thing["metadata"]["annotations"] = {"tdcs.io/shared-with": world.tenant.namespace}
    world.tenant.create(thing)
    forged = {
        "status": {"mountPath": victim["mountPath"], "claimName": "forged-grant", "state": "Ready", **grant}
    }
    refused = world.tenant.refused(
        *("patch", "datasets.tdcs.io", "forged-grant", "--subresource=status", "--type=merge"),
        *("-p", json.dumps(forged)),
    )
    assert "only TDCS's operator writes the status" in refused
    message = world.tenant.until("forged-grant", reasons=("NotShared",))
    assert VICTIM in message
    gone(world, "forged-grant")
    assert "claimName" not in world.tenant.dataset("forged-grant")["status"]


@pytest.mark.threat("forged-grant", "outside-the-grant")
def test_what_was_granted_is_all_that_is_read_and_nothing_once_it_is_taken_back(
    world: World, paths: list[str], toolbox: str
) -> None:
    share(world, {"namespaces": [world.tenant.namespace], "paths": [paths[0]]})
    world.tenant.create(reference(world, "granted", preload={"paths": [paths[1], paths[0]]}))
    world.tenant.ready("granted")
    status = world.tenant.dataset("granted")["status"]
    assert status["totalFiles"] == 1
    withheld = " ".join(f"'../data/{path}'" for path in paths[1:])
    script = (
        f"cd /data; find . -type f; for file in {withheld}; do cat $file && echo read $file; done; echo tried"
    )
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "granted"}}]
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]}
    namespace = world.tenant.namespace
    world.tenant.create(
        pod("curious", image=toolbox, script=script, namespace=namespace, container=mounts, volumes=volumes)
    )
    printed = finished(world.kubectl, "curious", namespace).splitlines()
    assert f"./{paths[0]}" in printed
    assert not [line for line in printed for path in paths[1:] if line == f"./{path}"]
    assert "tried" in printed
    assert not [line for line in printed if line.startswith("read ")]
    world.tenant("delete", "pod", "curious", "--wait=true")

    share(world)
    world.tenant.until("granted", reasons=("NotShared",))
    gone(world, "granted")
    theirs = world.kubectl.get("datasets.tdcs.io", VICTIM, namespace=world.victim) or {}
    assert theirs["status"]["totalFiles"] == len(paths)


@pytest.fixture
def service(world: World) -> Iterator[TokenService]:
    """A token service that trusts the victim's account, and a cache whose rule names it."""
    trusts = {ROLE: (f"{world.victim}:reader", AMAZON)}
    with token_service(signer(world.kubectl), trusts=trusts, address=host_of(world.node.name)) as running:
        annotations = {"eks.amazonaws.com/role-arn": ROLE}
        accounts: list[Object] = [
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "reader", "namespace": namespace, "annotations": annotations},
            }
            for namespace in (world.victim, world.tenant.namespace)
        ]
        rule = {"name": "identity", "endpoints": [STORE], "identity": {"endpoint": running.endpoint}}
        cluster = {
            "apiVersion": names.API_VERSION,
            "kind": "CacheCluster",
            "metadata": {"name": NOWHERE, "namespace": SYSTEM},
            "spec": {
                "engine": "Native",
                "nodeSelector": {"kubernetes.io/hostname": "nowhere"},
                "storage": {"tiers": [{"medium": "SSD", "capacity": "64Mi"}]},
                "sources": [rule],
            },
        }
        world.kubectl.apply(*accounts, *allowed(world.victim), cluster)
        try:
            yield running
        finally:
            for name in ("as-another", "redirected-token"):
                world.kubectl.delete("datasets.tdcs.io", name, namespace=world.tenant.namespace)
            world.kubectl.delete("cacheclusters.tdcs.io", NOWHERE, namespace=SYSTEM)


def allowed(namespace: str) -> list[Object]:
    """The right of the operator to tokens of the account of a namespace."""
    group, place = "rbac.authorization.k8s.io", {"name": "reader", "namespace": namespace}
    reader = {"apiGroups": [""], "resourceNames": ["reader"]}
    operator = {"kind": "ServiceAccount", "name": names.OPERATOR_ACCOUNT, "namespace": SYSTEM}
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": place,
            "rules": [
                {**reader, "resources": ["serviceaccounts"], "verbs": ["get"]},
                {**reader, "resources": ["serviceaccounts/token"], "verbs": ["create"]},
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": place,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
            "subjects": [operator],
        },
    ]


def as_account(world: World, name: str, account: str) -> Object:
    thing = dataset(
        name, namespace=world.tenant.namespace, uri="s3://pictures/", cacheClusterRef={"name": NOWHERE}
    )
    thing["spec"]["source"] |= {"options": {"endpoint": STORE}, "serviceAccountName": account}
    return thing


@pytest.mark.threat("foreign-account")
def test_no_tenant_reads_as_another_ones_account(world: World, service: TokenService) -> None:
    for name in (f"{world.victim}/reader", f"../{world.victim}/serviceaccounts/reader"):
        refusal = world.tenant.refused_object(as_account(world, "as-another", name))
        assert "must be a ServiceAccount of the Dataset's own namespace" in refusal

    world.tenant.create(as_account(world, "as-another", "reader"))
    refusal = world.tenant.until("as-another", reasons=("IdentityForbidden",))
    assert f"ServiceAccount {world.tenant.namespace}/reader" in refusal
    assert service.asked == []

    # With the right to tokens of the tenant's own account: it is another one to the service.
    world.kubectl.apply(*allowed(world.tenant.namespace))
    refusal = world.tenant.until("as-another", reasons=("IdentityRefused",))
    assert f"system:serviceaccount:{world.tenant.namespace}:reader is not trusted" in refusal
    assert service.given == []


@pytest.mark.threat("token-redirect")
def test_a_token_service_that_redirects_has_no_token_shown_elsewhere(
    world: World, service: TokenService
) -> None:
    with token_service(service.key, trusts=service.trusts, address=host_of(world.node.name)) as elsewhere:
        service.failure = (307, f"{elsewhere.endpoint}/")
        world.kubectl.apply(*allowed(world.tenant.namespace))
        world.tenant.create(as_account(world, "redirected-token", "reader"))
        message = world.tenant.until("redirected-token", reasons=("IdentityRefused",))
        assert "no token is shown to another host" in message
        assert elsewhere.asked == []
