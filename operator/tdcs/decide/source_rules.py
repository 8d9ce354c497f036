"""Whether the Datasets of a namespace may use a source, by the rules of its CacheCluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tdcs.api.source_rules import ANY_ENDPOINT, IdentityRule, SourceRule
from tdcs.api.source_uri import (
    AMAZON,
    CLAIM_SCHEME,
    Endpoint,
    SourceUri,
    canonical_endpoint,
    parse_source_uri,
)
from tdcs.decide.forbidden_addresses import forbidden_kind, internal_kind, internal_name, plain_address
from tdcs.decide.problem import Refusal

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
DEFAULT_RULES: Final = (SourceRule(name="default", endpoints=[ANY_ENDPOINT]),)
"""What holds where a CacheCluster has no rules: any store that is not inside the cluster, and no folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceVerdict:
    """What the rules say.

    Attributes:
        refusal: None when the source may be used.
        host: the host that the store's requests go to; empty for Amazon S3 and for folders.
        named: whether a rule names the endpoint, so that it may be inside the cluster.
        ca_bundle: authorities that the rules which allow it trust for its store, in PEM.
        redirects: all endpoints that the namespace's rules name: a web source may redirect its readers to them.
        identity: how ServiceAccounts become identities of the store; of the first rule that says it.
        proxy: through which the store is asked, by the first rule that says it and names the endpoint; empty: none.
    """

    refusal: Refusal | None = None
    host: str = ""
    named: bool = False
    ca_bundle: str = ""
    redirects: tuple[str, ...] = ()
    identity: IdentityRule | None = None
    proxy: str = ""


def judge_source(
    *,
    rules: Sequence[SourceRule],
    shared_folders: Sequence[str],
    namespace: str,
    labels: Mapping[str, str] | None,
    uri: str,
    endpoint: str | None,
    path_style: bool | None,
    cluster: str,
) -> SourceVerdict:
    """The verdict on one source. Addresses of a host that no rule names are to be looked at besides (`host`, `named`).

    Args:
        rules: `spec.sources` of the CacheCluster.
        shared_folders: its `spec.sourceFolders`, which every namespace may use.
        namespace: of the Dataset.
        labels: of that namespace; None when they are not known: then no rule holds for it that excludes labels.
        uri: `spec.source.uri`.
        endpoint: of its store (`tdcs.api.source_uri.endpoint_of`).
        path_style: `spec.source.options.pathStyle`.
    """
    mine = [rule for rule in rules or DEFAULT_RULES if _selects(rule, namespace=namespace, labels=labels)]
    try:
        plain = parse_source_uri(uri)
    except ValueError as error:
        return _refused("SourceNotAllowed", f"spec.source.uri {uri!r}: {error}")
    if plain.scheme == CLAIM_SCHEME:
        return SourceVerdict()  # of the Dataset's own namespace, whose pods may read it as well
    if plain.scheme == "file":
        return _judge_folder(plain.folder, mine, shared_folders, namespace=namespace, cluster=cluster)
    try:
        source_endpoint = canonical_endpoint(endpoint or AMAZON)
    except ValueError as error:
        return _refused(
            "EndpointNotAllowed",
            f"{endpoint_field(plain.scheme)} {endpoint!r}: {error}; write http://HOST:PORT or https://HOST",
        )
    return _judge_bucket(
        plain,
        source_endpoint,
        mine,
        host="" if not endpoint else _host_of(plain, source_endpoint, path_style=path_style is not False),
        namespace=namespace,
        cluster=cluster,
    )


def endpoint_field(scheme: str) -> str:
    """The field that names the endpoint of a source of this scheme."""
    return "spec.source.uri" if scheme in ("http", "https") else "spec.source.options.endpoint"


def _judge_folder(
    folder: str, rules: Sequence[SourceRule], shared: Sequence[str], *, namespace: str, cluster: str
) -> SourceVerdict:
    allowed = [*shared, *(path for rule in rules for path in rule.folders)]
    if any(_inside(folder, allowed_folder) for allowed_folder in allowed):
        return SourceVerdict()
    folders = f"which are {', '.join(allowed)}" if allowed else "of which there is none"
    return _refused(
        "FolderNotAllowed",
        f"{folder} (spec.source.uri) is outside of the folders that namespace {namespace} may use in CacheCluster "
        f"{cluster} (spec.sources[].folders, spec.sourceFolders), {folders}: ask its administrator to add the folder, "
        "which every cache node must see, or name another one",
    )


def _judge_bucket(
    uri: SourceUri,
    endpoint: Endpoint,
    rules: Sequence[SourceRule],
    *,
    host: str,
    namespace: str,
    cluster: str,
) -> SourceVerdict:
    # Of a web server the first folder stands where S3 has the bucket: a rule for one store holds whichever way it is
    # read.
    bucket = (uri.path if uri.scheme in ("http", "https") else f"{uri.bucket}/{uri.path}").rstrip("/")
    where = f"CacheCluster {cluster} (spec.sources)"
    field = endpoint_field(uri.scheme)
    ask = f"ask its administrator for a rule in spec.sources that names {endpoint}, or use another store"
    if kind := forbidden_kind(endpoint.host) if plain_address(endpoint.host) is not None else "":
        return _refused(
            "EndpointNotAllowed",
            f"{field} {endpoint} has a {kind} address, which no source may have: use another one",
        )
    stores = [rule for rule in rules if rule.endpoints or rule.buckets]
    named = [rule for rule in stores if str(endpoint) in _endpoints(rule)]
    open_ones = [rule for rule in stores if not rule.endpoints or ANY_ENDPOINT in rule.endpoints]
    if not named and not open_ones:
        return _refused(
            "EndpointNotAllowed",
            f"namespace {namespace} may not use the endpoint {endpoint} ({field}) by {where}: {ask}",
        )
    redirects = tuple(sorted({redirect for rule in stores for redirect in _endpoints(rule)}))
    if allowing := [rule for rule in named if _holds_bucket(rule, bucket)]:
        return _allowed(allowing, host=host, named=True, redirects=redirects)
    inside = internal_name(endpoint.host) or (
        plain_address(endpoint.host) is not None and internal_kind(endpoint.host, internal=())
    )
    if host and inside:
        return _refused(
            "EndpointNotAllowed",
            f"the endpoint {endpoint} ({field}) is inside the cluster or this machine, and no "
            f"rule of {where} names it for namespace {namespace}: {ask}",
        )
    if allowing := [rule for rule in open_ones if _holds_bucket(rule, bucket)]:
        return _allowed(allowing, host=host, named=False, redirects=redirects)
    allowed = sorted({name for rule in (*named, *open_ones) for name in rule.buckets})
    return _refused(
        "BucketNotAllowed",
        f"namespace {namespace} may not use {uri} (spec.source.uri) at {endpoint} by {where}: it may use "
        f"{', '.join(allowed)}. Name one of these, or ask the administrator of the CacheCluster for a rule",
    )


def _allowed(
    rules: Sequence[SourceRule], *, host: str, named: bool, redirects: tuple[str, ...]
) -> SourceVerdict:
    """What these rules, which allow a source, say of how it is reached."""
    return SourceVerdict(
        host=host,
        named=named,
        ca_bundle=_bundle(rules),
        redirects=redirects,
        proxy=next((rule.proxy for rule in rules if rule.proxy), "") if named else "",
        identity=next((rule.identity for rule in rules if rule.identity is not None), None),
    )


def _bundle(rules: Sequence[SourceRule]) -> str:
    bundles = dict.fromkeys(rule.ca_bundle.strip() for rule in rules if rule.ca_bundle)
    return "\n".join(bundles)


def _endpoints(rule: SourceRule) -> set[str]:
    endpoints = set()
    for endpoint in rule.endpoints:
        if endpoint == ANY_ENDPOINT:
            continue
        endpoints.add(str(canonical_endpoint(endpoint)))
    return endpoints


def _holds_bucket(rule: SourceRule, bucket: str) -> bool:
    return not rule.buckets or any(_inside(bucket, allowed_bucket) for allowed_bucket in rule.buckets)


def _host_of(uri: SourceUri, endpoint: Endpoint, *, path_style: bool) -> str:
    """The host to which requests go: that of the endpoint, with the bucket in front where it is part of the name."""
    if path_style:
        return endpoint.host
    return f"{uri.bucket}.{endpoint.host}"


def _selects(rule: SourceRule, *, namespace: str, labels: Mapping[str, str] | None) -> bool:
    terms = rule.namespace_selector.terms
    if labels is None and any(term["operator"] in {"NotIn", "DoesNotExist"} for term in terms):
        return False
    return rule.namespace_selector.selects({**(labels or {}), NAMESPACE_LABEL: namespace})


def _inside(inner: str, outer: str) -> bool:
    plain = outer.rstrip("/")
    return inner == plain or inner.startswith(f"{plain}/")


def _refused(reason: str, message: str) -> SourceVerdict:
    return SourceVerdict(refusal=Refusal(reason=reason, message=message, permanent=True))
