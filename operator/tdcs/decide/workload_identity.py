"""By which exchange a ServiceAccount of a Dataset's namespace becomes an identity of its store."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tdcs.api import names
from tdcs.api.dataset_source import SourceSpec
from tdcs.api.source_rules import IdentityRule
from tdcs.api.source_uri import (
    AMAZON_DOMAINS,
    DEFAULT_REGION,
    amazon_endpoint,
    canonical_endpoint,
    parse_source_uri,
)
from tdcs.decide.problem import RETRY_SOON, Refusal

AMAZON_ROLE: Final = "eks.amazonaws.com/role-arn"
AZURE_CLIENT: Final = "azure.workload.identity/client-id"
AZURE_TENANT: Final = "azure.workload.identity/tenant-id"
GOOGLE_ACCOUNT: Final = "iam.gke.io/gcp-service-account"

_ROLE: Final = re.compile(
    r"arn:(aws[a-z-]{0,20}|minio):iam:[a-z0-9-]{0,32}:[0-9]{0,12}:role/[\w+=,.@/-]{1,512}"
)
_AZURE_ID: Final = re.compile(r"[A-Za-z0-9.-]{1,128}")
_GOOGLE_EMAIL: Final = re.compile(r"[a-z0-9-]{1,64}@[a-z0-9.-]{1,190}\.iam\.gserviceaccount\.com")
_REGIONS: Final = {
    "aws-cn": "cn-north-1",
    "aws-us-gov": "us-gov-west-1",
    "aws-iso": "us-iso-east-1",
    "aws-iso-b": "us-isob-east-1",
    "aws-iso-e": "eu-isoe-west-1",
    "aws-iso-f": "us-isof-south-1",
    "aws-eusc": "eusc-de-east-1",
}
"""Of partitions: in which a role's token service is asked where the Dataset names no region."""


class Provider(Enum):
    """Whose token service it is."""

    AMAZON = "AWS STS"
    GOOGLE = "Google's token service"
    AZURE = "Entra ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenExchange:
    """How a token is exchanged.

    Attributes:
        url: of the token service, without a path.
        audience: for whom the token is.
        role: the role's ARN; Azure's client id; the account of Google's that is impersonated, empty for none.
        provider_name: of Google, the provider; of Azure the tenant.
    """

    provider: Provider
    url: str
    audience: str
    role: str
    provider_name: str = ""


def plan_exchange(
    source: SourceSpec,
    annotations: Mapping[str, str],
    rule: IdentityRule | None,
    *,
    account: str,
    cluster: str,
) -> TokenExchange | Refusal:
    """The exchange for a source.

    Args:
        annotations: of the ServiceAccount.
        rule: what the rules of the CacheCluster say of it.
        account: namespace and name of the ServiceAccount, for messages.
        cluster: name of the CacheCluster, for messages.
    """
    identity_rule = rule or IdentityRule()
    scheme = parse_source_uri(source.uri).scheme
    where = f"ServiceAccount {account} (spec.source.serviceAccountName)"
    if scheme == "s3":
        return _of_amazon(source, annotations, identity_rule, where=where, cluster=cluster)
    if scheme == "az":
        return _of_azure(annotations, identity_rule, where=where)
    return _of_google(annotations, identity_rule, where=where, cluster=cluster)


def identity_remedy(*, operator: str, namespace: str, account: str) -> str:
    """The commands with which the owner of a namespace lets the operator act as one of its accounts.

    Args:
        operator: its ServiceAccount, as NAMESPACE:NAME.
    """
    role = f"{names.IDENTITY_ROLE}-{account}"
    return (
        f"kubectl create role {role} --verb=get,create --resource=serviceaccounts,serviceaccounts/token "
        f"--resource-name={account} -n {namespace} && kubectl create rolebinding {role} --role={role} "
        f"--serviceaccount={operator} -n {namespace}"
    )


def _of_amazon(
    source: SourceSpec, annotations: Mapping[str, str], rule: IdentityRule, *, where: str, cluster: str
) -> TokenExchange | Refusal:
    role = annotations.get(AMAZON_ROLE, "")
    if not _ROLE.fullmatch(role):
        return _unfit(where, AMAZON_ROLE, role, "the ARN of a role, as arn:aws:iam::123456789012:role/reader")
    region = source.options.region or _REGIONS.get(role.split(":")[1], DEFAULT_REGION)
    url = rule.endpoint or _sts_of(region)
    if rule.endpoint is None and not _is_amazon(source.endpoint):
        return Refusal(
            reason="IdentityNotConfigured",
            message=f"the token service of {source.endpoint} (spec.source.options.endpoint) is not known: ask the "
            f"administrator of CacheCluster {cluster} to name it in spec.sources[].identity.endpoint of the rule for "
            "this store, or name a Secret with keys in spec.source.secretRef",
            retry_after=RETRY_SOON,
        )
    return TokenExchange(
        provider=Provider.AMAZON, url=url, audience=rule.audience or "sts.amazonaws.com", role=role
    )


def _of_azure(annotations: Mapping[str, str], rule: IdentityRule, *, where: str) -> TokenExchange | Refusal:
    client = annotations.get(AZURE_CLIENT, "")
    if not _AZURE_ID.fullmatch(client):
        return _unfit(where, AZURE_CLIENT, client, "the client id of an application or a managed identity")
    tenant = annotations.get(AZURE_TENANT) or rule.tenant or ""
    if not _AZURE_ID.fullmatch(tenant) or set(tenant) == {"."}:
        return _unfit(where, AZURE_TENANT, tenant, "the id of the tenant of Entra ID")
    return TokenExchange(
        provider=Provider.AZURE,
        url=rule.endpoint or "https://login.microsoftonline.com",
        audience=rule.audience or "api://AzureADTokenExchange",
        role=client,
        provider_name=tenant,
    )


def _of_google(
    annotations: Mapping[str, str], rule: IdentityRule, *, where: str, cluster: str
) -> TokenExchange | Refusal:
    account = annotations.get(GOOGLE_ACCOUNT, "")
    if account and not _GOOGLE_EMAIL.fullmatch(account):
        return _unfit(
            where, GOOGLE_ACCOUNT, account, "a service account, as NAME@PROJECT.iam.gserviceaccount.com"
        )
    provider = rule.provider or ""
    audience = rule.audience or (f"https:{provider}" if provider.startswith("//") else "")
    if not provider or not audience:
        field = "provider" if not provider else "audience"
        return Refusal(
            reason="IdentityNotConfigured",
            message="Google's workload identity provider is not known: ask the administrator of CacheCluster "
            f"{cluster} to name it in spec.sources[].identity.{field} of the rule for this store, or name a Secret "
            "with key.json in spec.source.secretRef",
            retry_after=RETRY_SOON,
        )
    return TokenExchange(
        provider=Provider.GOOGLE,
        url=rule.endpoint or "https://sts.googleapis.com",
        audience=audience,
        role=account,
        provider_name=provider,
    )


def _unfit(where: str, annotation: str, found: str, wanted: str) -> Refusal:
    how = f"{found[:80]!r} as its annotation {annotation}" if found else f"no annotation {annotation}"
    return Refusal(
        reason="IdentityNotNamed",
        message=f"{where} has {how}, and needs {wanted}: kubectl annotate serviceaccount --overwrite, or name a "
        "Secret with keys in spec.source.secretRef",
        retry_after=RETRY_SOON,
    )


def _sts_of(region: str) -> str:
    return amazon_endpoint(region).replace("://s3.", "://sts.", 1)


def _is_amazon(endpoint: str | None) -> bool:
    if not endpoint:
        return True
    host = canonical_endpoint(endpoint).host
    return any(
        host == domain or host.endswith(f".{domain}")
        for domain in ("amazonaws.com", *AMAZON_DOMAINS.values())
    )
