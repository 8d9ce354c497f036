"""Which PersistentVolumeClaims are sources, when a pod serves one, and what is said of a pod that does not run."""

from __future__ import annotations

from typing import Any

import pytest

from tdcs.api import names
from tdcs.decide.cache.load_order import Subset
from tdcs.decide.cache.wants import Want
from tdcs.decide.served_claim import (
    Starting,
    address_of,
    claim_problem,
    is_made_for,
    needs_source,
    not_served,
    waits_for,
)
from tdcs.model.claim_source import ClaimFolder, claim_folder, folders_left_out
from tdcs.model.file_selection import FileSelection

WHERE = ClaimFolder("team", "photos", "train")


def claim(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "photos", **fields.pop("metadata", {})}, **fields}


def pod(**status: Any) -> dict[str, Any]:
    owners = [{"kind": "Job", "uid": "1"}]
    return {"metadata": {"name": "p", "ownerReferences": owners}, "status": status}


READY = [{"type": "Ready", "status": "True"}]


def test_a_claim_with_files_is_a_source_also_before_it_is_bound() -> None:
    assert claim_problem(claim(status={"phase": "Bound"}), where=WHERE) is None
    assert claim_problem(claim(status={"phase": "Pending"}), where=WHERE) is None, "its pod may bind it"


@pytest.mark.parametrize(
    ("claim", "reason", "words"),
    [
        (
            None,
            "SourceClaimNotFound",
            "PersistentVolumeClaim team/photos, folder train (spec.source.uri) does not exist",
        ),
        (claim(metadata={"deletionTimestamp": "now"}), "SourceClaimNotUsable", "is being deleted"),
        (claim(status={"phase": "Lost"}), "SourceClaimNotUsable", "has lost its volume"),
        (claim(spec={"volumeMode": "Block"}), "SourceClaimNotUsable", "volumeMode Block"),
        (
            claim(metadata={"labels": {names.LABEL_DATASET_NAME: "pictures"}}),
            "SourceClaimNotUsable",
            "is the claim of a Dataset itself",
        ),
    ],
    ids=["missing", "deleted", "lost", "a block device", "a Dataset's"],
)
def test_a_claim_that_cannot_be_read_is_named_with_what_to_do(claim: Any, reason: str, words: str) -> None:
    problem = claim_problem(claim, where=WHERE)
    assert problem is not None
    assert problem.reason == reason
    assert words in problem.message


def test_a_pod_is_asked_when_it_is_ready_and_stays() -> None:
    assert address_of([pod(podIP="10.0.0.7", conditions=READY)]) == "10.0.0.7"
    assert not address_of([pod(podIP="10.0.0.7", conditions=[{"type": "Ready", "status": "False"}])])
    going = pod(podIP="10.0.0.7", conditions=READY)
    going["metadata"]["deletionTimestamp"] = "now"
    assert not address_of([going])
    assert address_of([going, pod(podIP="10.0.0.8", conditions=READY)]) == "10.0.0.8"


def test_a_pod_with_the_jobs_label_and_without_its_reference_is_a_strangers() -> None:
    job = {"metadata": {"name": "j", "uid": "1"}}
    planted = {"metadata": {"labels": {"batch.kubernetes.io/job-name": "j"}}}
    assert is_made_for(pod(), job=job)
    assert not is_made_for(planted, job=job)


@pytest.mark.parametrize(
    ("pods", "warnings", "words"),
    [
        (
            [
                pod(
                    conditions=[
                        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
                    ]
                )
            ],
            [],
            "no node takes its pod: 0/3 nodes are available",
        ),
        (
            [
                pod(
                    containerStatuses=[
                        {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
                    ]
                )
            ],
            [],
            "its pod does not start: ImagePullBackOff (no such image)",
        ),
        (
            [pod(containerStatuses=[{"state": {"waiting": {"reason": "ContainerCreating"}}}])],
            [{"reason": "FailedMount", "message": "timed out"}],
            "its pod does not start: FailedMount: timed out",
        ),
        (
            [],
            [{"reason": "FailedCreate", "message": "exceeded quota: small"}],
            "no pod is made: FailedCreate: exceeded",
        ),
        ([], [], ""),
    ],
    ids=["unschedulable", "image", "volume", "quota", "nothing known"],
)
def test_what_a_pod_waits_for_is_said_in_the_words_of_who_knows(pods: Any, warnings: Any, words: str) -> None:
    progress = waits_for(pods, warnings=warnings)
    assert words in progress.text
    assert isinstance(progress, Starting)
    message = not_served(WHERE, progress.text).message
    assert words in message
    assert "kubectl get pods,events -n team" in message


def want(*, load: bool = True, fraction: float | None = None) -> Want:
    return Want(key="d", load=load, subset=Subset(fraction=fraction))


@pytest.mark.parametrize(
    ("missing", "wants", "is_read", "needed"),
    [
        (1, [want()], False, True),
        (0, [want()], True, False),
        (0, [want(fraction=0.5)], True, True),
        (0, [want(fraction=0.5)], False, False),
        (0, [want(load=False)], True, True),
        (0, [], False, False),
    ],
    ids=["loading", "all is cached", "half is, and read", "half is", "filled by reads", "nobody wants it"],
)
def test_a_source_is_at_hand_while_something_of_it_is_to_be_brought(
    missing: int, wants: list[Want], is_read: bool, needed: bool
) -> None:
    assert needs_source(missing=missing, wants=wants, is_read=is_read) is needed


def test_the_claim_of_a_source_is_that_of_its_namespace() -> None:
    assert claim_folder("pvc://photos/train", {"namespace": "team"}) == WHERE
    assert str(WHERE._replace(folder="")) == "PersistentVolumeClaim team/photos (spec.source.uri)"


def test_folders_are_left_out_unseen_only_where_nothing_takes_their_files_back_in() -> None:
    assert folders_left_out(FileSelection(exclude=("lost+found/", "*.tmp"))) == ("lost+found/",)
    assert folders_left_out(FileSelection(exclude=("old/", "!old/kept.txt"))) == ()
