"""`tdcs doctor` says what a ServiceAccount lacks that Datasets are read as."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.kube.api_stand_in import ApiStandIn

from tdcs.cli.checkup import Checked, checkup
from tdcs.cli.identity_checkup import AccountAnswer, Accounts
from tdcs.cli.main import main

NOW = "2026-01-01T00:10:00Z"
ROLE = "arn:aws:iam::123456789012:role/reader"
MAY_NOT = (("create", "token"),)
ALLOW = (
    "kubectl create role tdcs-identity-reader --verb=get,create --resource=serviceaccounts,serviceaccounts/token "
    "--resource-name=reader -n team && kubectl create rolebinding tdcs-identity-reader --role=tdcs-identity-reader "
    "--serviceaccount=tdcs-system:tdcs-operator -n team"
)


def account(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "reader", "namespace": "team", "annotations": annotations}}


def dataset(uri: str = "s3://pictures", **status: str) -> dict[str, Any]:
    condition = {"type": "SourceReachable", "status": "False", **status}
    return {
        "metadata": {"name": "pictures", "namespace": "team"},
        "spec": {"source": {"uri": uri, "serviceAccountName": "reader"}},
        "status": {"state": "Pending", "conditions": [condition] if status else []},
    }


def cluster(**identity: str) -> dict[str, Any]:
    rule = {"name": "google", "endpoints": ["https://storage.googleapis.com"], "identity": identity}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "it is",
        "lastTransitionTime": NOW,
    }
    return {
        "metadata": {"name": "default", "namespace": "tdcs-system"},
        "spec": {"replicas": 1, "sources": [rule]},
        "status": {"conditions": [ready]},
    }


def told(
    answer: AccountAnswer, *, of: dict[str, Any] | None = None, clusters: list[dict[str, Any]] | None = None
) -> list[tuple[str, str]]:
    checked = Checked(
        namespace="team",
        now=NOW,
        home={"metadata": {"name": "team"}},
        datasets=[of or dataset()],
        accounts=Accounts(answers={"reader": answer}),
        quotas=[],
        clusters=clusters,
    )
    return [(one.state, one.text) for one in checkup(checked) if one.about == "Namespace"]


AMAZON = {"eks.amazonaws.com/role-arn": ROLE}
AZURE = {
    "azure.workload.identity/client-id": "00000000-0000-0000-0000-000000000001",
    "azure.workload.identity/tenant-id": "00000000-0000-0000-0000-000000000002",
}


@pytest.mark.parametrize(
    ("uri", "annotations", "clusters"),
    [
        ("s3://pictures", AMAZON, []),
        ("az://account/pictures", AZURE, []),
        ("gs://pictures", {}, [cluster(provider="//iam.googleapis.com/projects/1/p")]),
    ],
    ids=["Amazon", "Azure", "Google"],
)
def test_an_account_that_can_have_keys_lacks_nothing(
    uri: str, annotations: dict[str, str], clusters: list[dict[str, Any]]
) -> None:
    found = told(AccountAnswer(account=account(**annotations)), of=dataset(uri), clusters=clusters)
    assert found == [("ok", "1 Dataset, each with its Secret or ServiceAccount; no quota is used up")]


LACKS: dict[str, tuple[AccountAnswer, str, str]] = {
    "the account": (
        AccountAnswer(),
        "s3://pictures",
        (
            "there is no ServiceAccount reader, which Dataset pictures names: kubectl create serviceaccount reader "
            "-n team"
        ),
    ),
    "Amazon's annotation": (
        AccountAnswer(account=account()),
        "s3://pictures",
        (
            "Dataset pictures: ServiceAccount team/reader (spec.source.serviceAccountName) has no annotation "
            "eks.amazonaws.com/role-arn"
        ),
    ),
    "a role": (
        AccountAnswer(account=account(**{"eks.amazonaws.com/role-arn": "reader"})),
        "s3://pictures",
        "has 'reader' as its annotation eks.amazonaws.com/role-arn, and needs the ARN of a role",
    ),
    "Azure's tenant": (
        AccountAnswer(account=account(**{"azure.workload.identity/client-id": "a"})),
        "az://account/pictures",
        "has no annotation azure.workload.identity/tenant-id",
    ),
    "Google's provider": (
        AccountAnswer(account=account()),
        "gs://pictures",
        "name it in spec.sources[].identity.provider of the rule for this store",
    ),
    "the operator's right": (
        AccountAnswer(account=account(**AMAZON), missing_rights=MAY_NOT),
        "s3://pictures",
        f"the operator may not create tokens of ServiceAccount reader, which Dataset pictures names: {ALLOW}",
    ),
    "both rights": (
        AccountAnswer(account=account(**AMAZON), missing_rights=(("get", ""), *MAY_NOT)),
        "s3://pictures",
        "the operator may not read and create tokens of ServiceAccount reader",
    ),
}


@pytest.mark.parametrize("what", LACKS)
def test_what_an_account_lacks_is_named_once_with_what_to_do(what: str) -> None:
    answer, uri, sentence = LACKS[what]
    of = dataset(uri, reason="IdentityForbidden", message="the operator's own words")
    ((state, text),) = told(answer, of=of, clusters=[cluster()])
    assert state == "lacks"
    assert sentence in text


def test_what_only_the_operator_knows_of_an_identity_is_told_in_its_words() -> None:
    of = dataset(reason="IdentityRefused", message="ServiceAccount team/reader is not taken: AccessDenied")
    found = told(AccountAnswer(account=account(**AMAZON)), of=of, clusters=[])
    assert found == [("lacks", "Dataset pictures: ServiceAccount team/reader is not taken: AccessDenied")]


UNKNOWN: dict[str, tuple[AccountAnswer, str, str]] = {
    "the account": (
        AccountAnswer(readable=False),
        "s3://pictures",
        "has its annotations is unknown: you may not get serviceaccounts in namespace team",
    ),
    "the rights": (
        AccountAnswer(account=account(**AMAZON), missing_rights=None),
        "s3://pictures",
        f"localsubjectaccessreviews in namespace team (ClusterRole admin may). This allows it: {ALLOW}",
    ),
    "the rules of the CacheCluster": (
        AccountAnswer(account=account()),
        "gs://pictures",
        "the rules of CacheCluster default are not known; unless they say so: Google's workload identity provider",
    ),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_may_not_be_read_of_an_identity_is_no_fault(what: str) -> None:
    answer, uri, sentence = UNKNOWN[what]
    ((state, text),) = told(answer, of=dataset(uri))
    assert state == "unknown"
    assert sentence in text


def test_the_command_reads_accounts_with_the_users_rights(tmp_path: Path) -> None:
    pod = {
        "metadata": {"name": "tdcs-operator-1", "namespace": "tdcs-system"},
        "spec": {"serviceAccountName": "mine-operator"},
    }
    objects = {"datasets": [dataset()], "serviceaccounts": [account(**AMAZON)], "pods": [pod]}
    with ApiStandIn(objects) as api:
        argv = ["doctor", "-n", "team", "--kubeconfig", str(api.kubeconfig(tmp_path))]
        output = CliRunner().invoke(main, argv).output
    assert "the operator may not read and create tokens of ServiceAccount reader" in output
    assert "--serviceaccount=tdcs-system:mine-operator -n team" in output
