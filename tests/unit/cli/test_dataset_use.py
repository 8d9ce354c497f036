"""How `tdcs status` says what a dataset may have of the cache, who reads it, and when it leaves."""

from typing import Any

import pytest
from tests.unit.cli.test_status import obj, output_of

from tdcs.api.dataset import Dataset, DatasetStatus
from tdcs.cli.explain import dataset_use
from tdcs.cli.explain.listed_objects import ListedObjects

NOW = "2026-03-02T12:00:00Z"
CREATED = "2026-03-01T12:00:00Z"
GRANT = {"bytes": 6_000_000, "slots": 2048}
LOADED = {
    "type": "Loaded",
    "status": "True",
    "reason": "Loaded",
    "message": "",
    "lastTransitionTime": CREATED,
}


def dataset(status: dict[str, Any], **spec: Any) -> tuple[Dataset, DatasetStatus]:
    model = Dataset.model_validate(
        {"spec": {"source": {"uri": "file:///data"}, **spec}, "status": {"totalBytes": 100, **status}}
    )
    assert model.status is not None
    return model, model.status


LEAVES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "nothing is decided yet": ({}, {}, ""),
    "pinned": ({"grant": GRANT}, {"eviction": {"policy": "Pin"}}, "never (pinned)"),
    "read by a job": ({"grant": GRANT, "activeJobs": 1}, {}, "not while it is read"),
    "mounted by another pod": ({"grant": GRANT, "inUse": True}, {}, "not while it is read"),
    "waited for": ({"grant": GRANT, "waitingJobs": 2}, {}, "not while jobs wait"),
    "idle": ({"grant": GRANT}, {}, "if others need room (LRU)"),
    "idle, by the policy of a plug-in": (
        {"grant": GRANT},
        {"eviction": {"policy": "Ours"}},
        "if others need room (Ours)",
    ),
    "before its time": (
        {"grant": GRANT, "conditions": [LOADED]},
        {"eviction": {"policy": "Timed", "ttl": "168h"}},
        "in 6 d",
    ),
    "used a while ago": (
        {"grant": GRANT, "conditions": [LOADED], "lastUsedTime": "2026-03-02T11:00:00Z"},
        {"eviction": {"policy": "Timed", "ttl": "90m"}},
        "in 30 min",
    ),
    "by a policy that is not installed": (
        {"grant": GRANT, "conditions": [{**LOADED, "type": "Granted", "reason": "UnknownPolicy"}]},
        {"eviction": {"policy": "Fifo"}},
        "never (no policy Fifo)",
    ),
    "at times that never come": (
        {"grant": GRANT},
        {"eviction": {"policy": "Timed", "schedule": "61 3 * * *"}},
        "never (schedule never fires)",
    ),
    "evicted": ({"grant": {"reason": "Evicted"}}, {}, "it has left"),
    "being deleted": ({"grant": GRANT, "state": "Deleting"}, {}, "when no pod uses it"),
    "its time is over, and a twin's is not": (
        {"grant": GRANT, "conditions": [LOADED, {**LOADED, "type": "Granted", "reason": "KeptByTwin"}]},
        {"eviction": {"policy": "Timed", "ttl": "12h"}},
        "with another Dataset of its source",
    ),
    "its time is over": (
        {"grant": GRANT, "conditions": [LOADED]},
        {"eviction": {"policy": "Timed", "ttl": "12h"}},
        "its time is over",
    ),
}


@pytest.mark.parametrize("case", LEAVES)
def test_when_a_dataset_leaves_is_what_the_operator_decides(case: str) -> None:
    status, spec, text = LEAVES[case]
    model, status_before = dataset(status, **spec)
    assert dataset_use.leaves(model, status_before, created=CREATED, now=NOW) == text


def test_jobs_clones_and_a_grant_that_is_too_small_are_in_the_status() -> None:
    status: dict[str, Any] = {
        "state": "Degraded",
        "totalBytes": 10_000_000,
        "grant": {**GRANT, "reason": "QuotaExceeded"},
        "activeJobs": 2,
        "waitingJobs": 3,
        "copies": [
            {"id": "0", "nodes": [{"name": "a", "bytes": 3}]},
            {"id": "clone-1", "nodes": [{"name": "b", "bytes": 3}]},
            {"id": "clone-2", "nodes": [{"name": "c", "bytes": 0, "arriving": 3}]},
            {"id": "preloads", "nodes": [{"name": "d", "bytes": 3}]},
        ],
    }
    access = {"maxConcurrentJobs": 1, "onLimit": "Clone"}
    spec: dict[str, Any] = {"source": {"uri": "file:///data"}, "access": access}
    text = output_of(
        ListedObjects(datasets=[obj("pictures", spec=spec, **status), obj("broken", spec={"x": 1})])
    )
    (line,) = [line for line in text.splitlines() if "QuotaExceeded" in line]
    for part in (
        "pictures",
        "5.7 MiB (QuotaExceeded)",
        "1 + 2 clones, 1 to come",
        "2 read (at most 1 a copy), 3 wait",
        "not while it is read",
    ):
        assert part in line
    assert "Who has the cache" in text
    assert "Who has the cache" not in output_of(ListedObjects(datasets=[obj("broken", spec={"x": 1})]))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (59.0, "59 s"), (61.0, "2 min"), (7200.0, "2 h"), (90_000.0, "2 d")]
)
def test_a_length_of_time_is_said_in_its_largest_unit(seconds: float, text: str) -> None:
    assert dataset_use.spoken(seconds) == text


def test_a_dataset_that_has_nothing_of_the_cache_is_not_among_those_that_have_it() -> None:
    def text(**status: Any) -> str:
        spec = {"source": {"uri": "file:///data"}}
        return output_of(ListedObjects(datasets=[obj("refused", spec=spec, state="Failed", **status)]))

    assert "Who has the cache" not in text(copies=[{"id": "0", "nodes": []}])
    assert "Who has the cache" not in text(copies=[{"id": "0", "nodes": [{"name": "a", "bytes": 0}]}])
    assert "Who has the cache" in text(copies=[{"id": "0", "nodes": [{"name": "a", "bytes": 3}]}])
    assert "Who has the cache" in text(copies=[{"id": "0", "nodes": []}], waitingJobs=1)
