"""Workers of a training reach each other by whichever family of addresses a cluster has."""

import socket

import pytest
from tests.support.programs.ipv6 import LOOPBACK, needs_ipv6

from tdcs_train.peers.listening import caller, listen, listen_at

ADDRESSES = ["127.0.0.1", pytest.param(LOOPBACK, marks=needs_ipv6)]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_worker_listens_at_addresses_of_both_families(address: str) -> None:
    with listen(backlog=4) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((address, port), timeout=5), listener.accept()[0] as connection:
            assert caller(connection.getpeername()[0]) == address


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_machine_of_a_plan_listens_at_its_own_address(address: str) -> None:
    with listen_at((address, 0)) as listener:
        assert listener.getsockname()[0] == address


def test_a_cluster_without_ipv6_has_listeners_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdcs_train.peers.listening._has_ipv6", lambda: False)
    with listen() as listener:
        assert listener.family is socket.AF_INET
