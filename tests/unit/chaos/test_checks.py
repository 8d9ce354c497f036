"""What a chaos run checks is seen when it is broken."""

import json
from typing import Any

import pytest
from e2e.chaos.checks import (
    Belongings,
    Reads,
    belongings_of,
    dataset_state,
    differences,
    left_over,
    missing_of,
    reads_of,
    silent_readers,
    slow_reads,
    wrong_reads,
)

NAMES = ("node-1", "node-2")


def status(**changed: Any) -> dict[str, Any]:
    copies = [{"id": "0", "nodes": [{"name": name, "bytes": 10} for name in NAMES]}]
    base = {"refreshed": "3", "totalFiles": 2, "totalBytes": 10, "state": "Ready", "copies": copies}
    return base | changed


def missing(found: dict[str, Any], *, nodes: int | None = 2) -> str | None:
    return missing_of(found, refreshed="3", files=2, size=10, nodes=nodes)


def round_of(*failed: str, longest: float = 0.5) -> str:
    return json.dumps({"files": 4, "failed": list(failed), "longest": longest, "at": 1700000000.4})


def test_what_a_pod_has_read_is_summed_up_over_kills_of_it() -> None:
    text = "\n".join(
        [
            round_of(),
            round_of("/data/a: wrong bytes", "/data/b: [Errno 5] Input/output error", longest=7.0),
            '{"files": 4, "fai',
            "not json",
            round_of(),
        ]
    )
    assert reads_of(text) == Reads(
        files=12,
        wrong=("1700000000 /data/a: wrong bytes",),
        failed=("1700000000 /data/b: [Errno 5] Input/output error",),
        longest=7.0,
        last=1700000000.4,
    )


def test_a_pod_whose_read_hangs_is_seen_by_the_line_that_does_not_come() -> None:
    reads = {"reads": Reads(files=4, last=20.0), "hangs": Reads(files=400, last=10.0)}
    readers = {"reads", "hangs", "never read"}
    assert silent_readers(reads, readers=readers, since=15.0) == ["hangs", "never read"]
    assert silent_readers(reads, readers={"reads"}, since=15.0) == []
    assert silent_readers(reads, readers=readers, since=0.0) == ["never read"]


def test_a_read_that_waited_longer_than_any_fault_counts_where_the_data_lies() -> None:
    reads = {"here": Reads(longest=31.0), "elsewhere": Reads(longest=90.0)}
    assert slow_reads(reads, native={"here"}, most=30.0) == ["here: a read of 31.0 s, over 30 s"]
    assert slow_reads(reads, native={"here"}, most=31.0) == []


def test_wrong_bytes_count_everywhere_and_errors_where_the_data_lies() -> None:
    reads = {
        "here": Reads(failed=("1 EIO",)),
        "elsewhere": Reads(failed=("2 EIO",), wrong=("3 wrong",)),
    }
    assert wrong_reads(reads, native={"here"}) == ["elsewhere: 3 wrong", "here: 1 EIO"]
    assert wrong_reads(reads, native=set()) == ["elsewhere: 3 wrong"]


@pytest.mark.parametrize(
    "changed",
    [
        {"refreshed": "2"},
        {"totalFiles": 3},
        {"totalBytes": 11},
        {"state": "Loading"},
        {"copies": []},
        {"copies": [{"id": "0", "nodes": [{"name": "node-1", "bytes": 10}]}]},
        {"copies": [{"id": "0", "nodes": [{"name": "node-1", "bytes": 10}, {"name": "node-2", "bytes": 9}]}]},
    ],
)
def test_a_dataset_that_is_not_what_its_source_is_now_lacks_something(changed: dict[str, Any]) -> None:
    assert missing(status()) is None
    assert missing(status(**changed))


def test_of_a_dataset_that_preloads_nothing_only_the_files_count() -> None:
    assert missing(status(copies=[], state="Pending"), nodes=None) is None
    assert missing(status(totalFiles=1), nodes=None)


def test_another_decision_is_a_difference() -> None:
    before = {"Dataset a": dataset_state(status()), "Dataset b": 1}
    assert differences(before, dict(before)) == []
    moved = [{"id": "0", "nodes": [{"name": "node-3", "bytes": 10}]}]
    after = {"Dataset a": dataset_state(status(copies=moved))}
    assert [line.partition(":")[0] for line in differences(before, after)] == ["Dataset a", "Dataset b"]


def test_what_was_not_on_a_node_before_is_left_over() -> None:
    before = {"node-1": belongings_of("block /b/1\nview /v/1/x\nmount /m/1")}
    after = {
        "node-1": belongings_of("block /b/1\nblock /b/2\nview /v/2/x\nmount /m/2"),
        "node-2": Belongings(),
    }
    kinds = ("blocks", "mounts", "views")
    assert left_over(before, after, kinds=kinds) == [
        "node-1: blocks /b/2",
        "node-1: mounts /m/2",
        "node-1: views /v/2/x",
    ]
    assert left_over(before, after, kinds=["mounts"]) == ["node-1: mounts /m/2"]
    assert left_over(after, before, kinds=kinds) == ["node-1: mounts /m/1", "node-1: views /v/1/x"]
