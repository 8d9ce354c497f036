"""Mounts of a pod template that cannot work together with those of the job's datasets."""

from typing import Any

import pytest
from tests.unit.control.jobs import Jobs, role

from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.decide.job.template_mounts import mount_problem
from tdcs.model.kube_resources import JOBS

IMAGE = "train"


def spec_of(*mounts: dict[str, Any], path: str = "/data/imagenet", **pod: Any) -> TrainingJobSpec:
    """A job with one dataset, and these mounts of its own."""
    container = {"name": "main", "image": IMAGE, "volumeMounts": list(mounts), **pod.pop("container", {})}
    template = {"spec": {"containers": [container], **pod}}
    return TrainingJobSpec.model_validate(
        {
            "replicaSpecs": [{"name": "Worker", "template": template}],
            "datasets": [{"name": "pictures", "mountPath": path}],
        }
    )


def mount(path: str, *, name: str = "own", **more: Any) -> dict[str, Any]:
    """One mount."""
    return {"name": name, "mountPath": path, **more}


CONFIG: dict[str, Any] = {"name": "own", "configMap": {"name": "settings"}}
REFUSED = {
    "below the dataset": (spec_of(mount("/data/imagenet/cache")), "is in the dataset pictures"),
    "below it, spelt otherwise": (spec_of(mount("/data//imagenet/./cache/")), "is in the dataset"),
    "at it, spelt otherwise": (spec_of(mount("/data/imagenet/")), "is the path of the dataset"),
    "above it, read-only": (spec_of(mount("/data", readOnly=True)), "mount the two side by side"),
    "above it, a ConfigMap": (spec_of(mount("/data"), volumes=[CONFIG]), "is read-only, so that the dataset"),
    "above it, a claim that is read-only": (
        spec_of(
            mount("/data"),
            volumes=[{"name": "own", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}],
        ),
        "is read-only, so that the dataset",
    ),
    "over the image's own program": (
        spec_of(path="/opt/train", container={"command": ["/opt/train/run.sh"]}),
        "which hides what the image has there",
    ),
    "below it in an init container": (
        spec_of(
            initContainers=[
                {"name": "first", "image": IMAGE, "volumeMounts": [mount("/data/imagenet/x")]},
            ]
        ),
        "initContainers[first].volumeMounts[own]",
    ),
    "a user namespace": (spec_of(hostUsers=False), "hostUsers: false cannot be used together with datasets"),
}
TAKEN = {
    "next to it": spec_of(mount("/data/imagenet-cache")),
    "above it and writable": spec_of(
        mount("/data"),
        volumes=[{"name": "own", "emptyDir": {}}],
        container={"command": ["python", "-c", "1"]},
    ),
    "a script in it": spec_of(container={"command": ["python", "/data/imagenet/train.py"]}),
    "of the node's users": spec_of(hostUsers=True),
    "null lists": spec_of(volumes=None, initContainers=None, container={"volumeMounts": None}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mounts_that_cannot_work_together_are_named(case: str) -> None:
    spec, words = REFUSED[case]

    problem = mount_problem(spec)

    assert words in problem
    assert problem.startswith("replicaSpecs[Worker].template.spec")


@pytest.mark.parametrize("case", TAKEN)
def test_other_mounts_are_taken(case: str) -> None:
    assert mount_problem(TAKEN[case]) == ""


def test_a_user_namespace_without_datasets_is_taken() -> None:
    spec = spec_of(hostUsers=False).model_copy(update={"datasets": []})

    assert mount_problem(spec) == ""


async def test_a_job_with_such_mounts_waits_with_the_sentence_and_gets_no_pods() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        worker = role(2, gpus=1)
        (container,) = worker["template"]["spec"]["containers"]
        container["volumeMounts"] = [mount("/data/imagenet/cache")]
        uses = [{"name": "pictures", "mountPath": "/data/imagenet"}]

        await jobs.create(roles={"Worker": worker}, datasets=uses)

        await jobs.until(lambda: jobs.status().get("reason") == "InvalidSpec")
        assert "is in the dataset pictures at /data/imagenet" in jobs.status()["message"]
        assert not jobs.server.store(JOBS)
