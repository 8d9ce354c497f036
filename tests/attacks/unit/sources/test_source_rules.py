"""Endpoints, buckets and folders that a namespace may not use, in every spelling."""

from __future__ import annotations

from typing import Any

import pytest
import trustme
from pydantic import ValidationError

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.dataset_source import SourceOptions
from tdcs.api.source_rules import SourceRule
from tdcs.api.source_uri import canonical_endpoint
from tdcs.decide.forbidden_addresses import forbidden_kind, internal_kind, parse_networks
from tdcs.decide.source_rules import SourceVerdict, judge_source

TRICKS = (
    "http://store.example:80@169.254.169.254/",
    "http://user:password@store.example/",
    "http://store.example/path",
    "http://store.example/?x=y",
    "http://store.example#169.254.169.254",
    "http://store.example\\@169.254.169.254",
    "http://store.example\t.evil/",
    "http://store.example\n.evil/",
    "http:// store.example",
    "http://2852039166/",
    "http://0xA9FEA9FE/",
    "http://0xa9.0xfe.0xa9.0xfe/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://127.1/",
    "http://1.2.3.4.5/",
    "http://256.1.1.1/",
    "http://[::1%25lo]/",
    "http://[::ffff:169.254.169.254]x/",
    "http://[::ffff:169.254.169.254]",
    "http://[::ffff:a9fe:a9fe]",
    "http://[::ffff:127.0.0.1]:9000",
    "http://[::ffff:8.8.8.8]",
    "http://minio.rack.12",
    "http://%31%36%39.254.169.254/",
    "http://\uff11\uff16\uff19.254.169.254/",
    "http://st\u00f6re.example/",
    "ftp://store.example/",
    "file:///etc",
    "//store.example",
    "store.example:9000",
    "http://",
    "http://..",
    "http://-a.example",
    "http://store.example:0",
    "http://store.example:65536",
    "http://store.example:",
)

FORBIDDEN = (
    "http://169.254.169.254",
    "http://169.254.169.254.",
    "HTTP://169.254.169.254:80/",
    "http://[64:ff9b::169.254.169.254]",
    "http://[64:ff9b:1::169.254.169.254]",
    "http://[::169.254.169.254]",
    "http://[2002:a9fe:a9fe::]",
    "http://[fe80::1]",
    "http://[fd00:ec2::254]",
    "http://[fd20:ce::254]",
    "http://[fd00:c1::a9fe:a9fe]",
    "http://[fd00:42::42]",
    "http://100.100.100.200",
    "http://168.63.129.16",
    "http://0.0.0.0:8080",
    "http://[::]:8080",
    "http://224.0.0.1",
)

INTERNAL = (
    "http://127.0.0.1:9000",
    "http://127.8.8.8:9000",
    "http://[::1]:9000",
    "http://localhost:9000",
    "http://LOCALHOST.:9000",
    "http://store:9000",
    "http://store.ns.svc:9000",
    "http://store.ns.SVC.cluster.local.:9000",
    "https://kubernetes.default.svc",
    "http://metadata.google.internal",
    "http://node.local",
)


def judged(
    uri: str = "s3://bucket/data", *, labels: dict[str, str] | None = None, **more: Any
) -> SourceVerdict:
    """The verdict for namespace `n` under the rules."""
    spec = CacheClusterSpec.model_validate({"sources": more.pop("rules", []), **more.pop("spec", {})})
    return judge_source(
        rules=spec.sources,
        shared_folders=spec.source_folders,
        namespace=more.pop("namespace", "n"),
        labels=labels if labels is not None else {},
        uri=uri,
        endpoint=more.pop("endpoint", None),
        path_style=more.pop("path_style", None),
        cluster="default",
        **more,
    )


def reason(verdict: SourceVerdict) -> str:
    """The reason of a refusal; empty when there is none."""
    return verdict.refusal.reason if verdict.refusal else ""


@pytest.mark.parametrize("endpoint", TRICKS, ids=ascii)
@pytest.mark.threat("forbidden-addresses")
def test_an_endpoint_that_some_reader_takes_for_another_host_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="no "):
        canonical_endpoint(endpoint)
    assert reason(judged(endpoint=endpoint)) == "EndpointNotAllowed"


@pytest.mark.parametrize("endpoint", FORBIDDEN)
@pytest.mark.threat("forbidden-addresses")
def test_no_rule_lets_a_source_be_an_address_of_metadata_or_of_the_link(endpoint: str) -> None:
    assert reason(judged(endpoint=endpoint)) == "EndpointNotAllowed"
    named = [{"name": "named", "endpoints": [endpoint.lower()]}]
    assert reason(judged(endpoint=endpoint, rules=named)) == "EndpointNotAllowed"


@pytest.mark.parametrize("endpoint", INTERNAL)
@pytest.mark.threat("forbidden-addresses")
def test_a_store_inside_the_cluster_must_be_named(endpoint: str) -> None:
    refused = judged(endpoint=endpoint)
    assert reason(refused) == "EndpointNotAllowed"
    assert refused.refusal is not None
    assert "a rule in spec.sources that names" in refused.refusal.message
    named = [{"name": "named", "endpoints": [endpoint]}]
    canonical = canonical_endpoint(endpoint)
    assert judged(endpoint=endpoint, rules=named) == SourceVerdict(
        host=canonical.host, named=True, redirects=(str(canonical),)
    )
    assert reason(judged(endpoint=endpoint, rules=[{"name": "any", "endpoints": ["*"]}]))


def test_without_rules_any_store_outside_may_be_used_and_no_folder() -> None:
    assert judged() == SourceVerdict()
    assert judged(endpoint="https://store.example") == SourceVerdict(host="store.example")
    assert judged(endpoint="http://10.1.2.3:9000") == SourceVerdict(host="10.1.2.3")
    assert reason(judged("file:///nfs/a")) == "FolderNotAllowed"


@pytest.mark.threat("forbidden-addresses")
def test_the_bucket_in_front_of_a_host_is_part_of_the_name_that_is_looked_up() -> None:
    assert judged(endpoint="https://store.example", path_style=False).host == "bucket.store.example"


RULES = [
    {
        "name": "vision",
        "namespaceSelector": {"matchLabels": {"team": "vision"}},
        "endpoints": ["http://store.example:9000"],
        "buckets": ["images", "shared/vision"],
        "folders": ["/nfs/vision"],
    },
    {
        "name": "rest",
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
        "endpoints": ["https://s3.amazonaws.com"],
        "buckets": ["public"],
    },
]
VISION = {"team": "vision"}
STORE = "http://store.example:9000"


@pytest.mark.parametrize(
    ("uri", "labels", "endpoint", "expected"),
    [
        ("s3://images/a", VISION, STORE, ""),
        ("s3://images/a", VISION, "HTTP://Store.Example.:9000/", ""),
        ("s3://images", VISION, STORE, ""),
        ("s3://shared/vision/a", VISION, STORE, ""),
        ("s3://shared", VISION, STORE, "BucketNotAllowed"),
        ("s3://shared/vision2", VISION, STORE, "BucketNotAllowed"),
        ("s3://shared/vision/../nlp", VISION, STORE, "SourceNotAllowed"),
        ("s3://images2", VISION, STORE, "BucketNotAllowed"),
        ("s3://images", VISION, "http://store.example", "EndpointNotAllowed"),
        ("s3://images", VISION, "https://store.example:9000", "EndpointNotAllowed"),
        ("s3://images", VISION, "http://store.example.evil:9000", "EndpointNotAllowed"),
        ("s3://images", VISION, None, "EndpointNotAllowed"),
        ("s3://images", {"team": "nlp"}, STORE, "EndpointNotAllowed"),
        ("s3://images", {}, STORE, "EndpointNotAllowed"),
        ("s3://public/x", {}, None, ""),
        ("s3://private/x", {}, None, "BucketNotAllowed"),
        ("file:///nfs/vision/a", VISION, None, ""),
        ("file:///nfs/vision2", VISION, None, "FolderNotAllowed"),
        ("file:///nfs", VISION, None, "FolderNotAllowed"),
        ("file:///nfs/vision", {}, None, "FolderNotAllowed"),
    ],
)
@pytest.mark.threat("others-buckets")
def test_a_namespace_uses_what_its_rules_name_and_nothing_else(
    uri: str, labels: dict[str, str], endpoint: str | None, expected: str
) -> None:
    assert reason(judged(uri, labels=labels, endpoint=endpoint, rules=RULES)) == expected


@pytest.mark.threat("others-buckets")
def test_a_refusal_names_no_rule_of_another_namespace() -> None:
    for refused in (
        judged("s3://private/x", rules=RULES),
        judged("s3://x", endpoint=STORE, rules=RULES),
        judged("file:///nfs/vision", rules=RULES),
    ):
        assert refused.refusal is not None
        text = refused.refusal.message
        assert text
        assert "images" not in text
        assert "/nfs/vision," not in text


@pytest.mark.threat("others-buckets")
def test_labels_that_are_not_known_open_nothing() -> None:
    spec = CacheClusterSpec.model_validate({"sources": RULES})
    verdict = judge_source(
        rules=spec.sources,
        shared_folders=[],
        namespace="n",
        labels=None,
        uri="s3://public/x",
        endpoint=None,
        path_style=None,
        cluster="default",
    )
    assert reason(verdict) == "EndpointNotAllowed"


@pytest.mark.parametrize(
    "rule",
    [
        {"endpoints": ["http://user@store"]},
        {"endpoints": ["http://store/path"]},
        {"buckets": ["a/../b"]},
        {"buckets": ["images/%2e%2e/b"]},
        {"folders": ["/nfs/../etc"]},
        {"folders": ["nfs"]},
        {"folders": ["/"]},
    ],
)
@pytest.mark.threat("others-buckets")
def test_a_rule_that_means_more_than_it_says_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CacheClusterSpec.model_validate({"sources": [{"name": "x", **rule}]})


@pytest.mark.parametrize("region", ["evil.example/", "x@169.254.169.254/", "a#", "us east"])
@pytest.mark.threat("region-ends-host")
def test_a_region_that_would_end_a_hosts_name_is_refused(region: str) -> None:
    with pytest.raises(ValidationError, match="no region"):
        SourceOptions(region=region)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("10.1.2.3", "cluster-internal"),
        ("::ffff:10.1.2.3", "cluster-internal"),
        ("64:ff9b::a01:203", "cluster-internal"),
        ("64:ff9b:1::a01:203", "cluster-internal"),
        ("64:ff9b:1:fffe::a01:203", "cluster-internal"),
        ("64:ff9b:2::a01:203", ""),
        ("::10.1.2.3", "cluster-internal"),
        ("::93.184.216.34", ""),
        ("192.168.1.1", ""),
        ("93.184.216.34", ""),
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("169.254.169.254", "link-local or metadata"),
        ("fe80::1%eth0", "link-local or metadata"),
        ("240.0.0.1", "reserved"),
        ("nonsense", "no address"),
    ],
)
@pytest.mark.threat("forbidden-addresses")
def test_addresses_are_judged_in_their_plain_form(address: str, kind: str) -> None:
    assert internal_kind(address, internal=parse_networks(["10.0.0.0/8"])) == kind
    assert bool(forbidden_kind(address)) == (kind in {"link-local or metadata", "no address"})


def authority(name: str) -> str:
    return trustme.CA(organization_name=name).cert_pem.bytes().decode()


def test_authorities_are_trusted_for_the_stores_of_their_own_rule_only() -> None:
    """A team whose rule trusts an authority of its own does not lower the trust of others, nor of other stores."""
    bundle, other_bundle = authority("own"), authority("others")
    rules = [
        {"name": "own", "endpoints": ["https://store.example"], "caBundle": bundle},
        {
            "name": "others",
            "endpoints": ["https://store.example"],
            "namespaceSelector": {"matchLabels": {"team": "others"}},
            "caBundle": other_bundle,
        },
        {"name": "rest", "endpoints": ["*"]},
    ]
    assert judged(rules=rules, endpoint="https://store.example").ca_bundle == bundle.strip()
    assert judged(rules=rules, endpoint="https://elsewhere.example").ca_bundle == ""
    assert judged(rules=rules).ca_bundle == ""
    bundles = judged(rules=rules, endpoint="https://store.example", labels={"team": "others"}).ca_bundle
    assert bundle.strip() in bundles
    assert other_bundle.strip() in bundles


@pytest.mark.parametrize(
    "bundle",
    [
        "nonsense",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
        trustme.CA().cert_pem.bytes().decode()
        + trustme.CA().issue_cert("a").private_key_pem.bytes().decode(),
        "",
    ],
)
def test_a_bundle_that_is_no_certificates_is_refused(bundle: str) -> None:
    with pytest.raises(ValidationError, match="caBundle"):
        CacheClusterSpec.model_validate({"sources": [{"name": "a", "caBundle": bundle}]})


@pytest.mark.threat("others-buckets")
@pytest.mark.parametrize("endpoints", [[], ["*"], ["https://store.example", "*"]])
def test_a_proxy_reaches_only_stores_that_its_rule_names(endpoints: list[str]) -> None:
    with pytest.raises(ValueError, match="with proxy, endpoints must name each store"):
        SourceRule(name="r", endpoints=endpoints, proxy="http://proxy.example:3128")
