"""`tdcs explain job` against a real API server, with a user's rights."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_command import install_rights, remove_cluster_wide
from tests.support.kube import Object

from tdcs.cli.main import main

__all__ = ["jobs"]


def explained(kubeconfig: Path, jobs: JobWorld, name: str, *options: str) -> str:
    """What the command prints."""
    argv = ["explain", "job", name, "-n", jobs.namespace, "--kubeconfig", str(kubeconfig), *options]
    result = CliRunner().invoke(main, argv, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_why_one_job_waits_and_where_another_one_is(jobs: JobWorld) -> None:
    jobs.create_cluster()
    jobs.create_dataset(placement={"mode": "Partition", "nodeCount": 1})
    uses = [{"name": "pictures", "mountPath": "/data", "readiness": {"percent": 100}}]
    jobs.gpu_job("placed", pods=1, gpus=4, datasets=uses)
    with jobs.operator():
        jobs.run_pods("placed", count=1)
        jobs.wait(lambda: jobs.status_of("placed").get("state") == "Running")
        jobs.gpu_job("large", pods=8)
        jobs.wait(lambda: jobs.status_of("large").get("state") == "Queued")
    admin = jobs.plane.kubeconfig
    held = {node["name"]: node["bytes"] for node in jobs.dataset()["status"]["copies"][0]["nodes"]}
    node = jobs.pods("placed")[0]["spec"]["nodeName"]
    report: Object = json.loads(explained(admin, jobs, "placed", "--json"))
    assert [(pod["node"], pod["bytes"]) for pod in report["pods"]] == [(node, held.get(node, 0))]
    assert report["pods"][0]["score"] == (10 if node in held else 0)
    assert f"is on {node}" in explained(admin, jobs, "placed")
    waits = explained(admin, jobs, "large")
    assert "It waits for its turn: needs 8 nvidia.com/gpu at once, 4 nvidia.com/gpu free" in waits


def test_the_charts_role_for_a_namespace_is_enough_for_the_commands(jobs: JobWorld) -> None:
    release, group = f"tdcs-{jobs.cluster}", "rbac.authorization.k8s.io"
    roles = install_rights(jobs.kube, release=release, namespace=jobs.namespace, templates=["user-roles"])
    try:
        jobs.kube.create(
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "edit", "namespace": jobs.namespace},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"{release}-edit"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": jobs.namespace}],
            }
        )
        jobs.gpu_job("train", pods=1)
        with jobs.operator():
            jobs.run_pods(count=1)
            jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        user = jobs.plane.kubeconfig_as(service_account="default", namespace=jobs.namespace)
        explanation = explained(user, jobs, "train")
        assert "It runs: its pod is ready" in explanation
        assert "you may not list pods" not in explanation
        options = ["-n", jobs.namespace, "--kubeconfig", str(user)]
        checked = CliRunner().invoke(main, ["doctor", *options], catch_exceptions=False).output
        assert "you may not create trainingjobs" not in checked
        assert "pods/log" not in checked
        assert "you may not list nodes, so commands show less of the cluster" in checked
        status = CliRunner().invoke(main, ["status", *options], catch_exceptions=False)
        assert status.exit_code == 0, status.output
        assert "train" in status.output
    finally:
        remove_cluster_wide(jobs.plane, roles)
