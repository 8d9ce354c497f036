"""Jobs that a backup brings back, and what their children inherit."""

import asyncio

import pytest
from tests.unit.control.builders import JOB_OBJECT, job_spec
from tests.unit.control.jobs import Jobs

from tdcs.control.job import job_children
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import JOBS, PODS, SERVICES, TRAINING_JOBS


async def restore(jobs: Jobs, saved: Object, *, name: str = "train", status: bool = False) -> None:
    """The namespace is gone, and the job comes back with what a backup stores of it."""
    for kind in (TRAINING_JOBS, JOBS, SERVICES, PODS):
        for namespace, name_left in list(jobs.server.store(kind)):
            if namespace == "n":
                await jobs.server.delete(kind, name=name_left, namespace=namespace)
    metadata = {key: saved["metadata"][key] for key in ("labels", "annotations") if key in saved["metadata"]}
    obj = {**saved, "metadata": {**metadata, "name": name, "namespace": "n"}}
    if not status:
        obj.pop("status", None)
    await jobs.server.create(TRAINING_JOBS, obj=obj)


@pytest.mark.parametrize("code", [0, 3])
async def test_an_ended_job_that_a_backup_brings_back_without_its_status_does_not_run_again(
    code: int,
) -> None:
    ending = "Failed" if code else "Succeeded"
    async with Jobs(gpus={"a": 8}) as jobs:
        await jobs.create(runPolicy={"backoffLimit": 0})
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until_state("Running")
        assert "annotations" not in jobs.training_job("train")["metadata"]
        for pod in jobs.pods("train"):
            await jobs.end(pod, code=code)
        await jobs.until_state(ending)
        ended = jobs.status()["completionTime"]
        saved = jobs.training_job("train")
        await restore(jobs, saved)
        await jobs.until_state(ending)
        assert not jobs.pods("train")
        assert jobs.status()["reason"] == "Restored"
        assert jobs.status()["completionTime"] == ended
        assert "to run it again, create it without this annotation" in jobs.status()["message"]
        await jobs.create("other")
        await jobs.until(lambda: jobs.bound("other") == 2)
        # A copy under another name is another job.
        await restore(jobs, saved, name="copy")
        await jobs.until(lambda: jobs.bound("copy") == 2)


async def test_a_running_job_that_comes_back_with_its_status_queues_like_any_other() -> None:
    async with Jobs(gpus={"a": 2}) as jobs:
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until_state("Running")
        saved = jobs.training_job("train")
        for condition in saved["status"]["conditions"]:
            condition["lastTransitionTime"] = "2020-01-01T00:00:00Z"
        await jobs.stranger("stranger", node="a", gpus=1)
        await restore(jobs, saved, status=True)
        await jobs.until_state("Queued")
        assert not jobs.pods("train")
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.until(lambda: jobs.bound("train") == 2)


async def test_a_new_job_is_no_restored_one_where_the_operators_clock_is_behind() -> None:
    async with Jobs(gpus={"a": 2}) as jobs:
        jobs.advance(-30)
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") == 2)
        for _ in range(30):
            await jobs.play()
            await asyncio.sleep(0.01)
        assert "Restored" not in jobs.events()
        assert jobs.bound("train") == 2


OF_TOOLS = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "applyset.kubernetes.io/part-of",
    "argocd.argoproj.io/tracking-id",
    "argocd.argoproj.io/instance",
    "workflows.argoproj.io/workflow",
    "config.kubernetes.io/origin",
    "field.cattle.io/projectId",
    "helm.sh/chart",
    "helm.toolkit.fluxcd.io/name",
    "kapp.k14s.io/app",
    "addonmanager.kubernetes.io/mode",
    "app.oam.dev/name",
    "cli-utils.sigs.k8s.io/inventory-id",
    "config.k8s.io/owning-inventory",
    "configmanagement.gke.io/managed",
    "configsync.gke.io/resource-id",
    "crossplane.io/composite",
    "internal.config.kubernetes.io/path",
    "kluctl.io/discriminator",
    "kubecfg.ksonnet.io/garbage-collect-tag",
    "olm.owner",
    "operators.coreos.com/tdcs.team",
    "skaffold.dev/run-id",
    "tanka.dev/environment",
    "werf.io/release-channel",
    "kustomize.toolkit.fluxcd.io/name",
    "meta.helm.sh/release-name",
    "objectset.rio.cattle.io/hash",
    "reconcile.fluxcd.io/requestedAt",
    "tdcs.io/predicted-seconds",
    "velero.io/restore-name",
]


@pytest.mark.parametrize("mark", OF_TOOLS)
def test_children_do_not_inherit_the_marks_of_tools_that_applied_the_job(mark: str) -> None:
    marks = {mark: "x", "team": "vision", "myhelm.sh/x": "1", "app.kubernetes.io/part-of": "search"}
    owner = {**JOB_OBJECT, "metadata": {**JOB_OBJECT["metadata"], "labels": marks, "annotations": marks}}
    spec = job_spec()
    children = [
        job_children.job(owner=owner, spec=spec, role="Worker", suspended=True),
        job_children.service(owner=owner, spec=spec),
    ]
    for child in (*children, children[0]["spec"]["template"]):
        for field in ("labels", "annotations"):
            inherited = child["metadata"][field]
            assert inherited.get(mark) in (None, "tdcs")
            assert marks.items() - {(mark, "x")} <= inherited.items()


def test_children_are_left_out_of_backups_unless_their_template_says_otherwise() -> None:
    job = job_children.job(owner=JOB_OBJECT, spec=job_spec(), role="Worker", suspended=True)
    service = job_children.service(owner=JOB_OBJECT, spec=job_spec())
    for child in (job, job["spec"]["template"], service):
        assert child["metadata"]["labels"]["velero.io/exclude-from-backup"] == "true"
    template = {
        "metadata": {"labels": {"velero.io/exclude-from-backup": "false"}},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    chosen = job_children.pod_template(
        owner=JOB_OBJECT, spec=job_spec(roles={"Worker": {"template": template}})
    )
    assert chosen["metadata"]["labels"]["velero.io/exclude-from-backup"] == "false"
