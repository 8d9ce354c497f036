"""A Dataset may read its source by the rules of its CacheCluster, and by where the name of its store leads."""

from typing import Any

import pytest

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.dataset import DatasetSpec
from tdcs.decide.may_read import HostAnswer, SourceUse, may_read, missing_cluster, pinned_address

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
    ("asked", "answer", "networks", "reason", "permanent"),
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
    asked: SourceUse, answer: HostAnswer, networks: bool, reason: str, permanent: bool
) -> None:
    found = may_read(asked, answer=answer, networks_known=networks)
    assert (found.reason if found else "", found.permanent if found else False) == (reason, permanent)


def test_requests_without_tls_go_to_the_address_that_was_looked_at() -> None:
    assert pinned_address(use(endpoint=PLAIN), answer=FIT) == "203.0.113.7"
    assert pinned_address(use(), answer=FIT) == ""
    named = use(endpoint=PLAIN, rules=[{"name": "own", "endpoints": [PLAIN]}])
    assert named.host == ""
    assert pinned_address(named, answer=FIT) == ""


def test_a_cache_that_goes_takes_no_new_dataset() -> None:
    going = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert missing_cluster(going, name="c", new=False) is None
    found = missing_cluster(going, name="c", new=True)
    assert found is not None
    assert found.reason == "CacheClusterDeleting"
    absent = missing_cluster(None, name="c", new=False)
    assert absent is not None
    assert absent.reason == "CacheClusterNotFound"


@pytest.mark.parametrize(("host", "named"), [("store.shared", "store.shared.svc"), ("s3.example.org", "")])
def test_a_service_that_is_named_in_short_is_told_by_its_full_name(host: str, named: str) -> None:
    unknown = HostAnswer(known=True, failure="Name or service not known")
    found = may_read(use(endpoint=f"https://{host}"), answer=unknown, networks_known=True)
    assert found is not None
    assert ("a Service is named in full" in found.message) == bool(named)
    assert found.message.endswith(f"such as {named}") or not named
