"""Difference in free room between two passes over a cache."""

from tdcs.decide.cache.room_change import RoomChange


def change(
    *, usable: dict[str, int], before: dict[str, int], mounts: tuple[str, ...] = ("a", "b", "c")
) -> RoomChange:
    """Mounts that took 10 bytes on a node of their own name in the previous pass."""
    return RoomChange(usable=usable, before=before, taken_before={mount: {mount: 10} for mount in mounts})


def test_equal_room_concerns_no_node() -> None:
    room = change(usable={"n": 5}, before={"n": 5})
    assert room.reach("a")
    assert not room.concerns(["n", "a"])
    assert not room.concerns([])


def test_room_that_grew_shrank_came_or_went_concerns_its_node_alone() -> None:
    room = change(
        usable={"grew": 6, "shrank": 4, "new": 1, "same": 5},
        before={"grew": 5, "shrank": 5, "same": 5, "old": 1},
    )
    assert [node for node in ("grew", "shrank", "new", "old", "same") if room.concerns([node])] == [
        "grew",
        "shrank",
        "new",
        "old",
    ]


def test_a_mount_that_left_gives_its_room_to_those_after_it() -> None:
    room = change(usable={}, before={})
    assert room.reach("b")
    assert room.concerns(["a"])
    assert not room.concerns(["b"])


def test_new_and_passed_mounts_cannot_be_compared() -> None:
    room = change(usable={}, before={})
    assert not room.reach("new")
    assert room.reach("b")
    assert not room.reach("a")
    assert not room.reach("b")
    assert room.reach("c")


def test_a_mount_that_takes_more_on_one_node_changes_the_room_until_it_is_given_back() -> None:
    room = change(usable={}, before={})
    room.take({"a": 12}, before={"a": 10})
    assert room.concerns(["a"])
    room.take({"a": 8}, before={"a": 10})
    assert not room.concerns(["a"])
