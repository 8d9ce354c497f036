"""Who has a place at a block service when there are more connections than places."""

import pytest

from tdcs.node.wire.connections import ConnectionPlace, Connections


def answered(hosts: dict[str, int], *, most: int) -> Connections[str]:
    """A service whose connections are all being answered."""
    connections = Connections[str](most)
    for host, count in hosts.items():
        for number in range(count):
            assert connections.admit(f"{host}{number}", host=host, now=0.0).admitted
            connections.answering(f"{host}{number}")
    return connections


def test_a_new_connection_takes_the_place_of_the_one_that_is_idle_for_longest() -> None:
    places = answered({"a": 3}, most=3)
    places.idle("a1", now=5.0)
    places.idle("a0", now=7.0)
    assert places.admit("b0", host="b", now=8.0) == ConnectionPlace(admitted=True, ended="a1")
    places.answering("b0")
    assert places.admit("b1", host="b", now=9.0) == ConnectionPlace(admitted=True, ended="a0")
    assert len(places) == 3


@pytest.mark.failure_mode("agent-has-too-many-connections")
def test_while_all_are_answered_a_host_with_many_makes_room_for_one_with_few() -> None:
    places = answered({"a": 5, "b": 1}, most=6)
    for ended in ("a4", "a3"):
        assert places.admit(f"instead of {ended}", host="c", now=1.0) == ConnectionPlace(
            admitted=True, ended=ended
        )
        places.answering(f"instead of {ended}")
    assert not places.admit("one more", host="c", now=1.0).admitted, "three of a, two of c"


def test_hosts_with_equal_shares_do_not_push_one_another_out() -> None:
    places = answered({"a": 2, "b": 2}, most=4)
    assert places.admit("a2", host="a", now=1.0) == ConnectionPlace(admitted=False)
    assert places.admit("b2", host="b", now=1.0) == ConnectionPlace(admitted=False)
    assert places.admit("c0", host="c", now=1.0).admitted
    places.answering("c0")
    assert places.admit("c1", host="c", now=1.0) == ConnectionPlace(admitted=False), "two against one"
    assert sorted(places) == ["a0", "b0", "b1", "c0"]


def test_a_place_that_is_given_back_is_free() -> None:
    places = answered({"a": 2}, most=2)
    places.remove("a0")
    places.remove("a0")
    places.idle("a0", now=1.0)
    assert places.admit("a2", host="a", now=1.0) == ConnectionPlace(admitted=True)
