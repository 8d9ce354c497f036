"""`tdcs plan` with a real API server and the operator at work: what it says comes true, and is checked afterwards."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.controlplane.operator_world import World, world
from tests.support.controlplane.fixtures import TEST_LABEL
from tests.support.kube import condition

from tdcs.cli.main import main

__all__ = ["world"]

SPEEDS = ("--epochs", "2", "--images-per-second-per-gpu", "1", "--remote-bytes-per-second", "100M")


def job_file(world: World, folder: Path, *, workers: int) -> Path:
    """A TrainingJob of so many pods with a GPU each, on the nodes of this test."""
    container = {"name": "main", "image": "train:test", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {
        "spec": {
            "schedulerName": "default-scheduler",
            "nodeSelector": {TEST_LABEL: world.namespace},
            "containers": [container],
        }
    }
    job = {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "TrainingJob",
        "metadata": {"name": "planned", "namespace": world.namespace},
        "spec": {
            "workers": workers,
            "replicaSpecs": [{"name": "Worker", "template": template}],
            "datasets": [{"name": "pictures", "mountPath": "/data"}],
        },
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return path


def run_plan(world: World, file: Path, *options: str) -> Result:
    return CliRunner().invoke(
        main, ["plan", str(file), f"--kubeconfig={world.plane.kubeconfig}", "--json", *options]
    )


def planned(world: World, file: Path, *options: str) -> Any:
    run = run_plan(world, file, *options)
    assert run.exit_code == 0, run.output
    return json.loads(run.output)


def misspelt(job: Any, pod: dict[str, str], container: dict[str, Any]) -> dict[str, Any]:
    """The roles of a job, with more fields in the first pod and its first container."""
    roles = copy.deepcopy(job["spec"]["replicaSpecs"])
    template = roles[0]["template"]["spec"]
    template |= pod
    template["containers"][0] |= container
    return {"replicaSpecs": roles}


def test_what_kubectl_apply_refuses_is_not_planned(world: World, tmp_path: Path) -> None:
    file = job_file(world, tmp_path, workers=2)
    good = yaml.safe_load(file.read_text(encoding="utf-8"))
    for spec, words in (
        ({"priority": "high"}, 'unknown field "spec.priority"'),
        ({"datasets": 2 * good["spec"]["datasets"]}, "two datasets have the same mountPath"),
        (
            misspelt(good, {"nodeNaem": "x"}, {}),
            'unknown field "spec.replicaSpecs[0].template.spec.nodeNaem"',
        ),
        (misspelt(good, {}, {"imagge": "x"}), 'template.spec.containers[0].imagge"'),
        (misspelt(good, {}, {"resources": {"limits": {"nvidia.com/gpu": "-1"}}}), "'-1' is no quantity"),
    ):
        file.write_text(yaml.safe_dump({**good, "spec": {**good["spec"], **spec}}), encoding="utf-8")
        run = run_plan(world, file)
        assert (run.exit_code, words in run.output) == (2, True), run.output
    assert world.kube.find("TrainingJob", "planned", namespace=world.namespace) is None


FAULTS: dict[str, tuple[Any, Any, str]] = {
    "two volumes of one name": (
        {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]},
        {},
        'duplicate entries for key [name="v"]',
    ),
    "a mount without a volume": (
        {},
        {"volumeMounts": [{"name": "absent", "mountPath": "/x"}]},
        "volumeMounts[0].name: Not found",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_template_that_makes_no_valid_job_is_refused_by_the_plan_and_named_by_the_job(
    world: World, tmp_path: Path, fault: str
) -> None:
    pod, container, words = FAULTS[fault]
    file = job_file(world, tmp_path, workers=2)
    job = yaml.safe_load(file.read_text(encoding="utf-8"))
    job["spec"]["datasets"] = []
    template = job["spec"]["replicaSpecs"][0]["template"]["spec"]
    template |= pod
    template["containers"][0] |= container
    file.write_text(yaml.safe_dump(job), encoding="utf-8")
    run = run_plan(world, file)
    assert run.exit_code == 2, run.output
    for part in ("the API server refuses the Job of role Worker: ", words):
        assert part in " ".join(run.output.split())
    with world.operator():
        world.kube.create(job)
        world.wait(lambda: (world.job("planned").get("status") or {}).get("reason") == "ChildRefused")
    status = world.job("planned")["status"]
    assert words in status["message"]


def test_a_plan_says_what_the_operator_does_and_the_job_says_how_wrong_it_was(
    world: World, tmp_path: Path
) -> None:
    world.create_cluster()
    with world.operator():
        world.create_dataset()
        world.wait_ready()
        world.wait(lambda: world.dataset()["status"].get("claimName"))  # the claim is bound a moment later
        # Nine GPUs there are.
        never = planned(world, job_file(world, tmp_path, workers=10))
        assert (never["starts_now"], never["turn"]["reason"]) == (False, "NoNodeIsLargeEnough")
        plan = planned(world, job_file(world, tmp_path, workers=2), "--apply", *SPEEDS)
        holders = {node["name"] for node in world.dataset()["status"]["copies"][0]["nodes"] if node["bytes"]}
        assert plan["starts_now"], (plan["data"], plan["turn"])
        assert {pod["node"] for pod in plan["pods"]} <= holders
        assert (plan["load_bytes"], plan["leaving"]) == (0, [])
        world.wait(lambda: condition(world.job("planned"), "Succeeded") == "True")
        check = world.job("planned")["status"]["prediction"]
        # Forty files in two passes, at one file a second and GPU.
        assert check["predictedSeconds"] == round(plan["forecast"]["seconds"]) == 40
        off = 100 * (40 - check["runSeconds"]) / check["runSeconds"]
        assert check["errorPercent"] == round(off)
