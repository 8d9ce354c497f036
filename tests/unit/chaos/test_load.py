"""The users of a chaos run know what they have created: nothing of it may vanish, and some job is always there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from deploy.images.store.tdcs_store.buckets import Buckets
from deploy.images.store.tdcs_store.units import parse_sizes
from e2e.chaos.load import JOBS, MOVING, Load, files_of
from e2e.chaos.plan import Change
from e2e.chaos.source import Source

from tdcs_local.errors import LocalError
from tdcs_local.kind.kubectl import Kubectl, Object
from tdcs_local.progress import Reporter
from tdcs_local.store import operations

RESOURCES = {"Pod": "pods", "TrainingJob": JOBS, "Preload": "preloads.tdcs.io", "Dataset": "datasets.tdcs.io"}


class Api:
    """Objects by resource and name. Of a job all goes well."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.takes = self.answers = True

    def __call__(self, *words: str, **_: object) -> str:
        if words[0] == "delete":
            self.objects.pop((words[1], words[2]), None)
        return ""

    def apply(self, *objects: Object) -> None:
        for one in objects if self.takes else ():
            status = {"conditions": [{"type": "Succeeded", "status": "True"}], "state": "Complete"}
            self.objects[RESOURCES[one["kind"]], one["metadata"]["name"]] = {**one, "status": status}
        if not self.answers:
            raise LocalError(what="no answer")

    def get(self, resource: str, name: str, **_: object) -> Object | None:
        return self.objects.get((resource, name))

    def list(self, resource: str, **_: object) -> list[Object]:
        return [one for (kind, _), one in self.objects.items() if kind == resource]

    def wait(self, look: Callable[[], str | None], *, what: str, **_: object) -> None:
        if (missing := look()) is not None:
            raise LocalError(what=what, why=missing)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def load(api: Api, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.setattr(operations, "fill", lambda *_, **__: {"totalFiles": 1, "totalBytes": 1})
    made: dict[str, Any] = {"kubectl": cast(Kubectl, api), "reporter": cast(Reporter, None)}
    source = Source(kubectl=cast(Kubectl, api), namespace="n", image="python")
    return Load(**made, nodes=[], source=source, image="python", toolbox="tools", seed=1)


@pytest.mark.parametrize("change", [Change.CREATE_JOB, Change.CREATE_PRELOAD, Change.TOGGLE_DATASET])
def test_what_the_api_server_has_taken_and_does_not_have_in_the_end_has_vanished(
    change: Change, api: Api, load: Load
) -> None:
    assert load.change(change).startswith("done")
    ((_, name),) = api.objects
    api.objects.clear()
    with pytest.raises(AssertionError, match=rf"{name}.* vanished"):
        load.settle()


def test_what_the_api_server_has_not_taken_is_not_missed(api: Api, load: Load) -> None:
    api.takes = api.answers = False
    assert load.change(Change.CREATE_JOB).startswith("not possible")
    api.takes = api.answers = True
    load.settle()
    assert load.succeeded_jobs() == []


def test_a_job_that_was_taken_without_an_answer_must_succeed_too(api: Api, load: Load) -> None:
    api.answers = False
    load.change(Change.CREATE_JOB)
    api.answers = True
    load.settle()
    assert load.succeeded_jobs() == ["job-001"]


def test_a_job_that_was_deleted_is_not_missed(api: Api, load: Load) -> None:
    for _ in range(2):
        load.change(Change.CREATE_JOB)
    for one in api.objects.values():
        del one["status"]
    load.change(Change.DELETE_JOB)
    (left,) = api.objects
    api.objects[left]["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    load.settle()
    assert load.succeeded_jobs() == [left[1]]


def test_the_only_job_is_not_deleted(api: Api, load: Load) -> None:
    load.change(Change.CREATE_JOB)
    for one in api.objects.values():
        del one["status"]
    load.change(Change.DELETE_JOB)
    assert [name for _, name in api.objects] == ["job-001"]


def test_a_new_pod_reads_each_version_of_the_source_that_changes(api: Api, load: Load) -> None:
    for _ in range(2):
        assert load.change(Change.SOURCE).startswith("done")
    assert [name for _, name in api.objects] == ["moving-002", "moving-003"]
    assert list(load.versions()) == [1, 2, 3]


def test_the_versions_are_what_the_store_makes_of_them(load: Load, tmp_path: Path) -> None:
    load.change(Change.SOURCE)
    buckets = Buckets(root=tmp_path)
    for version, sums in load.versions().items():
        wanted = files_of(MOVING, version=version)
        filled = buckets.fill_from_seed(
            "moving", files=wanted.files, sizes=parse_sizes(wanted.size), seed=wanted.seed
        )
        assert {file["path"]: file["sha256"] for file in filled["files"]} == sums
