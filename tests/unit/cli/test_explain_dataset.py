"""`tdcs explain dataset`: what it is granted, who reads it, and when it leaves the cache."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.cli.builders import job, pod
from tests.unit.control.builders import NOW

from tdcs.api.dataset import Dataset
from tdcs.cli.explain.explained_dataset import described, explain_dataset
from tdcs.model.kube_objects import Object


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
    dataset = Dataset.model_validate(
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
        namespace="team", name="pictures", dataset=dataset, jobs=[reads, waits], pods=[], created=NOW, now=NOW
    )
    text = "\n".join(lines)
    assert "Granted=False (NotAllFits): 6 MB of 10 MB found room" in text
    assert (
        "It may take 11.4 MiB of the cache: 2400 of the 4096 slots, parts of about the same size, of its data"
        in text
    )
    assert "Copy 0: 5.7 MiB on a; 1 job may read it at once" in text
    assert "Copy clone-1: 977 KiB on b; 4.8 MiB to come" in text
    assert "Used by train" in text
    assert "Waited for by later (DatasetAtLimit)" in text
    assert f"168h after its last use (spec.eviction.ttl), last used {NOW}" in text


@pytest.mark.parametrize(
    ("cached", "text"),
    [(0, "0% of it cached: nowhere"), (59, "5% of it cached: no copy is its own")],
    ids=["nothing", "for others"],
)
def test_what_is_cached_without_a_copy_is_not_called_nowhere(cached: int, text: str) -> None:
    """A share is rounded down, as in kubectl get."""
    dataset = Dataset.model_validate(
        {
            "spec": {"source": {"uri": "file:///data"}},
            "status": {
                "totalBytes": 1000,
                "totalFiles": 3,
                "cachedBytes": cached,
                "cachedRatio": cached / 1000,
                "mountPath": "/p",
            },
        }
    )
    assert text in described("pictures", dataset)


def users(*pods: Object, jobs: Sequence[Object] = (), listed: bool = True, **status: Any) -> list[str]:
    """The lines on who uses a Dataset named pictures."""
    dataset = Dataset.model_validate(
        {
            "spec": {"source": {"uri": "file:///data"}},
            "status": {"totalBytes": 100, "mountPath": "/p", **status},
        }
    )
    lines = explain_dataset(
        namespace="team",
        name="pictures",
        dataset=dataset,
        jobs=jobs,
        pods=list(pods) if listed else None,
        created=NOW,
        now=NOW,
    )
    return [line for line in lines if "Used by" in line or "pods" in line or "claim" in line]


def reader(name: str, *, owner: str = "", job_label: str = "", phase: str = "Running") -> Object:
    """A pod that mounts the Dataset's claim."""
    obj = pod(name, labels={"tdcs.io/training-job": job_label} if job_label else {}, phase=phase)
    obj["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "pictures"}}]
    if owner:
        obj["metadata"]["ownerReferences"] = [{"kind": "Job", "name": owner, "controller": True}]
    return obj


def test_jobs_that_name_a_dataset_use_it_and_those_that_do_not_run_say_why() -> None:
    admitted = [{"type": "Admitted", "status": "True", "reason": "AllPodsFit"}]
    stuck = job(conditions=admitted, state="Starting", reason="ImagePullBackOff")
    runs = {**job(conditions=admitted, reason=""), "metadata": {"name": "well", "namespace": "team"}}
    assert users(jobs=[stuck, runs]) == ["Used by train (ImagePullBackOff), well"]


def test_pods_that_mount_its_claim_are_named_with_what_made_them() -> None:
    lines = users(
        reader("notebook"),
        reader("load-0", owner="load"),
        reader("load-1", owner="load", phase="Pending"),
        reader("done", phase="Succeeded"),
        reader("train-worker-0", job_label="train"),
        pod("other"),
        inUse=True,
    )
    assert lines == ["Used by pods that mount its claim: 2 of Job load, notebook"]


def test_without_the_right_to_list_pods_it_is_unknown_which_mount_its_claim() -> None:
    sentence = "Which pods mount its claim is unknown: you may not list pods in namespace team"
    assert users(listed=False, inUse=True) == [sentence]
    assert users(listed=False) == []


def test_the_size_of_what_was_never_listed_is_unknown_and_that_of_an_empty_file_is_not() -> None:
    def line(**status: Any) -> str:
        spec = {"source": {"uri": "file:///data"}}
        return described("p", Dataset.model_validate({"spec": spec, "status": status}))

    unlisted = line(conditions=[])
    assert unlisted.startswith("p: its size is unknown, as its source has not been listed")
    assert "0 bytes" not in unlisted
    assert line(totalFiles=1).startswith("p: 0 bytes")


def test_a_grant_of_all_slots_is_all_of_its_data() -> None:
    status = {"totalBytes": 100, "mountPath": "/p", "grant": {"bytes": 200, "slots": 4096}}
    dataset = Dataset.model_validate({"spec": {"source": {"uri": "file:///data"}}, "status": status})
    lines = explain_dataset(
        namespace="team", name="p", dataset=dataset, jobs=[], pods=[], created=NOW, now=NOW
    )
    assert "It may take 200 bytes of the cache: all of its data" in lines


def leaving(*, jobs: Sequence[Object] = (), eviction: Object | None = None, **status: Any) -> str:
    """The last line: when the Dataset leaves the cache."""
    granted = {"totalBytes": 100, "mountPath": "/p", "grant": {"bytes": 100, "slots": 4096}}
    dataset = Dataset.model_validate(
        {
            "spec": {"source": {"uri": "file:///data"}, "eviction": eviction or {}},
            "status": {**granted, **status},
        }
    )
    return explain_dataset(
        namespace="team", name="pictures", dataset=dataset, jobs=jobs, pods=[], created=NOW, now=NOW
    )[-1]


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
    dataset = Dataset.model_validate(
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
    lines = explain_dataset(
        namespace="team", name="p", dataset=dataset, jobs=[], pods=[], created=NOW, now=NOW
    )
    assert lines[2:5] == [
        "Placed=True: on 1 node",
        f"Loaded=True, Ready=True: {size}",
        "Copy 0: 0 bytes on no node yet",
    ]


def test_why_a_dataset_cannot_be_read_is_said_once() -> None:
    def condition(kind: str, reason: str, message: str) -> Object:
        return {
            "type": kind,
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": NOW,
        }

    long, limit = (
        "the endpoint does not answer. Check spec.source.options.endpoint",
        "5 bytes of 9 found room",
    )
    dataset = Dataset.model_validate(
        {
            "spec": {"source": {"uri": "file:///data"}},
            "status": {
                "state": "Failed",
                "grant": {"bytes": 5, "slots": 100, "reason": "NotAllFits"},
                "conditions": [
                    condition("Mounted", "MountFailed", long),
                    condition("Granted", "NotAllFits", limit),
                    condition("Ready", "MountFailed", long),
                ],
            },
        }
    )
    lines = explain_dataset(
        namespace="team", name="p", dataset=dataset, jobs=[], pods=[], created=NOW, now=NOW
    )
    assert lines[1].endswith("; it may take 5 bytes (NotAllFits); it cannot be read now: MountFailed")
    assert f"Ready=False (MountFailed): {long}" in lines
    text = "\n".join(lines)
    assert (text.count(long), text.count(limit)) == (1, 1)
    # The line about a job's dataset stands alone.
    assert described("p", dataset).endswith(f"it cannot be read now: MountFailed: {long}")
