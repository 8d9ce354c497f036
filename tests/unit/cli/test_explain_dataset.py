"""`tdcs explain dataset`: what it is granted, who reads it, and when it leaves the cache."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.cli.builders import job
from tests.unit.controllers.builders import NOW

from tdcs.api.dataset import Dataset
from tdcs.cli.explain.dataset import explain_dataset
from tdcs.kube.api import Object


def test_a_dataset_says_what_it_is_granted_who_reads_it_and_when_it_leaves() -> None:
    conditions = [
        {
            "type": "Granted",
            "status": "False",
            "reason": "NotAllFits",
            "message": "6 MB of 10 MB found room",
            "lastTransitionTime": NOW,
        }
    ]
    copies = [
        {"id": "0", "nodes": [{"name": "a", "bytes": 6_000_000}]},
        {"id": "clone-1", "nodes": [{"name": "b", "bytes": 1_000_000, "arriving": 5_000_000}]},
    ]
    found = Dataset.model_validate(
        {
            "spec": {
                "source": {"uri": "file:///data"},
                "access": {"maxConcurrentJobs": 1, "onLimit": "Clone"},
                "eviction": {"policy": "Timed", "ttl": "168h"},
            },
            "status": {
                "state": "Degraded",
                "conditions": conditions,
                "copies": copies,
                "grant": {"bytes": 12_000_000, "slots": 2400},
                "lastUsedTime": NOW,
                "mountPath": "/p",
            },
        }
    )
    reads = job(conditions=[{"type": "Admitted", "status": "True", "reason": "AllPodsFit"}])
    waits = {**job(reason="DatasetAtLimit"), "metadata": {"name": "later", "namespace": "team"}}
    lines = explain_dataset(
        namespace="team", name="pictures", dataset=found, jobs=[reads, waits], created=NOW, now=NOW
    )
    text = "\n".join(lines)
    assert "Granted=False (NotAllFits): 6 MB of 10 MB found room" in text
    assert "It may take 12.0 MB of the cache: 2400 of its 4096 slots" in text
    assert "Copy 0: 6.0 MB on a; 1 job may read it at once" in text
    assert "Copy clone-1: 1.0 MB on b; 5.0 MB to come" in text
    assert "Read by train" in text
    assert "Waited for by later (DatasetAtLimit)" in text
    assert f"168h after its last use (spec.eviction.ttl), last used {NOW}" in text


def leaving(*, jobs: Sequence[Object] = (), eviction: Object | None = None, **status: Any) -> str:
    """The last line: when the Dataset leaves the cache."""
    granted = {"totalBytes": 100, "mountPath": "/p", "grant": {"bytes": 100, "slots": 4096}}
    found = Dataset.model_validate(
        {
            "spec": {"source": {"uri": "file:///data"}, "eviction": eviction or {}},
            "status": {**granted, **status},
        }
    )
    return explain_dataset(namespace="team", name="pictures", dataset=found, jobs=jobs, created=NOW, now=NOW)[
        -1
    ]


READS = job(conditions=[{"type": "Admitted", "status": "True", "reason": "AllPodsFit"}])
UNKNOWN = {"type": "Granted", "status": "False", "reason": "UnknownPolicy", "lastTransitionTime": NOW}
NEVER = {"policy": "Timed", "schedule": "61 3 * * *"}
LEAVES: dict[str, tuple[dict[str, Any], str]] = {
    "idle": ({}, "Idle, it leaves the cache when others need its room, by policy LRU, not used yet"),
    "read by a job": ({"jobs": [READS]}, "It stays in the cache while it is read, "),
    "mounted by another pod": ({"inUse": True}, "It stays in the cache while it is read, "),
    "waited for": ({"jobs": [job()]}, "It stays in the cache while jobs wait for it, "),
    "being deleted": (
        {"state": "Deleting"},
        "It is being deleted: it leaves the cache as soon as no pod uses",
    ),
    "never mounted": (
        {"mountPath": "", "grant": None},
        "It is not mounted, so nothing of it is in the cache",
    ),
    "not decided": ({"grant": None}, "What of it may be in the cache is not decided yet"),
    "evicted": (
        {"grant": {"reason": "Evicted"}},
        "It has left the cache, and is loaded again when a job asks",
    ),
    "of an unknown policy": (
        {"eviction": {"policy": "Fifo"}, "conditions": [UNKNOWN]},
        "It does not leave the cache: no eviction policy Fifo is installed",
    ),
    "of a schedule that never fires": (
        {"eviction": NEVER},
        "It does not leave the cache: spec.eviction.schedule (61 3 * * *) never fires",
    ),
}


@pytest.mark.parametrize("case", LEAVES)
def test_when_a_dataset_leaves_is_explained_as_the_operator_decides_it(case: str) -> None:
    status, begin = LEAVES[case]
    assert leaving(**status).startswith(begin)


def test_conditions_that_say_the_same_are_one_line_without_words_twice() -> None:
    def condition(kind: str, reason: str, message: str) -> Object:
        return {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": NOW,
        }

    size = "100 bytes of 100 bytes on 1 node"
    found = Dataset.model_validate(
        {
            "spec": {"source": {"uri": "file:///data"}},
            "status": {
                "copies": [{"id": "0", "nodes": []}],
                "conditions": [
                    condition("Mounted", "Mounted", "file:///data can be read through the cache"),
                    condition("Placed", "Placed", "on 1 node"),
                    condition("Loaded", "Loaded", size),
                    condition("Ready", "Loaded", size),
                ],
            },
        }
    )
    lines = explain_dataset(namespace="team", name="p", dataset=found, jobs=[], created=NOW, now=NOW)
    assert lines[2:5] == [
        "Placed=True: on 1 node",
        f"Loaded=True, Ready=True: {size}",
        "Copy 0: 0 bytes on no node yet",
    ]
