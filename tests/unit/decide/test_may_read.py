"""A Dataset may read its source by the rules of its CacheCluster, and by where the name of its store leads."""

from typing import Any

import pytest

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.dataset import DatasetSpec
from tdcs.api.source_uri import canonical_source_uri
from tdcs.decide.may_read import (
    HostAnswer,
    SourceUse,
    may_read,
    missing_cluster,
    pinned_address,
    unmountable,
)

PLAIN, SECURE = "http://store.example:9000", "https://store.example"
FIT = HostAnswer(known=True, address="203.0.113.7")
INSIDE = HostAnswer(known=True, internal="Service")


def use(*, endpoint: str = SECURE, serves: bool = False, rules: Any = (), **options: Any) -> SourceUse:
    source = {
        "uri": "s3://bucket/data",
        "options": {"endpoint": endpoint, **options},
        "secretRef": {"name": "keys"},
    }
    return SourceUse(
        namespace="n",
        labels={},
        spec=DatasetSpec.model_validate({"source": source}),
        rules=None if rules is None else CacheClusterSpec.model_validate({"sources": list(rules)}),
        serves=serves,
    )


@pytest.mark.parametrize(
    ("source_use", "answer", "networks", "reason", "permanent"),
    [
        (use(), FIT, True, "", False),
        (use(rules=None), FIT, True, "InvalidCacheCluster", False),
        (use(), HostAnswer(), True, "EndpointLookup", False),
        (use(), HostAnswer(known=True, failure="no address"), True, "EndpointUnknown", False),
        (use(), INSIDE, True, "EndpointNotAllowed", True),
        (use(serves=True), INSIDE, True, "EndpointNotAllowed", False),
        (
            use(serves=True),
            HostAnswer(known=True, internal="pod", settled=True),
            True,
            "EndpointNotAllowed",
            True,
        ),
        (use(endpoint=PLAIN), FIT, True, "", False),
        (use(endpoint=PLAIN), FIT, False, "NetworksUnknown", False),
        (use(endpoint=PLAIN, pathStyle=False), FIT, True, "EndpointNotAllowed", True),
        (use(rules=[{"name": "own", "endpoints": [PLAIN]}]), FIT, True, "EndpointNotAllowed", True),
        (use(endpoint=PLAIN, rules=[{"name": "own", "endpoints": [PLAIN]}]), INSIDE, False, "", False),
    ],
)
def test_the_first_no_counts_and_says_whether_what_was_given_stays(
    source_use: SourceUse, answer: HostAnswer, networks: bool, reason: str, permanent: bool
) -> None:
    refusal = may_read(source_use, answer=answer, networks_known=networks)
    assert (refusal.reason if refusal else "", refusal.permanent if refusal else False) == (reason, permanent)


def test_requests_without_tls_go_to_the_address_that_was_looked_at() -> None:
    assert pinned_address(use(endpoint=PLAIN), answer=FIT) == "203.0.113.7"
    assert pinned_address(use(), answer=FIT) == ""
    named = use(endpoint=PLAIN, rules=[{"name": "own", "endpoints": [PLAIN]}])
    assert named.host == ""
    assert pinned_address(named, answer=FIT) == ""


def test_a_cache_that_goes_takes_no_new_dataset() -> None:
    going = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert missing_cluster(going, name="c", new=False) is None
    refusal = missing_cluster(going, name="c", new=True)
    assert refusal is not None
    assert refusal.reason == "CacheClusterDeleting"
    absent = missing_cluster(None, name="c", new=False)
    assert absent is not None
    assert absent.reason == "CacheClusterNotFound"


@pytest.mark.parametrize(("host", "named"), [("store.shared", "store.shared.svc"), ("s3.example.org", "")])
def test_a_short_service_name_is_answered_with_its_full_name(host: str, named: str) -> None:
    unknown = HostAnswer(known=True, failure="Name or service not known")
    refusal = may_read(use(endpoint=f"https://{host}"), answer=unknown, networks_known=True)
    assert refusal is not None
    assert ("a Service is named in full" in refusal.message) == bool(named)
    assert refusal.message.endswith(f"such as {named}") or not named


def web(uri: str, *rules: Any, **options: Any) -> SourceUse:
    """The use of a source that is no bucket."""
    return SourceUse(
        namespace="n",
        labels={},
        spec=DatasetSpec.model_validate({"source": {"uri": uri, "options": options}}),
        rules=CacheClusterSpec.model_validate({"sources": list(rules)}),
        serves=False,
    )


@pytest.mark.parametrize(
    ("source_use", "answer", "reason"),
    [
        (web("https://data.example/set"), FIT, ""),
        (web("https://data.example/set"), INSIDE, "EndpointNotAllowed"),
        (web("http://10.1.2.3:8080/set"), INSIDE, "EndpointNotAllowed"),
        (web("http://data.example/set"), HostAnswer(), "EndpointLookup"),
        (web("http://store.team.svc/set"), FIT, "EndpointNotAllowed"),
        (web("http://localhost:8080/set"), FIT, "EndpointNotAllowed"),
        (web("http://169.254.169.254/latest/meta-data"), FIT, "EndpointNotAllowed"),
        (
            web("http://169.254.169.254/latest", {"name": "all", "endpoints": ["http://169.254.169.254"]}),
            FIT,
            "EndpointNotAllowed",
        ),
        (
            web("http://store.team.svc/set", {"name": "own", "endpoints": ["http://store.team.svc"]}),
            INSIDE,
            "",
        ),
        (
            web("https://other.example/set", {"name": "own", "endpoints": ["https://data.example"]}),
            FIT,
            "EndpointNotAllowed",
        ),
        # A rule for some buckets of a store holds also when it is read as a web server.
        (
            web(
                "http://store.example:9000/secret/a",
                {"name": "b", "endpoints": ["http://store.example:9000"], "buckets": ["public"]},
            ),
            FIT,
            "BucketNotAllowed",
        ),
        (
            web(
                "http://store.example:9000/public/a",
                {"name": "b", "endpoints": ["http://store.example:9000"], "buckets": ["public"]},
            ),
            FIT,
            "",
        ),
        (web("hf://datasets/team/set"), FIT, ""),
        (web("hf://datasets/team/set", endpoint="http://mirror.team.svc"), FIT, "EndpointNotAllowed"),
        (
            web("hf://datasets/team/set", {"name": "own", "endpoints": ["https://huggingface.co"]}),
            INSIDE,
            "",
        ),
    ],
)
def test_web_servers_and_mirrors_of_the_hub_are_judged_as_stores_are(
    source_use: SourceUse, answer: HostAnswer, reason: str
) -> None:
    refusal = may_read(source_use, answer=answer, networks_known=True)
    assert (refusal.reason if refusal else "") == reason
    if refusal is not None and not source_use.spec.source.uri.startswith("hf"):
        assert "spec.source.options.endpoint" not in refusal.message


@pytest.mark.parametrize("spec", [use().spec, web("hf://datasets/team/set").spec])
def test_a_cache_cluster_that_compares_stock_alluxio_holds_no_datasets(spec: DatasetSpec) -> None:
    refused = unmountable(spec, CacheClusterSpec.model_validate({"profile": "Stock"}))
    assert refused is not None
    assert refused.reason == "EngineCannotMount"
    assert "spec.profile Stock" in refused.message
    assert "with the profile Tuned or with spec.engine Native" in refused.message
    assert unmountable(spec, CacheClusterSpec.model_validate({"engine": "Native"})) is None
    assert unmountable(spec, CacheClusterSpec.model_validate({})) is None


@pytest.mark.parametrize(
    ("uri", "canonical"),
    [
        ("HTTPS://Data.Example:443//set//a%20b/", "https://data.example/set/a%20b"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
        ("hf://team/model", "hf://models/team/model"),
        ("hf://spaces/team/app/sub/", "hf://spaces/team/app/sub"),
    ],
)
def test_two_spellings_of_a_web_source_are_one(uri: str, canonical: str) -> None:
    assert canonical_source_uri(uri) == canonical


@pytest.mark.parametrize(
    "uri",
    [
        "https://",
        "https://me@host/x",
        "https://host/%2e%2e/x",
        "https://host/a/../../x",
        "https://host/x?y",
        "http://0x7f.1/x",
        "http://2130706433/",
        "http://[::ffff:7f00:1]/",
        "http://host:99999/",
        "hf://datasets/team",
        "hf://team",
        "hf://datasets/te am/set",
        "hf://datasets/team/set@v1",
        "hf://datasets/../set",
    ],
)
def test_what_may_lead_elsewhere_is_no_web_source(uri: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        canonical_source_uri(uri)
