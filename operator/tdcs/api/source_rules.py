"""Which sources the administrator allows to which namespaces, and how they are reached."""

import ssl
from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from tdcs.api.base import LABEL, PATH_RULE, Model, defaulted, rule, rules, worded
from tdcs.api.namespace_selector import NamespaceSelector
from tdcs.api.source_uri import canonical_endpoint, canonical_place

ANY_ENDPOINT: Final = "*"
"""Any store that is not inside the cluster, nor on a loopback or link-local address."""


SourceFolder = Annotated[str, Field(min_length=2, max_length=256, json_schema_extra=rules(PATH_RULE))]
_RuleFolder = Annotated[
    str,
    Field(min_length=2, max_length=256, **worded(r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$", PATH_RULE["message"])),
]


def _checked_endpoint(endpoint: str) -> str:
    if endpoint != ANY_ENDPOINT:
        try:
            canonical_endpoint(endpoint)
        except ValueError as error:
            raise ValueError(f"endpoint {endpoint!r}: {error}; or write *") from error
    return endpoint


def _checked_bucket(bucket: str) -> str:
    try:
        return canonical_place(bucket)
    except ValueError as error:
        raise ValueError(f"bucket {bucket!r}: {error}; write BUCKET or BUCKET/PREFIX") from error


CA_BUNDLE_PATTERN: Final = r"^\s*-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s-]+-----END CERTIFICATE-----\s*$"
"""PEM of certificates and nothing else: no private key fits."""


def _checked_bundle(bundle: str) -> str:
    if "PRIVATE KEY" in bundle:
        raise ValueError("it holds a private key, and needs none: remove it")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=bundle)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"it is no PEM of certificates: {error}") from error
    return bundle


def _checked_audience(audience: str) -> str:
    if "kubernetes.default" in audience:
        raise ValueError(f"audience {audience!r}: a token for the API server is shown to nobody else")
    return audience


_PORT: Final = r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
_PROXY: Final = rf"^http://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+){_PORT}/?$"
_SERVICE_ADDRESS: Final = r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$"


class IdentityRule(Model):
    """How ServiceAccounts become identities of these stores (workload identity)."""

    endpoint: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=256,
                **worded(_SERVICE_ADDRESS, "must be http://HOST[:PORT] or https://HOST[:PORT]"),
            ),
        ]
        | None
    ) = None
    """The token service, such as https://sts.example:9000 of an S3-compatible store. Left out, it is that of Amazon in
    the region of the bucket, of Google or of Azure. Tokens are shown to no other host."""
    audience: (
        Annotated[
            str,
            AfterValidator(_checked_audience),
            Field(min_length=1, max_length=256, **worded(r"^[!-~]+$", "must have no blanks")),
        ]
        | None
    ) = None
    """For whom the tokens are. Left out: sts.amazonaws.com, api://AzureADTokenExchange, or the address of Google's
    provider."""
    provider: (
        Annotated[str, Field(min_length=1, max_length=512, **worded(r"^[!-~]+$", "must have no blanks"))]
        | None
    ) = None
    """Of Google: the workload identity provider, as
    //iam.googleapis.com/projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER, or of GKE
    identitynamespace:PROJECT.svc.id.goog:URL-OF-THE-CLUSTER with the audience PROJECT.svc.id.goog."""
    tenant: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=128,
                **worded(r"^[A-Za-z0-9.-]+$", "must be the tenant, by its name or id"),
            ),
        ]
        | None
    ) = None
    """Of Azure: the tenant of accounts without the annotation azure.workload.identity/tenant-id."""


_NAMES_FOR_A_PROXY: Final = (
    "with proxy, endpoints must name each store: a proxy looks up names, so nothing here can see where * leads; name "
    "them, or remove proxy"
)


class SourceRule(Model):
    """Sources that some namespaces may use. A source is allowed when one rule allows it."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.proxy) || (has(self.endpoints) && size(self.endpoints) > 0 && !('*' in self.endpoints))",
                _NAMES_FOR_A_PROXY,
                field=".endpoints",
            )
        )
    )

    name: Annotated[str, Field(min_length=1, max_length=63, **LABEL)]
    """What it is called."""
    namespace_selector: NamespaceSelector = defaulted(NamespaceSelector)
    """The namespaces by their labels; empty: all. kubernetes.io/metadata.name is the name of each."""
    endpoints: Annotated[
        list[
            Annotated[
                str,
                Field(
                    min_length=1,
                    max_length=256,
                    **worded(
                        r"^(\*|https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?)$",
                        "must be http://HOST[:PORT], https://HOST[:PORT] or *",
                    ),
                ),
                AfterValidator(_checked_endpoint),
            ]
        ],
        Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default=[])
    """Stores by their endpoint, as in a Dataset's options, such as http://store.example:9000; https://s3.amazonaws.com
    is Amazon S3, which Datasets without an endpoint use. A store inside the cluster must be named here. * means any
    other, by name or address; so does an empty list next to buckets."""
    buckets: Annotated[
        list[
            Annotated[
                str,
                Field(
                    min_length=1,
                    max_length=500,
                    **worded(
                        r"^[^/\\?#:\s][^\\?#:]*$",
                        "must be BUCKET or BUCKET/PREFIX, without s3:// before it",
                    ),
                ),
                AfterValidator(_checked_bucket),
            ]
        ],
        Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default=[])
    """Buckets, or prefixes in them as BUCKET/PREFIX, of these stores; empty: all that are there. In place of a bucket
    stand ACCOUNT/CONTAINER of Azure, datasets/OWNER/NAME (or models/, spaces/) of the Hugging Face Hub, and a folder
    of a web server."""
    folders: Annotated[
        list[_RuleFolder], Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = Field(default=[])
    """Folders, the same on every cache node (an NFS mount, say), for file:// URIs in and below them. The cache's pods
    mount them read-only; a change restarts them."""
    ca_bundle: (
        Annotated[
            str,
            Field(min_length=1, max_length=65_536, pattern=CA_BUNDLE_PATTERN),
            AfterValidator(_checked_bundle),
        ]
        | None
    ) = None
    """Certificates of authorities in PEM that are trusted for these stores next to the public ones, by all that speaks
    to them: the operator, its listings, and agents."""
    proxy: (
        Annotated[str, Field(min_length=1, max_length=256, **worded(_PROXY, "must be http://HOST[:PORT]"))]
        | None
    ) = None
    """An HTTP proxy, as http://HOST:PORT, through which these stores are asked, with CONNECT where they have TLS. It
    looks up their names, so endpoints must name each of them, and a redirection is followed only to an endpoint that a
    rule of the namespace names."""
    identity: IdentityRule | None = None
    """How ServiceAccounts that Datasets name become identities of these stores; left out, as Amazon and Azure have
    it."""

    @model_validator(mode="after")
    def _names_what_a_proxy_reaches(self) -> "SourceRule":
        if self.proxy is not None and (not self.endpoints or ANY_ENDPOINT in self.endpoints):
            raise ValueError(f"rule {self.name}: {_NAMES_FOR_A_PROXY}")
        return self
