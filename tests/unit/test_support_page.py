"""The page of what TDCS was run with names the versions that the repository pins."""

import re

import pytest

from tdcs_local import programs
from tdcs_local.paths import CHECKOUT

PAGE = (CHECKOUT / "docs" / "reference" / "support.md").read_text()


def pinned(name: str, module: str) -> str:
    """The version of a Go module that a program is built of, without its v."""
    text = (programs.go_folder(name) / "go.mod").read_text()
    match = re.search(rf"{re.escape(module)} v(\S+)", text)
    assert match is not None
    return match[1]


@pytest.mark.parametrize(
    ("row", "name", "module"),
    [
        ("Helm", "helm", "helm.sh/helm/v3"),
        ("Kueue", "kueue", "sigs.k8s.io/kueue"),
        ("JobSet", "jobset", "sigs.k8s.io/jobset"),
        ("Kubeflow Trainer", "trainer", "github.com/kubeflow/trainer/v2"),
        ("Google Cloud Storage", "fake-gcs-server", "github.com/fsouza/fake-gcs-server"),
        ("S3 and compatible", "versitygw", "github.com/versity/versitygw"),
        ("Prometheus adapter", "prometheus-adapter", "sigs.k8s.io/prometheus-adapter"),
    ],
)
def test_the_support_page_names_the_version_that_is_built(row: str, name: str, module: str) -> None:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {row} |")]
    assert pinned(name, module) in line


def test_the_support_page_names_the_version_of_kubernetes_that_tests_run() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith(("| Kubernetes |", "| kube-scheduler "))]
    assert len(lines) == 2
    assert all(programs.KUBERNETES_VERSION.removeprefix("v") in line for line in lines)
