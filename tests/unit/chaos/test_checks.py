"""What a chaos run checks is seen when it is broken."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from e2e.chaos import read_version
from e2e.chaos.checks import (
    Belongings,
    FailedRead,
    Reads,
    SlowRead,
    belongings_of,
    dataset_state,
    differences,
    failed_since,
    left_over,
    missing_of,
    mixed_versions,
    reads_of,
    silent_readers,
    slow_reads,
    summary,
    sums_of,
    too_little,
    wrong_reads,
)
from e2e.support import read_on

NAMES = ("node-1", "node-2")


def status(**changed: Any) -> dict[str, Any]:
    copies = [{"id": "0", "nodes": [{"name": name, "bytes": 10} for name in NAMES]}]
    base = {"refreshed": "3", "totalFiles": 2, "totalBytes": 10, "state": "Ready", "copies": copies}
    return base | changed


def missing(found: dict[str, Any], *, nodes: int | None = 2) -> str | None:
    return missing_of(found, refreshed="3", files=2, size=10, nodes=nodes)


def test_what_nothing_excuses_is_said_first_of_the_reads_that_failed() -> None:
    away = [f"/data/{n}: [Errno 5] Input/output error: '/data/{n}'" for n in range(59)]
    absent, wrong = "/data/z: [Errno 2] No such file or directory: '/data/z'", f"/data/zz: {read_on.WRONG}"
    assert sorted([*away, absent, wrong], key=read_on.excuse)[:3] == [wrong, absent, away[0]]


def round_of(*failed: str, longest: float = 0.5) -> str:
    return json.dumps({"files": 4, "failed": list(failed), "longest": longest, "at": 1700000000.4})


AWAY = "/data/b: [Errno 5] Input/output error: '/data/b'"
ABSENT = "/data/b: [Errno 2] No such file or directory: '/data/b'"
WRONG = "/data/a: wrong bytes"


def failed(*errors: str, at: float = 1.0) -> tuple[FailedRead, ...]:
    return tuple(FailedRead(at=at, error=error) for error in errors)


def test_what_a_pod_has_read_is_summed_up_over_kills_of_it() -> None:
    text = "\n".join(
        [
            round_of(),
            round_of(WRONG, AWAY, longest=7.0),
            '{"files": 4, "fai',
            '{"files": 4, "fai' + round_of(),
            "MemoryError",
            round_of(),
        ]
    )
    assert reads_of(text) == Reads(
        files=12,
        failed=failed(WRONG, AWAY, at=1700000000.4),
        printed=("MemoryError",),
        longest=7.0,
        last=1700000000.4,
    )


def test_a_pod_whose_read_hangs_is_seen_by_the_line_that_does_not_come() -> None:
    reads = {"node-1": {"reads": Reads(files=4, last=20.0), "hangs": Reads(files=400, last=10.0)}}
    readers = {"reads", "hangs", "never read"}
    assert silent_readers(reads, readers=readers, since=15.0) == ["hangs", "never read"]
    assert silent_readers(reads, readers={"reads"}, since=15.0) == []
    assert silent_readers(reads, readers=readers, since=0.0) == ["never read"]


def test_a_read_that_waited_longer_than_any_fault_of_its_time_counts_where_the_data_is() -> None:
    slow = Reads(slow=(SlowRead(seconds=31.0, since=100.0, until=140.0),))
    reads = {"here": {"pod": slow}, "elsewhere": {"pod": slow}}
    assert slow_reads(reads, native={"here"}, most=lambda *_: 31.0) == []
    asked: list[tuple[float, float]] = []

    def most(since: float, until: float) -> float:
        asked.append((since, until))
        return 30.0

    assert slow_reads(reads, native={"here"}, most=most) == ["pod on here: 140 a read of 31.0 s, over 30 s"]
    assert asked == [(100.0, 140.0)]


def test_a_slow_read_was_under_way_in_its_round_only() -> None:
    lines = [(10.0, 1.0), (60.0, 45.0), (70.0, 2.0)]
    text = "\n".join(json.dumps({"files": 4, "failed": [], "longest": each, "at": at}) for at, each in lines)
    assert reads_of(text).slow == (SlowRead(seconds=45.0, since=10.0, until=60.0),)
    first = json.dumps({"files": 4, "failed": [], "longest": 45.0, "at": 60.0})
    assert reads_of(first).slow == (SlowRead(seconds=45.0, since=15.0, until=60.0),)


def test_every_error_of_any_pod_counts_where_the_data_is() -> None:
    reads = {"here": {"job": Reads(failed=failed(AWAY)), "reads-on": Reads(failed=failed(ABSENT))}}
    assert wrong_reads(reads, native={"here"}) == [f"job on here: 1 {AWAY}", f"reads-on on here: 1 {ABSENT}"]


@pytest.mark.parametrize("what", [WRONG, ABSENT, "/data/b: [Errno 13] Permission denied: '/data/b'"])
def test_elsewhere_wrong_bytes_count_and_what_says_more_than_that_data_is_away(what: str) -> None:
    reads = {"elsewhere": {"job": Reads(failed=failed(AWAY, what))}}
    assert wrong_reads(reads, native={"here"}) == [f"job on elsewhere: 1 {what}"]


def test_the_name_of_a_file_is_not_taken_for_what_was_wrong_with_it() -> None:
    reads = {"elsewhere": {"job": Reads(failed=failed("/data/[Errno 5] : wrong bytes"))}}
    assert wrong_reads(reads, native=set())


def test_what_ended_the_program_of_a_pod_counts_everywhere() -> None:
    reads = {"elsewhere": {"job": Reads(printed=("MemoryError",))}}
    assert wrong_reads(reads, native=set()) == ["job on elsewhere: MemoryError"]


def test_a_pod_that_was_made_again_on_another_node_has_read_on_both() -> None:
    reads = {
        "node-1": {"job": Reads(failed=failed(WRONG))},
        "node-2": {"job": Reads(files=60)},
    }
    assert wrong_reads(reads, native=set()) == [f"job on node-1: 1 {WRONG}"]
    assert [line.partition(":")[0] for line in summary(reads)] == ["job on node-1", "job on node-2"]


def test_once_all_is_well_again_no_read_fails_anywhere() -> None:
    reads = {"elsewhere": {"pod": Reads(failed=(*failed(AWAY, at=10.0), *failed(AWAY, at=20.0)))}}
    assert failed_since(reads, since=10.0) == [f"pod on elsewhere: 20 {AWAY}"]


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


def test_a_run_in_which_too_little_happened_shows_nothing() -> None:
    enough: dict[str, Any] = {"faults": 6, "planned": 22, "jobs": ["job-001"], "held": {"node-1"}}
    assert too_little(**enough) == []
    assert too_little(**enough | {"faults": 5}) == ["5 of 22 planned faults were brought about, fewer than 6"]
    assert too_little(**enough | {"faults": 0, "planned": 0}) == [
        "0 of 0 planned faults were brought about, fewer than 1"
    ]
    assert too_little(**enough | {"jobs": []}) == ["no TrainingJob was created and succeeded"]
    assert too_little(**enough | {"held": set()}) == [
        "no node that held the data from the beginning still does"
    ]


VERSIONS = {1: {"a": "a1", "b": "b1"}, 2: {"a": "a2", "b": "b2", "c": "c2"}}


def mixed(*rounds: dict[str, str | None]) -> list[str]:
    return mixed_versions({"pod": rounds}, versions=VERSIONS)


def test_a_pod_that_reads_one_version_whatever_it_cannot_read_reads_no_mix() -> None:
    assert mixed() == []
    assert mixed({"a": "a1", "b": "b1"}, {"a": "a1", "b": None}, {"a": None, "b": None}) == []
    assert mixed({"a": "a2", "b": "b2", "c": None}) == []


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        ([{"a": "a1", "b": "b2"}], "2 files: version 1, version 2"),
        ([{"a": "a1", "b": "wrong"}], "2 files: no version, version 1"),
        ([{"a": "a1"}], "1 files: version 1"),
        ([{"a": "a2", "b": "b2"}], "2 files: version 2"),
        (
            [{"a": "a1", "b": "b1"}, {"a": "a2", "b": "b2", "c": "c2"}],
            "2 files: version 1; 3 files: version 2",
        ),
        ([{"a": "a1", "b": None}, {"a": None, "b": "b2"}], "2 files: version 1; 2 files: version 2"),
    ],
)
def test_a_mix_of_versions_is_seen_in_one_round_and_over_rounds(
    rounds: list[dict[str, str | None]], said: str
) -> None:
    assert mixed(*rounds) == [f"pod has read {said}"]


def test_what_a_pod_has_read_of_a_version_is_taken_line_by_line() -> None:
    assert sums_of('{"a": "a1", "b": null}\n{"a": "a1", "b"\n{"a": "a1", "b": "b1"}\n') == [
        {"a": "a1", "b": None},
        {"a": "a1", "b": "b1"},
    ]


def test_the_program_of_a_pod_writes_down_the_sums_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "000").mkdir()
    (tmp_path / ".tdcs").mkdir()
    for name in ("000/a", ".tdcs/not-of-the-dataset"):
        (tmp_path / name).write_text("one")
    (tmp_path / "000/gone").symlink_to(tmp_path / "nowhere")
    command = [sys.executable, read_version.__file__, str(tmp_path), "2", "0"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert sums_of(printed) == [{"000/a": hashlib.sha256(b"one").hexdigest(), "000/gone": None}] * 2
