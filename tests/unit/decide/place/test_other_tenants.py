"""Bytes of a mount that nodes hold for Datasets of other namespaces."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tests.unit.decide.builders import MOUNT, placement_of, totals_of

from tdcs.decide.cache.wants import Want
from tdcs.decide.place.other_tenants import OtherTenants, other_tenants
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.model import slots
from tdcs.model.agent_state import MountState

SIZES = totals_of([10, 20, 40]).sizes


def wanted(key: str, **nodes: Iterable[int]) -> WantPlacement:
    """A want with slots on nodes."""
    placement = placement_of()
    masks = {node: slots.bitmap(numbers) for node, numbers in nodes.items()}
    copies = tuple(replace(copy, nodes=masks) for copy in placement.copies)
    return replace(placement, want=Want(key=key), copies=copies)


def of_team(
    *placements: WantPlacement,
    complete: Mapping[str, Iterable[int]],
    datasets: Iterable[str] = ("Dataset team/x", "Dataset other/x"),
) -> OtherTenants:
    states = {
        node: MountState(mount=MOUNT, complete=slots.bitmap(numbers)) for node, numbers in complete.items()
    }
    return other_tenants(
        namespace="team", datasets=datasets, placements=placements, states=states, sizes=SIZES
    )


def test_a_namespace_alone_has_no_other_tenants() -> None:
    alone = of_team(
        wanted("Dataset team/x", a=[0]), complete={"a": [0]}, datasets=["Dataset team/x", "Dataset team/y"]
    )
    assert (alone.namespaces, alone.bytes) == (0, 0)


def test_namespaces_are_counted_once_however_many_datasets_they_have() -> None:
    keys = ["Dataset team/x", "Dataset other/x", "Dataset other/y", "Dataset third/x"]
    assert of_team(complete={}, datasets=keys).namespaces == 2


def test_only_complete_slots_that_the_namespace_does_not_want_there_count() -> None:
    others = of_team(
        wanted("Dataset team/x", a=[0], b=[2]),
        wanted("Dataset other/x", a=[0, 1, 2], b=[2], c=[1]),
        wanted("Preload other/p", c=[2]),
        complete={"a": [0, 1], "b": [2], "c": [1, 2]},
    )
    assert others.node_bytes == {"a": 20, "c": 60}
    assert others.bytes == 80


def test_a_node_that_cannot_be_reached_counts_for_nobody() -> None:
    others = of_team(wanted("Dataset other/x", a=[0], gone=[1]), complete={"a": [0]})
    assert others.node_bytes == {"a": 10}


def test_a_name_that_begins_like_the_namespace_is_another_namespace() -> None:
    others = of_team(wanted("Dataset team-b/x", a=[0]), complete={"a": [0]}, datasets=["Dataset team-b/x"])
    assert (others.namespaces, others.node_bytes) == (1, {"a": 10})
