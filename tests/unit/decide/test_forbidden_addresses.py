"""Addresses and host names that lead into the cluster, to the node or to its cloud."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.forbidden_addresses import (
    forbidden_kind,
    internal_kind,
    internal_name,
    parse_networks,
    plain_address,
)

INTERNAL = parse_networks(["10.0.0.0/8", "fd12::/16"])


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("64:ff9b::a00:1", "10.0.0.1"),
        ("64:ff9b:1::a00:1", "10.0.0.1"),
        ("2002:a00:1::", "10.0.0.1"),
        ("::10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("::", "::"),
        ("fe80::1%eth0", "fe80::1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_an_ipv4_address_in_an_ipv6_address_counts_as_itself(text: str, plain: str) -> None:
    assert str(plain_address(text)) == plain


@pytest.mark.parametrize("text", ["", "store.example.com", "10.0.0", "010.0.0.1", "1.2.3.4.5", "0x7f000001"])
def test_a_text_that_is_no_address_is_never_allowed(text: str) -> None:
    assert plain_address(text) is None
    assert forbidden_kind(text) == internal_kind(text, internal=()) == "no address"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("169.254.169.254", "link-local or metadata"),
        ("::ffff:169.254.169.254", "link-local or metadata"),
        ("64:ff9b::a9fe:a9fe", "link-local or metadata"),
        ("fe80::1", "link-local or metadata"),
        ("100.100.100.200", "link-local or metadata"),
        ("168.63.129.16", "link-local or metadata"),
        ("192.0.0.192", "link-local or metadata"),
        ("fd00:ec2::254", "link-local or metadata"),
        ("fd20:ce::254", "link-local or metadata"),
        ("0.0.0.0", "unspecified or multicast"),  # noqa: S104
        ("::", "unspecified or multicast"),
        ("224.0.0.1", "unspecified or multicast"),
        ("ff02::1", "unspecified or multicast"),
        ("100.100.100.201", ""),
        ("127.0.0.1", ""),
        ("10.0.0.1", ""),
        ("93.184.216.34", ""),
    ],
)
def test_addresses_that_no_rule_can_allow(text: str, kind: str) -> None:
    assert forbidden_kind(text) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("10.255.255.255", "cluster-internal"),
        ("::ffff:10.1.2.3", "cluster-internal"),
        ("fd12::1", "cluster-internal"),
        ("203.0.113.9", "cluster-internal"),
        ("11.0.0.0", ""),
        ("fd13::1", ""),
        ("93.184.216.34", ""),
        ("169.254.169.254", "link-local or metadata"),
    ],
)
def test_addresses_that_only_a_rule_can_allow(text: str, kind: str) -> None:
    assert internal_kind(text, internal=INTERNAL, pods={"203.0.113.9"}) == kind


@given(st.ip_addresses(v=4))
def test_every_ipv4_address_is_judged_alike_in_each_form_of_ipv6(address: object) -> None:
    plain = str(address)
    for form in ("::ffff:", "64:ff9b::"):
        assert internal_kind(f"{form}{plain}", internal=INTERNAL) == internal_kind(plain, internal=INTERNAL)


def test_a_network_may_be_written_by_any_of_its_addresses() -> None:
    assert list(map(str, parse_networks(["10.1.2.3/8", "10.0.0.1"]))) == ["10.0.0.0/8", "10.0.0.1/32"]
    assert parse_networks([]) == ()
    with pytest.raises(ValueError, match=r"10.0.0.0/33"):
        parse_networks(["10.0.0.0/33"])


@pytest.mark.parametrize(
    ("host", "internal"),
    [
        ("localhost", True),
        ("minio", True),
        ("minio.storage.svc", True),
        ("minio.storage.svc.cluster.local", True),
        ("metadata.google.internal", True),
        ("printer.local", True),
        ("localhost.localdomain", True),
        ("store.example.com", False),
        ("svc.example.com", False),
        ("notlocal.com", False),
        ("mylocal", True),
        ("10.0.0.1", False),
        ("::1", False),
    ],
)
def test_names_that_only_the_cluster_or_the_machine_resolves(host: str, internal: bool) -> None:
    assert internal_name(host) is internal
