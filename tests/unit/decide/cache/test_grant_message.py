"""What the condition Granted says: the cause that holds, and a remedy that helps."""

from typing import Any

import pytest
from tests.unit.decide.builders import DIGEST, MOUNT, candidate, totals_of

from tdcs.api import names
from tdcs.api.conditions import WARNINGS, Finding
from tdcs.api.dataset import Dataset
from tdcs.api.sharing import Access, Eviction
from tdcs.cli import crd_documents
from tdcs.decide import dataset_conditions
from tdcs.decide.cache import grant_message, wants
from tdcs.decide.cache.grants import GrantTier, MountGrant
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.slot_nodes import PlacementInput, WantPlacement, place

SIZES = [4, 3, 3]
"""Bytes of three slots of one copy."""


def placed(
    *, quota: int | None = None, room: int = 1000, clones: int = 0, **placement: Any
) -> list[WantPlacement]:
    """What a Dataset comes to on four nodes, and after it its clones."""
    want = Want(key=wants.dataset_key(namespace="n", name="one"), **placement)
    further = [
        wants.of_clone(want, namespace="n", name="one", copy=f"{names.CLONE_COPY}{number + 1}")
        for number in range(clones)
    ]
    inputs = PlacementInput(
        mount=MOUNT,
        manifest=DIGEST,
        wants=(want, *further),
        totals={(): totals_of(SIZES)},
        candidates=tuple(candidate(name, free=room) for name in "abcd"),
        payers={} if quota is None else {want.key: ("vision",) for want in (want, *further)},
        quotas={} if quota is None else {"vision": quota},
    )
    return list(place(inputs))


def granted(mine: WantPlacement | None, *clones: WantPlacement, access: Access | None = None) -> Finding:
    return grant_message.granted(
        grant=MountGrant(tier=GrantTier.ACTIVE, largest_cache=1000),
        mine=mine,
        clones=clones,
        access=access or Access(max_concurrent_jobs=1, on_limit="Clone"),
        eviction=Eviction(),
        unknown="",
        installed=(),
    )


@pytest.mark.parametrize("quota", [2, 8], ids=["nothing", "a part"])
def test_a_quota_that_is_too_small_is_named_by_each_condition_and_not_the_empty_caches(quota: int) -> None:
    (mine,) = placed(quota=quota, mode="Replicate", node_count=1)
    assert mine.unplaced_bytes > 0
    for condition in (dataset_conditions.placed(mine), granted(mine)):
        assert (condition.status, condition.reason) == ("False", "QuotaExceeded")
        assert condition.reason in WARNINGS
        assert "quota vision of the CacheCluster (spec.quotas) allows" in condition.message
        assert "Raise that quota" in condition.message
        assert "cache capacity or nodes" not in condition.message


def test_a_cache_that_is_too_small_is_named_where_no_quota_is_short() -> None:
    (mine,) = placed(quota=1000, room=8, mode="Replicate", node_count=1)
    condition = dataset_conditions.placed(mine)
    assert (condition.status, condition.reason) == ("False", "NotAllFits")
    assert "Add cache capacity or nodes" in condition.message


def test_a_clone_that_a_quota_keeps_out_names_the_quota() -> None:
    mine, clone = placed(quota=15, clones=1, mode="Replicate", node_count=1)
    assert mine.copies
    assert not clone.copies
    condition = granted(mine, clone)
    assert (condition.status, condition.reason) == ("False", "QuotaExceeded")
    assert "quota vision of the CacheCluster (spec.quotas) keeps out 1 clone of 10 bytes" in condition.message
    assert "Add cache nodes" not in condition.message


def test_a_clone_of_data_that_is_on_every_node_asks_for_a_node_count() -> None:
    mine, clone = placed(clones=1, mode="Replicate")
    assert len(mine.nodes) == 4
    condition = granted(mine, clone)
    assert (condition.status, condition.reason) == ("False", "NoRoomForClone")
    assert "Set spec.placement.nodeCount" in condition.message
    assert "Add cache nodes" not in condition.message


def test_clones_without_room_ask_for_nodes_or_capacity() -> None:
    mine, *clones = placed(clones=5, mode="Replicate", node_count=1)
    assert [len(placement.copies) for placement in clones] == [1, 1, 1, 0, 0]
    condition = granted(mine, *clones)
    assert condition.reason == "NoRoomForClone"
    assert condition.message.startswith(
        "2 clones of 10 bytes for waiting jobs (spec.access.onLimit) found no room"
    )
    assert condition.message.endswith("Add cache nodes or capacity")


def test_clones_of_what_is_not_preloaded_are_refused_by_the_api_server() -> None:
    assert granted(None, access=Access(max_concurrent_jobs=1)).status == "True"
    kind = next(kind for kind in crd_documents.KINDS if kind.model is Dataset)
    version = crd_documents.definition(kind)["spec"]["versions"][0]
    rules = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"]
    assert any("set preload.enabled to true" in rule["message"] for rule in rules)


@pytest.mark.parametrize(
    ("room", "load_seconds", "reason"),
    [(1000, 1, "KeptByTwin"), (8, 1, "NotAllFits"), (1000, 9, "TtlShorterThanLoad")],
)
def test_that_a_twin_keeps_it_is_said_of_a_dataset_that_lacks_nothing_else(
    room: int, load_seconds: int, reason: str
) -> None:
    (mine,) = placed(room=room, mode="Replicate", node_count=1)
    condition = grant_message.granted(
        grant=MountGrant(tier=GrantTier.ACTIVE, largest_cache=1000),
        mine=mine,
        clones=(),
        access=Access(),
        eviction=Eviction(policy="Timed", ttl="5s"),
        unknown="",
        installed=(),
        load_seconds=load_seconds,
        kept_by_twin=True,
    )
    assert (condition.reason, condition.status) == (reason, "False" if reason == "NotAllFits" else "True")


def test_slots_without_a_byte_are_no_grant() -> None:
    (none,) = placed(quota=2, mode="Replicate", node_count=1)
    why = granted(none)
    grant = grant_message.grant_of(mine=[none], why=why)
    assert (grant.bytes, grant.slots, grant.reason) == (0, 0, "QuotaExceeded")
    (whole,) = placed(mode="Replicate", node_count=1)
    assert grant_message.grant_of(mine=[whole], why=granted(whole)).slots == 4096
