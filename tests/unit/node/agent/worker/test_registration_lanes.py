"""Lanes on which mounts register blocks: those of a rest end when blocks begin to be brought."""

from __future__ import annotations

from tdcs.node.agent.transfer.registrar import BUSY_LANES, LANES, RegistrationLanes


def test_lanes_of_a_rest_end_one_by_one_until_as_many_are_left_as_are_allowed() -> None:
    lanes = RegistrationLanes()
    lanes.allow(LANES)
    for mount in ("/a", "/b"):
        lanes.begin(mount, lanes=LANES // 2)
    assert lanes.free == 0
    assert not lanes.leaves("/a")
    lanes.allow(BUSY_LANES)
    ended = [mount for _ in range(LANES) for mount in ("/a", "/b") if lanes.leaves(mount)]
    assert len(ended) == LANES - BUSY_LANES
    assert lanes.free == 0
    lanes.allow(0)
    assert lanes.leaves("/a")
    for mount in ("/a", "/b"):
        lanes.end(mount)
    assert lanes.free == 0
    lanes.allow(LANES)
    assert lanes.free == LANES


def test_the_lane_of_a_long_wait_ends_with_its_batch() -> None:
    lanes = RegistrationLanes()
    lanes.allow(1)
    lanes.begin("/a", lanes=1)
    lanes.allow(0)
    assert not lanes.leaves("/a")
    lanes.end("/a")
    lanes.allow(LANES)
    lanes.begin("/a", lanes=LANES)
    lanes.allow(0)
    assert lanes.leaves("/a"), "what was before does not count"
