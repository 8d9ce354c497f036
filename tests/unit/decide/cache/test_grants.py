"""What mounts are granted of a cache: never more than there is, to whom it is worth most, and the same again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.decide.builders import candidate, totals_of

from tdcs.api.dataset import PlacementMode
from tdcs.decide.cache.grants import GrantInput, Grants, GrantTier, MountDemand, MountGrant, grant
from tdcs.decide.cache.room_change import RoomChange
from tdcs.decide.cache.wants import Want, clone_key, dataset_key, of_clone
from tdcs.decide.place.slot_nodes import ReadingNodes, WantPlacement
from tdcs.decide.worker_count import Bounds, Site, follow_jobs
from tdcs.model import slots

NODES = "abcd"


def want(name: str, **more: Any) -> Want:
    key = dataset_key(namespace="n", name=name)
    return Want(key=key, dataset=key, mode="Partition", **more)


def mount(
    name: str, *, size: int = 1000, blocks: int = 100, wants: Sequence[Want] | None = None, **more: Any
) -> MountDemand:
    """A dataset of equal blocks that is wanted once, partitioned, unless said otherwise."""
    totals = totals_of([size // blocks] * blocks)
    mine = [want(name)] if wants is None else wants
    return MountDemand(
        path=f"/{name}",
        manifest=name,
        wants=tuple(mine),
        totals={(): totals, **{want.paths: totals for want in mine}},
        candidates=tuple(map(candidate, NODES)),
        **more,
    )


def granted(*mounts: MountDemand, room: int | Mapping[str, int] = 500, **quotas: int) -> Grants:
    usable = dict.fromkeys(NODES, room) if isinstance(room, int) else room
    return grant(GrantInput(mounts=mounts, usable=usable, quotas=quotas))


def held(grants: Grants, name: str) -> int:
    return sum(grants.mounts[f"/{name}"].node_bytes.values())


def holder_masks(grant: MountGrant) -> dict[str, Any]:
    masks: dict[str, Any] = {}
    for placement in grant.placements:
        for copy in placement.copies:
            for node, bitmap in copy.nodes.items():
                masks[node] = masks.get(node, np.zeros(slots.SLOTS, dtype=bool)) | slots.mask_of(bitmap)
    return masks


def test_what_is_used_stays_and_the_least_valuable_leaves_first() -> None:
    grants = granted(
        mount("old", value=1),
        mount("new", value=2),
        mount("read", tier=GrantTier.ACTIVE),
        room=500,
    )
    assert (held(grants, "read"), held(grants, "new"), held(grants, "old")) == (1000, 1000, 0)


def test_pinned_data_chooses_before_data_that_is_read_and_this_before_awaited_data() -> None:
    grants = granted(
        mount("waited", tier=GrantTier.WAITING),
        mount("read", tier=GrantTier.ACTIVE),
        mount("pinned", tier=GrantTier.PINNED),
        mount("timed", tier=GrantTier.KEPT),
        mount("idle"),
        room=625,
    )
    assert [held(grants, name) for name in ("pinned", "read")] == [1000, 1000]
    assert 460 <= held(grants, "waited") <= 500
    assert held(grants, "timed") + held(grants, "idle") <= 40


def test_of_two_that_jobs_need_the_one_with_a_grant_keeps_it() -> None:
    before = {want("b").key: {"0": frozenset("abcd")}}
    grants = granted(
        mount("a", tier=GrantTier.ACTIVE, value=9),
        mount("b", tier=GrantTier.ACTIVE, value=1, held_before=before),
        room=250,
    )
    assert (held(grants, "a"), held(grants, "b")) == (0, 1000)


def test_one_that_is_due_leaves_although_there_is_room() -> None:
    grants = granted(mount("due", tier=GrantTier.DUE))
    assert grants.mounts["/due"].evicted
    assert held(grants, "due") == 0


def test_what_reads_have_filled_stays_while_there_is_room_and_leaves_as_a_whole() -> None:
    filled = mount("filled", wants=(), filled={"a": 400}, value=9)
    assert not granted(filled, mount("other", size=1600)).mounts["/filled"].evicted
    crowded = granted(filled, mount("other", size=2000, tier=GrantTier.ACTIVE))
    assert crowded.mounts["/filled"].evicted
    used = granted(replace(filled, tier=GrantTier.ACTIVE), mount("other", size=2000))
    assert not used.mounts["/filled"].evicted
    assert held(used, "other") <= 1600


@pytest.mark.parametrize("mode", ["Partition", "Replicate"])
def test_a_quota_bounds_the_bytes_of_all_copies(mode: PlacementMode) -> None:
    wants = [replace(want("a"), mode=mode, node_count=2)]
    grants = granted(mount("a", size=400, wants=wants, payers={wants[0].key: ("team",)}), team=300)
    assert 280 <= held(grants, "a") <= 300
    (placement,) = grants.mounts["/a"].placements
    assert placement.short_of == "team"
    assert grants.quotas["team"] == 300 - held(grants, "a")


def test_what_others_pay_for_on_the_same_nodes_costs_a_quota_as_much_as_what_nobody_has() -> None:
    """Else it would get less at the moment at which the others leave."""
    mine, theirs = want("a"), want("theirs")
    payers = {mine.key: ("mine",), theirs.key: ("theirs",)}
    grants = granted(mount("a", wants=[mine, theirs], payers=payers), mine=1000, theirs=10)
    alone = granted(mount("a", wants=[theirs], payers=payers), mine=1000, theirs=10)
    assert [placement.wanted_bytes for placement in grants.mounts["/a"].placements] == [1000, 10]
    assert [placement.wanted_bytes for placement in alone.mounts["/a"].placements] == [10]
    assert grants.quotas == {"mine": 0, "theirs": 0}
    assert held(grants, "a") == 1000


def test_what_two_datasets_of_one_quota_have_on_the_same_nodes_costs_it_once() -> None:
    mine, twin = want("a"), want("twin")
    payers = {mine.key: ("team", "all"), twin.key: ("team", "all")}
    grants = granted(mount("a", wants=[mine, twin], payers=payers), team=1000, all=1500)
    assert [placement.wanted_bytes for placement in grants.mounts["/a"].placements] == [1000, 1000]
    assert grants.quotas == {"team": 0, "all": 500}


def test_a_quota_that_is_made_smaller_evicts_nothing_that_is_pinned_and_there() -> None:
    mine = mount("a", tier=GrantTier.PINNED, payers={want("a").key: ("team",)})
    present = replace(mine, candidates=tuple(candidate(name, held=250) for name in NODES))
    assert held(granted(present, team=100), "a") == 1000
    assert held(granted(mine, team=100), "a") == 100


def test_a_clone_is_on_other_nodes_as_a_whole_or_not_at_all() -> None:
    base = want("a", node_count=2)
    clone = of_clone(base, namespace="n", name="a", copy="clone-1")
    assert clone.key == clone_key(namespace="n", name="a", copy="clone-1")
    first, second = granted(mount("a", wants=[base, clone], tier=GrantTier.ACTIVE)).mounts["/a"].placements
    assert not set(first.nodes) & set(second.nodes)
    assert second.wanted_bytes == 1000
    small = granted(
        mount("a", wants=[base, clone], tier=GrantTier.ACTIVE), room={"a": 500, "b": 500, "c": 500, "d": 400}
    )
    assert [placement.wanted_bytes for placement in small.mounts["/a"].placements] == [1000, 0]


MOUNT = st.fixed_dictionaries(
    {
        "size": st.integers(1, 40).map(lambda part: part * 100),
        "tier": st.sampled_from(list(GrantTier)),
        "value": st.integers(0, 3),
        "count": st.none() | st.integers(1, 4),
        "mode": st.sampled_from(["Auto", "Partition", "Replicate"]),
        "clones": st.integers(0, 2),
        "quota": st.sampled_from([(), ("one",), ("one", "two")]),
    }
)


def built(number: int, shape: Mapping[str, Any]) -> MountDemand:
    base = replace(want(f"m{number}", node_count=shape["count"]), mode=shape["mode"])
    further = [
        of_clone(base, namespace="n", name=f"m{number}", copy=f"clone-{clone}")
        for clone in range(shape["clones"])
    ]
    wants = [base, *further]
    return mount(
        f"m{number}",
        size=shape["size"],
        wants=wants,
        tier=shape["tier"],
        value=shape["value"],
        payers={want.key: shape["quota"] for want in wants if shape["quota"]},
    )


@settings(deadline=None, max_examples=60)
@given(shapes=st.lists(MOUNT, min_size=1, max_size=5), room=st.integers(1, 30).map(lambda part: part * 100))
def test_no_node_and_no_quota_is_promised_twice_and_the_same_again_is_the_same(
    shapes: list[dict[str, Any]], room: int
) -> None:
    mounts = [built(number, shape) for number, shape in enumerate(shapes)]
    quotas = {"one": 3000, "two": 1500}
    grants = granted(*mounts, room=room, **quotas)
    for node in NODES:
        assert sum(granted.node_bytes.get(node, 0) for granted in grants.mounts.values()) <= room
        for demand in mounts:
            grant = grants.mounts[demand.path]
            masks = holder_masks(grant)
            if node in masks:
                sizes = demand.totals[()].sizes
                assert int(sizes[masks[node]].sum()) == grant.node_bytes[node]
    for quota, limit in quotas.items():
        paid = [mount for mount in mounts if any(quota in payers for payers in mount.payers.values())]
        assert sum(held(grants, mount.path[1:]) for mount in paid) <= limit
    # With what was granted as what was held before, nothing moves any more.
    second = granted(*(remembering(mount, grants) for mount in mounts), room=room, **quotas)
    third = granted(*(remembering(mount, second) for mount in mounts), room=room, **quotas)
    assert {path: grant.node_bytes for path, grant in second.mounts.items()} == {
        path: grant.node_bytes for path, grant in third.mounts.items()
    }


def remembering(mount: MountDemand, grants: Grants) -> MountDemand:
    """The mount with what it was granted as what it held before."""
    placements = grants.mounts[mount.path].placements
    before = {placement.want.key: placement.holders for placement in placements if placement.copies}
    return replace(mount, held_before=before)


def at_rest(before: Grants, *mounts: MountDemand, room: int, **quotas: int) -> Grants:
    """The grants once the passes change nothing any more."""
    for _ in range(10):
        grants = again(before, *(remembering(mount, before) for mount in mounts), room=room, **quotas)
        if {path: grant.placements for path, grant in grants.mounts.items()} == {
            path: grant.placements for path, grant in before.mounts.items()
        }:
            return grants
        before = grants
    raise AssertionError("the grants do not come to rest")


@settings(deadline=None, max_examples=60)
@given(
    shapes=st.lists(MOUNT, min_size=1, max_size=4), rooms=st.lists(st.integers(1, 30), min_size=2, max_size=4)
)
def test_a_new_operator_grants_what_the_last_one_did_whatever_room_there_was_before(
    shapes: list[dict[str, Any]], rooms: list[int]
) -> None:
    mounts = [built(number, shape) for number, shape in enumerate(shapes)]
    quotas = {"one": 3000, "two": 1500}
    grants = granted(*mounts, room=rooms[0] * 100, **quotas)
    for room in rooms:
        grants = at_rest(grants, *mounts, room=room * 100, **quotas)
    fresh = granted(*(remembering(mount, grants) for mount in mounts), room=rooms[-1] * 100, **quotas)
    assert granted_placements(fresh) == granted_placements(grants)


def granted_placements(grants: Grants) -> dict[str, list[WantPlacement]]:
    """The placements of each mount that are granted bytes; where a want without any stands moves nothing."""
    return {
        path: [placement for placement in grant.placements if placement.wanted_bytes]
        for path, grant in grants.mounts.items()
    }


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), room=st.integers(1, 20))
def test_no_slot_is_without_a_holder_while_there_is_room(sizes: list[int], room: int) -> None:
    mounts = [
        mount(f"m{number}", size=size * 100, value=number, wants=[want(f"m{number}", node_count=4)])
        for number, size in enumerate(sizes)
    ]
    grants = granted(*mounts, room=room * 100)
    short = [mount for mount in mounts if held(grants, mount.path[1:]) < mount.totals[()].block_bytes]
    if short:
        largest = max(mount.totals[()].largest_block for mount in short)
        assert min(grants.free.values()) < largest


@settings(deadline=None, max_examples=40)
@given(size=st.integers(1, 40), room=st.integers(1, 20), more=st.integers(0, 5))
def test_a_smaller_grant_holds_a_part_of_what_a_larger_one_holds(size: int, room: int, more: int) -> None:
    wants = [replace(want("a"), mode="Replicate", node_count=1)]
    before = {wants[0].key: {"0": frozenset("a")}}
    small_and_large = [
        granted(mount("a", size=size * 100, wants=wants, held_before=before), room={"a": free * 100})
        for free in (room, room + more)
    ]
    small, large = (
        holder_masks(each_grants.mounts["/a"]).get("a", np.zeros(slots.SLOTS, bool))
        for each_grants in small_and_large
    )
    assert not (small & ~large).any()


def again(before: Grants, *mounts: MountDemand, room: int = 500, **quotas: int) -> Grants:
    """The pass that follows another one."""
    usable = dict.fromkeys(NODES, room)
    return grant(GrantInput(mounts=mounts, usable=usable, quotas=quotas), before=before)


def test_a_pass_after_another_one_places_only_what_asks_for_something_else_or_finds_no_room() -> None:
    mounts = [mount("a", value=2), mount("b", value=1)]
    first = granted(*mounts)
    repeated = again(first, *mounts)
    assert all(repeated.mounts[path] is first.mounts[path] for path in first.mounts)
    renewed = [replace(mounts[0], tier=GrantTier.ACTIVE), mount("b", value=1, wants=[want("b", bandwidth=5)])]
    after = again(first, *renewed)
    assert after.mounts["/a"].tier is GrantTier.ACTIVE
    assert all(after.mounts[path].placements is first.mounts[path].placements for path in first.mounts)
    larger = again(first, mounts[0], replace(mount("b", size=900, value=1), manifest="b2"))
    assert larger.mounts["/a"] is first.mounts["/a"]
    assert held(larger, "b") == 900
    tight = again(first, *mounts, room=300)
    assert (held(tight, "a"), held(tight, "b") < 1000) == (1000, True)
    assert held(again(tight, *mounts), "b") == 1000


@settings(deadline=None, max_examples=40)
@given(
    shapes=st.lists(MOUNT, min_size=1, max_size=5), rooms=st.lists(st.integers(1, 30), min_size=2, max_size=3)
)
def test_what_is_kept_from_pass_to_pass_is_never_more_than_there_is(
    shapes: list[dict[str, Any]], rooms: list[int]
) -> None:
    mounts = [built(number, shape) for number, shape in enumerate(shapes)]
    quotas = {"one": 3000, "two": 1500}
    grants = granted(*mounts, room=rooms[0] * 100, **quotas)
    for room in rooms[1:]:
        grants = again(grants, *mounts, room=room * 100, **quotas)
        for node in NODES:
            assert sum(granted.node_bytes.get(node, 0) for granted in grants.mounts.values()) <= room * 100
        assert min(grants.quotas.values()) >= 0
    assert again(grants, *mounts, room=rooms[-1] * 100, **quotas) == grants


STEP = st.fixed_dictionaries(
    {
        "there": st.sets(st.integers(0, 5), min_size=1),
        "value": st.dictionaries(st.integers(0, 5), st.integers(0, 3), max_size=2),
        "room": st.dictionaries(st.sampled_from(NODES), st.integers(0, 30), max_size=2),
    }
)


@settings(deadline=None, max_examples=60)
@given(shapes=st.lists(MOUNT, min_size=6, max_size=6), steps=st.lists(STEP, min_size=2, max_size=6))
def test_mounts_that_find_what_they_found_are_granted_what_a_look_at_each_would_grant(
    shapes: list[dict[str, Any]], steps: list[dict[str, Any]]
) -> None:
    mounts = {number: built(number, shape) for number, shape in enumerate(shapes)}
    room = dict.fromkeys(NODES, 2000)
    quick = thorough = Grants(mounts={}, free={}, quotas={})
    for step in steps:
        for number, value in step["value"].items():
            mounts[number] = replace(mounts[number], value=value)
        room |= {node: 100 * size for node, size in step["room"].items()}
        present = tuple(mounts[number] for number in sorted(step["there"]))
        inputs = GrantInput(mounts=present, usable=dict(room), quotas={"one": 3000, "two": 1500})
        quick = grant(inputs, before=quick)
        with patch.object(RoomChange, "reach", return_value=False):
            thorough = grant(inputs, before=thorough)
        assert quick == thorough


def needed(*wants: Want, tier: GrantTier = GrantTier.ACTIVE, **quotas: int) -> int:
    payers = {want.key: tuple(quotas) for want in wants}
    demand = mount("one", wants=wants, tier=tier, payers=payers)
    return granted(demand, room=5000, **quotas).needed["/one"]


def test_what_a_cache_needs_counts_each_copy_that_is_asked_for_and_no_idle_data() -> None:
    assert needed(want("one")) == 1000
    assert needed(want("one", copies=2)) == 2000
    assert needed(want("one"), tier=GrantTier.IDLE) == needed(want("one"), tier=GrantTier.DUE) == 0
    everywhere = replace(want("one"), mode="Replicate")
    assert needed(everywhere) == 1000  # however many nodes there are
    assert needed(replace(everywhere, node_count=3)) == 3000
    assert needed(replace(everywhere, nodes=("a", "b"))) == 2000
    # What a Preload wants of the same files is on the same nodes; a clone does not.
    assert needed(want("one"), want("two")) == 1000
    clone = of_clone(want("one"), namespace="n", name="one", copy="clone-1")
    assert needed(replace(want("one"), node_count=1), replace(clone, node_count=1)) == 2000
    assert needed(want("one"), team=300) == 300  # what a quota keeps out needs no worker
    assert needed(everywhere, team=1000) == needed(everywhere, team=3000) == 1000
    one_node = replace(want("one"), node_count=1)
    assert needed(one_node, replace(clone, node_count=1), team=1900) == 1000  # no part of a clone
    assert needed(want("one"), want("two"), team=1500) == 1000


@settings(deadline=None, max_examples=60)
@given(
    shapes=st.lists(MOUNT, min_size=1, max_size=5),
    rooms=st.lists(st.dictionaries(st.sampled_from(NODES), st.integers(1, 30)), min_size=2, max_size=4),
)
def test_what_a_cache_needs_does_not_depend_on_which_nodes_it_has_nor_on_their_room(
    shapes: list[dict[str, Any]], rooms: list[dict[str, int]]
) -> None:
    mounts = [built(number, shape) for number, shape in enumerate(shapes)]
    quotas = {"one": 3000, "two": 1500}
    needs, before = [], Grants(mounts={}, free={}, quotas={})
    for room in rooms:
        present = [replace(mount, candidates=tuple(map(candidate, sorted(room)))) for mount in mounts]
        usable = {node: 100 * parts for node, parts in room.items()}
        before = grant(GrantInput(mounts=tuple(present), usable=usable, quotas=quotas), before=before)
        needs.append(before.needed)
    assert needs == needs[:1] * len(needs)


def test_a_worker_that_leaves_is_not_called_back_by_what_its_leaving_does_to_a_quota() -> None:
    """One dataset is on every node: with each worker less a quota has more left for the other one."""
    everywhere = replace(want("all"), mode="Replicate")
    twice = want("two", copies=2)
    mounts = [
        replace(
            mount(name, size=size, blocks=size, wants=[want], tier=GrantTier.ACTIVE),
            payers={want.key: ("q",)},
        )
        for name, size, want in (("all", 24, everywhere), ("two", 30, twice))
    ]
    grants = Grants(mounts={}, free={}, quotas={})
    draining: set[str] = set()
    spare: Mapping[str, float] = {}
    drained = []
    for second in range(12):
        stay = sorted({*"abc"} - draining)
        present = tuple(replace(mount, candidates=tuple(map(candidate, stay))) for mount in mounts)
        grants = grant(
            GrantInput(mounts=present, usable=dict.fromkeys(stay, 39), quotas={"q": 90}), before=grants
        )
        sites = [
            Site(
                node=node,
                has_worker=True,
                draining=node in draining,
                has_readers=node != "b",
                spare_since=spare.get(node),
            )
            for node in "abc"
        ]
        bounds = Bounds(idle_seconds=1, needed_bytes=sum(grants.needed.values()), worker_bytes=39)
        chosen = follow_jobs(sites=sites, bounds=bounds, now=float(second))
        draining, spare = {*"abc"} - {*chosen.nodes}, chosen.spare
        drained.append(sorted(draining))
    changes = sum(before != after for before, after in pairwise(drained))
    assert changes <= 1, f"the workers that drain, second by second: {drained}"


def with_readers(demand: MountDemand, readers: str) -> MountDemand:
    """The readers are those of the Dataset that the first want belongs to."""
    return replace(demand, readers={demand.wants[0].dataset: ReadingNodes(nodes=frozenset(readers))})


def nodes_of_copies(grants: Grants, name: str) -> list[set[str]]:
    return [
        set(copy.nodes) for placement in grants.mounts[f"/{name}"].placements for copy in placement.copies
    ]


def test_data_that_follows_its_readers_keeps_to_its_quota_and_leaves_clones_where_they_are() -> None:
    auto = replace(want("one"), mode="Auto")
    demand = with_readers(mount("one", wants=[auto], payers={auto.key: ("team",)}), "abc")
    assert nodes_of_copies(granted(demand, room=5000, team=9000), "one") == [{"a", "b", "c"}]
    grants = granted(demand, room=5000, team=2500)  # two whole ones, and not three in parts
    assert len(nodes_of_copies(grants, "one")[0]) == 2
    assert held(grants, "one") == 2000
    assert held(granted(demand, room=5000, team=500), "one") <= 500

    clone = of_clone(auto, namespace="n", name="one", copy="clone-1")
    before = {auto.key: {"0": frozenset("a")}, clone.key: {"clone-1": frozenset("b")}}
    read_demand = with_readers(mount("one", wants=[auto, clone], held_before=before), "ab")
    assert nodes_of_copies(granted(read_demand, room=5000), "one") == [{"a"}, {"b"}]


def test_copies_go_to_the_readers_of_their_own_dataset_and_not_to_those_of_another_one() -> None:
    mine, theirs = replace(want("mine"), mode="Auto"), replace(want("theirs"), mode="Auto")
    before = {theirs.key: {"0": frozenset("d")}}
    grants = granted(
        with_readers(mount("one", wants=[mine, theirs], held_before=before), "abc"),
        room=5000,
    )
    assert nodes_of_copies(grants, "one") == [{"a", "b", "c"}, {"d"}]
