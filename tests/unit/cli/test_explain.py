"""`tdcs explain job`: why it waits, where its data is, and what is unknown."""

from typing import cast

import click
import pytest
from tests.unit.cli.builders import held, job, pod, printed
from tests.unit.control.builders import NOW
from tests.unit.kube.fake import error

from tdcs.cli.explain.explain_command import existing
from tdcs.cli.explain.explained_job import JobWorld, explain
from tdcs.kube.api import KubeApi, ObjectList
from tdcs.kube.errors import NotFoundError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, PODS, TRAINING_JOBS, Resource


def test_what_may_not_be_listed_is_named_and_the_rest_is_explained() -> None:
    world = JobWorld(job=job(state="Running"), datasets=held(a=60, b=30), own_pods=[pod("p0", node="b")])
    report = explain(world)
    assert "you may not list nodes" in report.pods[0].sentence
    assert "30 bytes" in printed(report)


def test_why_it_waits_is_said_in_the_operators_words() -> None:
    message = "needs 4 nvidia.com/gpu at once, 3 nvidia.com/gpu free; position 2 of 2; behind team/big"
    report = explain(JobWorld(job=job(state="Queued", reason="NotEnoughRoom", message=message)))
    assert report.headline == f"It waits for its turn: {message}"
    assert "there is no such Dataset" in report.datasets[0]
    assert message in printed(report)


def test_a_pod_that_does_not_start_quotes_the_reason() -> None:
    waiting = {
        "name": "main",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no [such] image"}},
    }
    waiting_pod = pod("p0", node="a", phase="Pending", containerStatuses=[waiting])
    report = explain(JobWorld(job=job(state="Starting"), datasets=held(a=60), own_pods=[waiting_pod]))
    assert "p0 waits: ImagePullBackOff: no [such] image" in printed(report)


def test_a_job_that_nobody_has_looked_at_says_so() -> None:
    assert "the operator has not looked at it yet" in explain(JobWorld(job=job())).headline


def test_a_dataset_that_cannot_be_understood_hides_nothing_else() -> None:
    world = JobWorld(job=job(state="Waiting"), datasets={"pictures": {"spec": "nonsense"}})
    text = explain(world).datasets[0]
    assert "the object cannot be understood (spec: " in text
    assert "no such Dataset" not in text


def test_a_dataset_that_nobody_has_looked_at_is_not_called_missing() -> None:
    unread = {"pictures": {"metadata": {"name": "pictures"}, "spec": {"source": {"uri": "s3://b/p"}}}}
    texts = explain(JobWorld(job=job(state="Waiting"), datasets=unread)).datasets
    assert texts == ("pictures: the operator has not looked at it yet",)


def test_a_dataset_that_cannot_be_read_is_quoted() -> None:
    refused = held(a=0)
    mounted = next(
        condition
        for condition in refused["pictures"]["status"]["conditions"]
        if condition["type"] == "Mounted"
    )
    mounted |= {"status": "False", "reason": "SourceRefused", "message": "403 Forbidden"}
    text = explain(JobWorld(job=job(state="Waiting"), datasets=refused)).datasets[0]
    assert text.endswith("it cannot be read now: SourceRefused: 403 Forbidden")


def test_of_a_dataset_on_many_nodes_the_first_are_named() -> None:
    nodes = {f"node{number:02}": number for number in range(1, 21)}
    text = explain(JobWorld(job=job(state="Waiting"), datasets=held(**nodes))).datasets[0]
    assert "20 bytes on node20" in text
    assert text.endswith("13 bytes on node13, less or as much on 12 more")


class Bare:
    """A cluster, with TDCS or without."""

    def __init__(self, *, knows: bool) -> None:
        self._knows = knows

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> None:
        return None

    async def list(self, resource: Resource, **_: object) -> ObjectList:
        if not self._knows:
            raise error(NotFoundError)
        return ObjectList(items=[], resource_version="1")


@pytest.mark.parametrize(
    ("resource", "knows", "text"),
    [
        (TRAINING_JOBS, False, "the cluster does not know TrainingJobs: install TDCS, or its definitions"),
        (DATASETS, False, "the cluster does not know Datasets: install TDCS, or its definitions"),
        (TRAINING_JOBS, True, "there is no TrainingJob x in namespace n; kubectl get"),
        (PODS, False, "there is no Pod x in namespace n; kubectl get"),
    ],
)
async def test_what_is_not_there_may_be_the_object_or_tdcs(
    resource: Resource, knows: bool, text: str
) -> None:
    with pytest.raises(click.ClickException, match=text):
        await existing(
            cast(KubeApi, Bare(knows=knows)), resource, kind=resource.kind, name="x", namespace="n"
        )


def test_a_job_that_waits_for_a_place_says_at_what_and_how_much_of_it_may_be_cached() -> None:
    granted = {
        "type": "Granted",
        "status": "False",
        "reason": "QuotaExceeded",
        "message": "quota vision allows 6 MB of 10 MB",
        "lastTransitionTime": NOW,
    }
    pictures: Object = {
        "spec": {"source": {"uri": "file:///data"}, "access": {"maxConcurrentJobs": 1}},
        "status": {
            "totalBytes": 10_000_000,
            "mountPath": "/p",
            "claimName": "pictures",
            "activeJobs": 1,
            "waitingJobs": 2,
            "grant": {"bytes": 6_000_000, "slots": 2400, "reason": "QuotaExceeded"},
            "conditions": [granted],
        },
    }
    why = "Dataset team/pictures lets 1 job read it at once (spec.access.maxConcurrentJobs), and team/first reads it"
    report = explain(
        JobWorld(
            job=job(state="Queued", reason="DatasetAtLimit", message=why), datasets={"pictures": pictures}
        )
    )
    assert report.headline == f"It waits for its turn: {why}"
    (line,) = report.datasets
    assert "1 read (at most 1 a copy), 2 wait (spec.access)" in line
    pictures["status"]["activeJobs"] = 0
    report = explain(JobWorld(job=job(state="Queued", message=why), datasets={"pictures": pictures}))
    assert "0 read (at most 1 a copy), 2 wait (spec.access)" in report.datasets[0]
    assert "it may take 5.7 MiB (QuotaExceeded: quota vision allows 6 MB of 10 MB)" in line
