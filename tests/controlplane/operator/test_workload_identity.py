"""A Dataset that names a ServiceAccount, on a real API server: its tokens, and the rights that they take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controlplane.operator.test_operator_command import release, start
from tests.controlplane.operator_world import SOURCE, World, message_of, reason_of, world
from tests.support.kube import Kube, KubeRequestError, Object
from tests.support.programs.token_service import AMAZON, ROLE, TokenService, published_key, token_service

__all__ = ["release", "world"]

STORE = "http://store.example:9000"
ANNOTATIONS = {"eks.amazonaws.com/role-arn": ROLE}


@pytest.fixture
def service(world: World) -> Iterator[TokenService]:
    """A token service that trusts the account `reader`, by the key with which the API server signs."""
    (key,) = world.kube.signing_keys()["keys"]
    trusts = {ROLE: (f"{world.namespace}:reader", AMAZON)}
    with token_service(published_key(key), trusts=trusts) as running:
        yield running


def create_account(kube: Kube, name: str, *, namespace: str) -> None:
    metadata = {"name": name, "namespace": namespace, "annotations": ANNOTATIONS}
    kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


def allow(world: World, account: str, *, release: str) -> None:
    """What the message says, and docs/how-to/secrets.md."""
    group = "rbac.authorization.k8s.io"
    place = {"name": f"tdcs-identity-{account}", "namespace": world.namespace}
    rule = {"apiGroups": [""], "resourceNames": [account]}
    world.kube.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": place,
            "rules": [
                {**rule, "resources": ["serviceaccounts"], "verbs": ["get"]},
                {**rule, "resources": ["serviceaccounts/token"], "verbs": ["create"]},
            ],
        }
    )
    operator = {"kind": "ServiceAccount", "name": f"{release}-operator", "namespace": world.namespace}
    world.kube.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": place,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": place["name"]},
            "subjects": [operator],
        }
    )


def dataset(world: World, name: str, account: str) -> Object:
    options = {"endpoint": STORE}
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {
            "cacheClusterRef": {"name": world.cluster},
            "placement": {"mode": "Partition", "nodeCount": 2},
            "source": {"uri": SOURCE, "options": options, "serviceAccountName": account},
        },
    }


@pytest.mark.threat("foreign-account")
def test_tokens_are_had_of_the_account_that_the_namespace_grants_and_of_no_other(
    world: World, release: str, service: TokenService, tmp_path: Path
) -> None:
    kube, space = world.kube, world.namespace
    rule = {"name": "store", "endpoints": [STORE], "identity": {"endpoint": service.endpoint}}
    world.create_cluster(sources=[rule])
    for account in ("reader", "other"):
        create_account(kube, account, namespace=space)
    for account in ("reader", "other"):
        kube.create(dataset(world, f"as-{account}", account))
    process = start(world, release=release, tmp_path=tmp_path)

    def found(name: str) -> Object:
        return kube.get("Dataset", name, namespace=space)

    world.wait(lambda: reason_of(found("as-reader"), "Ready") == "IdentityForbidden")
    message = message_of(found("as-reader"), "Ready")
    assert "--resource=serviceaccounts,serviceaccounts/token --resource-name=reader" in message
    assert f"--serviceaccount={space}:{release}-operator -n {space}" in message

    allow(world, "reader", release=release)
    world.wait(lambda: reason_of(found("as-reader"), "Ready") == "Ready" or bool(service.given))
    assert reason_of(found("as-other"), "Ready") == "IdentityForbidden"
    ((_, form), *_) = service.asked
    assert form["RoleSessionName"] == f"tdcs-{space}-reader"[:64]
    world.wait(lambda: found("as-reader")["status"]["state"] == "Ready")
    assert reason_of(found("as-other"), "Ready") == "IdentityForbidden"

    # The namespace takes the right back: nothing new is read.
    kube.delete("RoleBinding", "tdcs-identity-reader", namespace=space)
    kube.patch(
        "Dataset", "as-reader", {"metadata": {"annotations": {"tdcs.io/refresh": "1"}}}, namespace=space
    )
    world.wait(lambda: reason_of(found("as-reader"), "SourceReachable") == "IdentityForbidden")
    log = process.log.read_text()
    for secret in (form["WebIdentityToken"], *service.given[0].values()):
        assert secret not in log
        assert secret not in json.dumps(found("as-reader"))


@pytest.mark.threat("foreign-account")
@pytest.mark.parametrize(
    "name", ["other/reader", "../other/serviceaccounts/reader", "Reader", "reader?x", ""]
)
def test_apply_refuses_what_is_no_name_of_an_account_of_the_namespace(world: World, name: str) -> None:
    with pytest.raises(KubeRequestError, match="serviceAccountName"):
        world.kube.create(dataset(world, "refused", name))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"secretRef": {"name": "keys"}}, "either with the keys of secretRef or as serviceAccountName"),
        ({"uri": "https://web.example/x", "options": {}}, "other sources know no ServiceAccounts"),
        (
            {"uri": "gs://pictures", "options": {"asOf": "2026-01-01T00:00:00Z"}},
            "asOf is an option of s3 sources",
        ),
        ({"options": {"asOf": "yesterday"}}, "must be a day that there is"),
        ({"options": {"asOf": "2026-02-30T00:00:00Z"}}, "must be a day that there is"),
    ],
)
def test_apply_refuses_what_cannot_work(world: World, source: Object, said: str) -> None:
    thing = dataset(world, "refused", "reader")
    thing["spec"]["source"] |= source
    with pytest.raises(KubeRequestError, match=said):
        world.kube.create(thing)
