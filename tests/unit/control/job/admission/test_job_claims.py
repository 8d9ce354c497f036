"""Jobs with templates that name PersistentVolumeClaims of their users."""

from functools import partial
from typing import Any

import pytest
from tests.unit.control.jobs import Jobs, role

from tdcs.control.context import WorkKey
from tdcs.control.dataset.access import template_claims
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import PERSISTENT_VOLUME_CLAIMS, TRAINING_JOBS, Resource


def with_claims(*claims: str) -> dict[str, Any]:
    workers = role(2, gpus=1)
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    workers["template"]["spec"]["volumes"] = [{"name": "empty", "emptyDir": {}}, *volumes]
    return {"Worker": workers}


async def test_a_job_with_a_claim_that_does_not_exist_is_not_admitted_and_names_it() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.server.create(PERSISTENT_VOLUME_CLAIMS, obj=claim("there"))
        await jobs.create(roles=with_claims("there", "scratch"))
        await jobs.until_state("Waiting")
        assert jobs.status()["reason"] == "PersistentVolumeClaimNotFound"
        assert jobs.status()["message"] == (
            "PersistentVolumeClaim scratch of namespace n does not exist: create it, or correct "
            "template.spec.volumes[2] of role Worker; it is looked for every 10 s"
        )
        assert {kind: jobs.condition(kind)["status"] for kind in ("DataReady", "Admitted")} == {
            "DataReady": "False",
            "Admitted": "False",
        }
        # Another job gets the room that it would take.
        await jobs.create("other", workers=4)
        await jobs.until(lambda: jobs.bound("other") == 4)
        assert not jobs.pods("train")
        assert "PersistentVolumeClaimNotFound" in jobs.events()


async def test_a_job_starts_when_its_claim_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_claims, "RETRY", 0.1)
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(roles=with_claims("scratch"))
        await jobs.until_state("Waiting")
        await jobs.server.create(PERSISTENT_VOLUME_CLAIMS, obj=claim("scratch"))
        await jobs.until(lambda: jobs.bound("train") == 2)


async def test_a_job_without_a_gang_waits_for_its_claims_too() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(roles=with_claims("scratch"), scheduling={"gang": False})
        await jobs.until_state("Waiting")
        assert jobs.status()["reason"] == "PersistentVolumeClaimNotFound"


async def test_a_claim_is_asked_for_once_in_ten_seconds_however_many_passes_and_jobs_need_it() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.server.create(PERSISTENT_VOLUME_CLAIMS, obj=claim("there"))
        names_read: list[str] = []
        get = jobs.context.api.get

        async def counted(resource: Resource, *, name: str, namespace: str | None = None) -> Object | None:
            if resource is PERSISTENT_VOLUME_CLAIMS:
                names_read.append(name)
            return await get(resource, name=name, namespace=namespace)

        jobs.context.api.get = counted  # type: ignore[method-assign]
        for name in ("first", "second"):
            await jobs.create(name, roles=with_claims("there", "scratch"))
            await jobs.until_state("Waiting", name)
        for _ in range(3):
            next_pass = jobs.passes + 1
            jobs.context.queue.add(WorkKey(TRAINING_JOBS, "n", "first"))
            await jobs.until(partial(_has_passed, jobs, next_pass))
        assert sorted(names_read) == ["scratch", "there"]


def _has_passed(jobs: Jobs, next_pass: int) -> bool:
    return jobs.passes >= next_pass


def claim(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n"}}
