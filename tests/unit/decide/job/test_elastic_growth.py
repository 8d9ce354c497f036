"""Whether the data of an elastic job is where its next workers will run."""

from typing import Any

import pytest

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.decide.job.elastic_growth import lacks, nodes_for


def dataset(nodes: dict[str, tuple[int, int]], **spec: Any) -> dict[str, Any]:
    """A mounted Dataset with bytes that are on nodes, and bytes that are to come there."""
    copy_nodes = [
        {"name": name, "bytes": held, **({"arriving": coming} if coming else {})}
        for name, (held, coming) in nodes.items()
    ]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Dataset",
        "metadata": {"name": "pictures", "namespace": "n", "uid": "d"},
        "spec": {"source": {"uri": "s3://pictures"}, **spec},
        "status": {
            "conditions": [
                {
                    "type": "Mounted",
                    "status": "True",
                    "reason": "Mounted",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "mountPath": "/datasets/pictures",
            "claimName": "pictures",
            "totalBytes": 8,
            "cachedBytes": 8,
            "cachedRatio": 1.0,
            "copies": [{"id": "0", "mode": "Replicate", "nodes": copy_nodes}],
        },
    }


@pytest.mark.parametrize(
    ("nodes", "spec", "workers", "new", "expected"),
    [
        ({"a": (8, 0), "b": (8, 0)}, {}, {"a", "b"}, True, False),
        ({"a": (8, 0), "b": (4, 4)}, {}, {"a", "b"}, False, True),
        ({"a": (8, 0), "b": (0, 8)}, {}, {"a", "b"}, False, True),
        ({"a": (8, 0)}, {}, {"a", "b"}, True, True),
        ({"a": (8, 0)}, {}, {"a", "b"}, False, False),  # the cache has had its time, and brings nothing there
        ({"a": (8, 0)}, {}, {"a"}, True, False),  # no worker there
        ({"a": (8, 0)}, {}, None, False, True),  # one comes
        ({"a": (8, 0)}, {"placement": {"nodeCount": 1}}, {"a", "b"}, True, False),
        ({}, {"preload": {"enabled": False}}, {"a", "b"}, True, False),
    ],
)
def test_data_is_awaited_where_it_comes_or_will(
    nodes: dict[str, tuple[int, int]],
    spec: dict[str, Any],
    workers: set[str] | None,
    new: bool,
    expected: bool,
) -> None:
    pictures = Dataset.model_validate(dataset(nodes, **spec))
    assert lacks(pictures, nodes=("b",), workers=workers, new=new) is expected


def test_the_nodes_with_the_data_are_found_first_and_one_is_filled_before_the_next() -> None:
    room = {"a": 0, "b": 2, "c": 4, "d": 1}
    assert nodes_for(2, room=room, holding={"a", "c"}) == ("c",)
    assert nodes_for(6, room=room, holding={"c"}) == ("c", "d", "b")
    assert nodes_for(9, room=room, holding=()) == ("d", "b", "c")
    assert nodes_for(1, room={}, holding=()) == ()
