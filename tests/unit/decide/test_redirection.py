"""Where the readers of a web source may be sent by its server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.redirection import Hop, next_hop, refused_address

ORIGIN = "https://data.example"


def hop(location: str, **changes: Any) -> Hop:
    options = {"url": f"{ORIGIN}/d/f?z=2", "origin": ORIGIN, "host": "", "allowed": (), **changes}
    return next_hop(location=location, **options)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/x", f"{ORIGIN}/x"),
        ("x", f"{ORIGIN}/d/x"),
        ("?q", f"{ORIGIN}/d/f?q"),
        (f"{ORIGIN}//a/b?x=1", f"{ORIGIN}//a/b?x=1"),
        ("https://DATA.example:443/x#part", f"{ORIGIN}/x"),
        (ORIGIN, f"{ORIGIN}/"),
    ],
)
def test_the_own_server_is_followed_and_shown_the_credentials(location: str, url: str) -> None:
    assert hop(location) == Hop(url, own=True)


def test_a_server_reached_by_an_address_may_call_itself_by_its_name() -> None:
    reached = {"origin": "https://203.0.113.5", "url": "https://203.0.113.5/f", "host": "data.example"}
    assert hop("https://data.example/x", **reached) == Hop("https://203.0.113.5/x", own=True)


@pytest.mark.parametrize("location", ["https://cdn.example/x?sig=1", "//cdn.example/x?sig=1"])
def test_a_host_of_the_internet_with_tls_is_followed_without_credentials_once_looked_at(
    location: str,
) -> None:
    assert hop(location) == Hop("https://cdn.example/x?sig=1", checked=True)


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://cdn.example/x", "has no TLS"),
        ("http://data.example/x", "has no TLS"),
        ("https://10.0.0.1/", "no host of the internet"),
        ("https://[::1]/", "no host of the internet"),
        ("https://[::ffff:10.0.0.1]/", "no address"),
        ("https://kubernetes.default.svc./x", "no host of the internet"),
        ("https://registry/x", "no host of the internet"),
        ("https://2130706433/x", "no address"),
        ("https://0x7f.1/x", "no address"),
        ("https://data.example@cdn.example/x", "no address"),
        ("https://user:secret@data.example/x", "no address"),
        ("https://data.example:0/x", "no address"),
        ("https://[/x", "no address"),
        ("ftp://data.example/x", "no address"),
        ("file:///etc/passwd", "no address"),
    ],
)
def test_anything_else_is_refused_with_the_reason(location: str, why: str) -> None:
    refused = hop(location)
    assert why in refused.refusal
    assert refused == Hop("", refusal=refused.refusal)


@pytest.mark.parametrize("endpoint", ["http://mirror.internal:8080", "https://10.0.0.1"])
def test_an_endpoint_that_a_rule_names_is_followed_wherever_it_is(endpoint: str) -> None:
    assert hop(f"{endpoint}/x", allowed={endpoint}) == Hop(f"{endpoint}/x")
    assert hop(f"{endpoint}/x", allowed={endpoint}, proxied=True) == Hop(f"{endpoint}/x")
    assert hop(f"{endpoint}/x").refusal


def test_behind_a_proxy_only_hosts_that_rules_name_are_followed() -> None:
    assert "as it must be where a proxy is asked" in hop("https://cdn.example/x", proxied=True).refusal
    assert hop("/x", proxied=True).own


@given(
    st.sampled_from(["", "https://", "https://data.example"]),
    st.text("htps:/@.?#[]\\%0x data\n", max_size=20),
)
def test_whatever_a_server_says_credentials_go_to_its_own_origin_only(start: str, rest: str) -> None:
    answer = hop(start + rest)
    assert answer.own is False or answer.url.startswith((f"{ORIGIN}/", f"{ORIGIN}?"))
    assert bool(answer.url) is not bool(answer.refusal)


@pytest.mark.parametrize("address", ["10.0.0.1", "203.0.113.5", "8.8.8.8", "2606:4700::1"])
def test_addresses_that_are_not_known_as_internal_are_followed(address: str) -> None:
    assert refused_address(address) == ""


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1", "::", "224.0.0.1", "x"]
)
def test_the_machine_its_link_and_its_clouds_metadata_are_not_followed(address: str) -> None:
    assert refused_address(address).startswith("it redirects to a host with a ")
