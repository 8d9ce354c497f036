"""What events tell of pods that do not run, or could not be made."""

from typing import Any, cast

import pytest
from tests.unit.control.builders import NOW, job_spec
from tests.unit.kube.fake import ScriptedApi

from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.control.context import Context
from tdcs.control.job.pod_events import PodEvents
from tdcs.decide.job import job_headline, unplaced_pods
from tdcs.decide.job.observed_job import JobView, Observed
from tdcs.kube.api import ObjectList
from tdcs.model.job_pods import PodView
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import EVENTS, Resource

ADMITTED = TrainingJobStatus.model_validate(
    {"conditions": [{"type": "Admitted", "status": "True", "reason": "X", "lastTransitionTime": NOW}]}
)
QUOTA = 'pods "train-worker-1" is forbidden: exceeded quota: team'


class Events(ScriptedApi):
    """A server with these events."""

    def __init__(self, *events: Object) -> None:
        super().__init__(lists=[ObjectList(items=list(events), resource_version="1")])

    async def list(self, resource: Resource, **options: Any) -> ObjectList:
        assert resource is EVENTS
        return await super().list(resource, **options)


def quota_event(*, at: str) -> Object:
    return {"metadata": {}, "reason": "FailedCreate", "message": QUOTA, "lastTimestamp": at}


def quotes(api: Events, *, now: str) -> PodEvents:
    class World:
        pass

    world = World()
    world.__dict__.update(api=api, now=lambda: now)
    return PodEvents(context=cast("Context", world))


def job_of(*, pods: int, created: str = NOW) -> Observed:
    """A job of two workers, of which these exist and run."""
    return Observed(
        spec=job_spec(),
        status=ADMITTED,
        jobs={"Worker": JobView(exists=True, active=pods, start_time=NOW, uid="uid-job")},
        pods=[
            PodView(
                name=f"w{index}", index=str(index), node="a", phase="Running", ready=True, created=created
            )
            for index in range(pods)
        ],
    )


@pytest.mark.parametrize(("pods", "missing"), [(0, "2 pods"), (1, "1 pod")])
@pytest.mark.failure_mode("quota-refuses-some-pods")
async def test_a_quota_that_keeps_pods_from_being_made_is_quoted(pods: int, missing: str) -> None:
    api = Events(quota_event(at="2026-01-01T00:00:02Z"))
    observed, again = await quotes(api, now="2026-01-01T00:00:30Z").complete(job_of(pods=pods), namespace="n")
    headline = job_headline.running(observed)
    assert headline.reason == "FailedCreate"
    assert headline.message == (
        f"{pods} of 2 pods run; {missing} of the role Worker could not be made: FailedCreate: {QUOTA}"
    )
    assert api.options["fields"] == "involvedObject.uid=uid-job,type=Warning"
    assert again is not None
    # That there is such a pod must not be counted as one.
    assert job_headline.counts(observed, "Worker").active == pods


async def test_a_gang_that_gives_its_places_back_says_that_a_quota_was_why() -> None:
    api = Events(quota_event(at="2026-01-01T00:00:02Z"))
    observed, _ = await quotes(api, now="2026-01-01T00:00:30Z").complete(job_of(pods=1), namespace="n")
    short = unplaced_pods.short_of(observed)
    assert short is not None
    assert QUOTA in short.sentence(patience=60)


async def test_pods_that_are_about_to_be_made_are_no_reason_to_read_events() -> None:
    api = Events(quota_event(at="2026-01-01T00:00:02Z"))
    observed, again = await quotes(api, now="2026-01-01T00:00:04Z").complete(job_of(pods=1), namespace="n")
    assert (observed.unmade, again, api.listed) == (None, 6.0, 0)


async def test_pods_that_are_still_to_be_made_by_a_clock_that_is_behind_do_not_keep_the_reason_back() -> None:
    api = Events(quota_event(at="2026-01-01T00:00:02Z"))
    observed, _ = await quotes(api, now="2025-01-01T00:00:00Z").complete(job_of(pods=1), namespace="n")
    assert observed.unmade is not None


async def test_what_was_said_before_the_newest_pod_was_made_is_over() -> None:
    api = Events(quota_event(at="2026-01-01T00:00:02Z"))
    job = job_of(pods=1, created="2026-01-01T00:10:00Z")
    observed, _ = await quotes(api, now="2026-01-01T00:11:00Z").complete(job, namespace="n")
    assert observed.unmade is None


async def test_a_job_all_of_whose_pods_exist_costs_no_request() -> None:
    api = Events()
    job = job_of(pods=2)
    assert await quotes(api, now="2026-01-01T01:00:00Z").complete(job, namespace="n") == (job, None)
    assert api.listed == 0
