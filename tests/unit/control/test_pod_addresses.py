"""Which addresses are those of pods, as pods come and end."""

from typing import Any

from tdcs.control.node_usage import PodAddresses, addresses_of_pod


def pod(*addresses: str, **spec: Any) -> dict[str, Any]:
    return {"spec": spec, "status": {"podIPs": [{"ip": address} for address in addresses]}}


def test_a_pod_has_all_its_addresses_and_one_in_its_nodes_network_none() -> None:
    assert addresses_of_pod(pod("10.0.0.1", "fd00::1")) == ["10.0.0.1", "fd00::1"]
    assert addresses_of_pod(pod("172.18.0.2", hostNetwork=True)) == []
    assert addresses_of_pod({"spec": {}}) == []


def test_an_address_counts_until_the_last_pod_that_has_it_has_ended() -> None:
    addresses = PodAddresses()
    addresses.seen(("n", "a"), ["10.0.0.1", "fd00:0::1"])
    assert "fd00::1" in addresses
    addresses.seen(("n", "b"), ["10.0.0.1"])  # its next pod, seen before the end of the first
    addresses.seen(("n", "a"), [])
    assert "10.0.0.1" in addresses
    assert "fd00::1" not in addresses
    addresses.seen(("n", "b"), ["10.0.0.2"])
    assert "10.0.0.1" not in addresses
    addresses.seen(("n", "b"), [])
    addresses.seen(("n", "c"), [])
    assert "10.0.0.2" not in addresses
