"""Which exchange a ServiceAccount's annotations and the administrator's rules stand for."""

from __future__ import annotations

import pytest

from tdcs.api.dataset_source import SourceSpec
from tdcs.api.source_rules import IdentityRule
from tdcs.decide.problem import Refusal
from tdcs.decide.workload_identity import TokenExchange, plan_exchange

ROLE = "arn:aws:iam::123456789012:role/reader"
AMAZON = {"eks.amazonaws.com/role-arn": ROLE}
AZURE = {"azure.workload.identity/client-id": "client", "azure.workload.identity/tenant-id": "tenant"}
GOOGLE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q"
SOURCES = {"s3": "s3://pictures", "az": "az://account/container", "gs": "gs://pictures"}


def plan(
    scheme: str, annotations: dict[str, str], rule: IdentityRule | None = None, **options: str
) -> TokenExchange | Refusal:
    source = SourceSpec.model_validate(
        {"uri": SOURCES[scheme], "options": options, "serviceAccountName": "reader"}
    )
    return plan_exchange(source, annotations, rule, account="n/reader", cluster="default")


def planned(
    scheme: str, annotations: dict[str, str], rule: IdentityRule | None = None, **options: str
) -> TokenExchange:
    exchange = plan(scheme, annotations, rule, **options)
    assert isinstance(exchange, TokenExchange)
    return exchange


@pytest.mark.parametrize(
    ("role", "options", "url"),
    [
        (ROLE, {}, "https://sts.us-east-1.amazonaws.com"),
        (ROLE, {"region": "eu-west-1"}, "https://sts.eu-west-1.amazonaws.com"),
        ("arn:aws-cn:iam::123456789012:role/a/reader", {}, "https://sts.cn-north-1.amazonaws.com.cn"),
        ("arn:aws-us-gov:iam::123456789012:role/reader", {}, "https://sts.us-gov-west-1.amazonaws.com"),
        ("arn:aws-iso:iam::123456789012:role/reader", {}, "https://sts.us-iso-east-1.c2s.ic.gov"),
        ("arn:aws-eusc:iam::123456789012:role/reader", {}, "https://sts.eusc-de-east-1.amazonaws.eu"),
        (
            ROLE,
            {"endpoint": "https://bucket.vpce-1.s3.us-east-1.vpce.amazonaws.com"},
            "https://sts.us-east-1.amazonaws.com",
        ),
    ],
)
def test_amazons_token_service_is_that_of_the_buckets_region(
    role: str, options: dict[str, str], url: str
) -> None:
    exchange = planned("s3", {"eks.amazonaws.com/role-arn": role}, None, **options)
    assert (exchange.url, exchange.audience, exchange.role) == (url, "sts.amazonaws.com", role)


@pytest.mark.parametrize(
    "role",
    ["", "reader", "arn:aws:iam::1:user/reader", f"{ROLE}\nHost: x", f"{ROLE} x", "arn:aws:s3:::bucket"],
)
def test_a_role_that_is_none_is_named(role: str) -> None:
    refusal = plan("s3", {"eks.amazonaws.com/role-arn": role} if role else {})
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "IdentityNotNamed"
    assert "ServiceAccount n/reader (spec.source.serviceAccountName)" in refusal.message
    assert "eks.amazonaws.com/role-arn" in refusal.message


@pytest.mark.parametrize(
    "endpoint", ["https://minio.example", "https://amazonaws.com.evil.example", "https://xamazonaws.com"]
)
def test_another_stores_token_service_is_the_administrators_to_name(endpoint: str) -> None:
    refusal = plan("s3", AMAZON, endpoint=endpoint)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "IdentityNotConfigured"
    named = planned(
        "s3", AMAZON, IdentityRule(endpoint="https://minio.example", audience="minio"), endpoint=endpoint
    )
    assert (named.url, named.audience) == ("https://minio.example", "minio")


def test_azures_application_and_tenant_are_those_of_the_annotations() -> None:
    exchange = planned("az", AZURE)
    assert (exchange.url, exchange.audience) == (
        "https://login.microsoftonline.com",
        "api://AzureADTokenExchange",
    )
    assert (exchange.role, exchange.provider_name) == ("client", "tenant")
    client = {"azure.workload.identity/client-id": "client"}
    assert planned("az", client, IdentityRule(tenant="home")).provider_name == "home"


@pytest.mark.parametrize(
    ("annotations", "named"),
    [
        ({}, "client-id"),
        ({"azure.workload.identity/client-id": "client"}, "tenant-id"),
        ({**AZURE, "azure.workload.identity/tenant-id": "../x"}, "tenant-id"),
        ({**AZURE, "azure.workload.identity/tenant-id": ".."}, "tenant-id"),
    ],
)
def test_what_azure_lacks_is_named(annotations: dict[str, str], named: str) -> None:
    refusal = plan("az", annotations)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "IdentityNotNamed"
    assert f"azure.workload.identity/{named}" in refusal.message


def test_googles_provider_is_the_administrators_to_name() -> None:
    refusal = plan("gs", {})
    assert isinstance(refusal, Refusal)
    assert "spec.sources[].identity.provider" in refusal.message
    pool = "identitynamespace:p.svc.id.goog:https://container.googleapis.com/v1/projects/p/locations/l/clusters/c"
    refusal = plan("gs", {}, IdentityRule(provider=pool))
    assert isinstance(refusal, Refusal)
    assert "spec.sources[].identity.audience" in refusal.message
    assert (
        planned("gs", {}, IdentityRule(provider=pool, audience="p.svc.id.goog")).audience == "p.svc.id.goog"
    )
    federated = planned("gs", {}, IdentityRule(provider=GOOGLE))
    assert (federated.audience, federated.provider_name, federated.role) == (f"https:{GOOGLE}", GOOGLE, "")


def test_an_account_of_googles_is_impersonated_where_it_is_named() -> None:
    rule = IdentityRule(provider=GOOGLE)
    email = "reader@project.iam.gserviceaccount.com"
    assert planned("gs", {"iam.gke.io/gcp-service-account": email}, rule).role == email
    refusal = plan("gs", {"iam.gke.io/gcp-service-account": "../x"}, rule)
    assert isinstance(refusal, Refusal)
    assert "iam.gke.io/gcp-service-account" in refusal.message


def test_a_token_for_the_api_server_is_shown_to_nobody() -> None:
    with pytest.raises(ValueError, match="shown to nobody else"):
        IdentityRule(audience="https://kubernetes.default.svc.cluster.local")
