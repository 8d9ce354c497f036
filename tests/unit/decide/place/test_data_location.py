"""Where the datasets of a job are, for its scheduling and its status."""

from typing import Any

from tdcs.api.dataset import Dataset
from tdcs.decide.place.data_location import chosen_from, copies_of, held, wanted_near


def dataset(*copies: tuple[str, dict[str, tuple[int, int]]], total: int = 100) -> Dataset:
    """A Dataset with these copies: id, and bytes on nodes and on their way to them."""
    listed: list[dict[str, Any]] = [
        {
            "id": copy_id,
            "mode": "Replicate",
            "nodes": [
                {"name": node, "bytes": size, **({"arriving": coming} if coming else {})}
                for node, (size, coming) in nodes.items()
            ],
        }
        for copy_id, nodes in copies
    ]
    spec = {"source": {"uri": "s3://pictures"}}
    return Dataset.model_validate({"spec": spec, "status": {"totalBytes": total, "copies": listed}})


NEW = Dataset.model_validate({"spec": {"source": {"uri": "s3://pictures"}}})
TWO = dataset(("0", {"a": (80, 0)}), ("1", {"b": (60, 20)}))


def test_a_dataset_without_status_has_no_copies_and_is_nowhere() -> None:
    assert copies_of(NEW) == {}
    assert held({"new": NEW}) == []
    assert wanted_near({"new": NEW}, chosen={}) == []
    assert chosen_from(NEW) == {}


def test_a_dataset_without_copies_is_held_nowhere_with_its_size() -> None:
    (nowhere,) = held({"empty": dataset()})
    assert (nowhere.total_bytes, nowhere.node_bytes) == (100, {})
    assert wanted_near({"empty": dataset()}, chosen={}) == []


def test_only_nodes_to_which_bytes_come_are_listed_as_such() -> None:
    copies = copies_of(TWO)
    assert copies["0"].arriving == {}
    assert copies["1"].arriving == {"b": 20}


def test_pods_read_what_any_copy_has_on_their_node() -> None:
    (location,) = held({"pictures": TWO})
    assert location.node_bytes == {"a": 80, "b": 60}


def test_a_job_is_drawn_to_its_own_copy_and_half_as_much_to_another() -> None:
    (first,) = wanted_near({"pictures": TWO}, chosen={})
    (second,) = wanted_near({"pictures": TWO}, chosen={"pictures": "1"})
    assert first.node_bytes == {"a": 80, "b": 30}
    assert second.node_bytes == {"a": 40, "b": 60}


def test_a_job_whose_copy_is_gone_is_drawn_to_all_others_in_full() -> None:
    (location,) = wanted_near({"pictures": TWO}, chosen={"pictures": "7"})
    assert location.node_bytes == {"a": 80, "b": 60}


def test_jobs_are_dealt_out_to_no_preload_and_to_no_clone_on_its_way() -> None:
    many = dataset(
        ("0", {"a": (10, 90)}),
        ("clone-1", {"b": (50, 50)}),
        ("clone-2", {"c": (100, 0)}),
        ("preloads", {"d": (100, 0)}),
    )
    assert chosen_from(many).keys() == {"0", "clone-2"}
    assert copies_of(many)["preloads"].brought
    assert not copies_of(many)["0"].brought
