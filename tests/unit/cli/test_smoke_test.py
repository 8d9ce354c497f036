"""The smoke test says what it saw, and leaves nothing behind however it ends."""

from typing import Any

import pytest
from tests.unit.kube.fake import ScriptedApi

from tdcs.api.trainingjob import TrainingJob
from tdcs.cli.smoke_test import SmokeTestError, job, smoke_test
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import Resource


class Operated(ScriptedApi):
    """An API server whose operator gives every job this status."""

    def __init__(self, status: dict[str, Any] | None) -> None:
        super().__init__()
        self._status = status

    async def create(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        return await super().create(resource, obj={**obj, "status": self._status})


def conditions(**held: str) -> dict[str, Any]:
    return {
        "conditions": [{"type": kind, "status": "True", "message": text} for kind, text in held.items()],
        "placement": [{"pod": "p", "node": "a", "cachedBytes": 0}],
    }


def test_the_job_is_a_valid_one() -> None:
    spec = TrainingJob.model_validate(job(namespace="n", image="i", pull_secrets=["s"])).spec
    assert spec.run_policy.ttl_seconds_after_finished


async def test_a_job_that_succeeds_is_reported_and_deleted() -> None:
    api = Operated(conditions(Succeeded="done"))
    done = await smoke_test(api=api, obj=job(namespace="n", image="i"), seconds=5)
    assert done["status"]["placement"][0]["node"] == "a"
    assert not api.objects


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (conditions(Failed="no image"), "failed; its conditions:\n  Failed=True: no image"),
        (
            conditions(Admitted="0 of 1 pods run"),
            "did not succeed within 0 s.*\n  Admitted=True: 0 of 1 pods",
        ),
        (None, "the operator has not looked at it"),
    ],
)
async def test_any_other_end_is_an_error_that_says_how_far_it_came(
    status: dict[str, Any] | None, words: str
) -> None:
    api = Operated(status)
    with pytest.raises(SmokeTestError, match=words):
        await smoke_test(api=api, obj=job(namespace="n", image="i"), seconds=0.01, poll=0.001)
    assert not api.objects
