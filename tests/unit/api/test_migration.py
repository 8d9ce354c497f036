"""Files of the former version are rewritten: every field, with their comments, and never by half."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tdcs.api.cachecluster import CacheCluster
from tdcs.api.dataset import Dataset
from tdcs.api.durations import to_seconds
from tdcs.api.migration.objects import MigrationError, migrate
from tdcs.api.migration.text import migrated
from tdcs.api.preload import Preload
from tdcs.api.trainingjob import TrainingJob
from tdcs.cli.main import main

FILE = """\
# Our data.
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {accessKeyId:   odd-spacing}
---
apiVersion: tdcs.io/v1alpha1
kind: Dataset
metadata:
  name: imagenet # not imagenet21k
spec:
  source:
    uri: "s3://bucket/imagenet"
    secretRef: {name: keys}
    checkInterval: 1d
  cacheCluster: fast # the one with NVMe
  preload:
    # half is enough
    fraction: 0.5
---
apiVersion: tdcs.io/v1alpha1
kind: CacheCluster
metadata: {name: fast}
spec:
  scaling: {drainTimeout: 1d12h30m}
---
apiVersion: tdcs.io/v1alpha1
kind: Preload
metadata: {name: warm, namespace: team}
spec: {dataset: imagenet, fraction: 0.125}
---
apiVersion: tdcs.io/v1alpha1
kind: TrainingJob
metadata: {name: train}
spec:
  framework: TensorFlow
  datasets:
    - name: imagenet
      mountPath: /data
      readiness: {fraction: 1, timeout: 30m}
  # who trains
  replicaSpecs:
    Chief:
      template: &pod
        spec:
          containers:
            - {name: main, image: train} # ours
    Worker:
      replicas: 4 # four nodes
      template: *pod
"""

EXPECTED: dict[str, dict[str, Any]] = {
    "Dataset": {"cacheClusterRef": {"name": "fast"}, "preload": {"percent": 50}},
    "CacheCluster": {"scaling": {"drainTimeout": "36h30m"}},
    "Preload": {"datasetRef": {"name": "imagenet"}, "percent": 13},
    "TrainingJob": {"workers": 4},
}
MODELS: dict[str, type[BaseModel]] = {
    "Dataset": Dataset,
    "CacheCluster": CacheCluster,
    "Preload": Preload,
    "TrainingJob": TrainingJob,
}


def test_every_field_of_a_file_is_rewritten_and_understood() -> None:
    text, changes = migrated(FILE)
    found = {one["kind"]: one for one in yaml.safe_load_all(text)}
    for kind, expected in EXPECTED.items():
        assert found[kind]["apiVersion"] == "tdcs.io/v1alpha2"
        assert found[kind]["spec"].items() >= expected.items()
        MODELS[kind].model_validate(found[kind])
    assert found["CacheCluster"]["metadata"]["namespace"] == "tdcs-system"
    assert found["Dataset"]["spec"]["source"]["checkInterval"] == "24h"
    job = found["TrainingJob"]["spec"]
    assert job["datasets"][0]["readiness"] == {"percent": 100, "timeout": "30m"}
    pod = {"spec": {"containers": [{"name": "main", "image": "train"}]}}
    assert job["replicaSpecs"] == [{"name": "Chief", "template": pod}, {"name": "Worker", "template": pod}]
    assert "Preload warm: spec.fraction 0.125 is spec.percent 13, rounded up to a whole percent" in changes
    assert "TrainingJob train: spec.replicaSpecs.Worker.replicas is spec.workers" in changes


def test_comments_quotes_and_other_documents_stay() -> None:
    text, _ = migrated(FILE)
    for kept in (
        FILE.split("---")[0],
        "name: imagenet # not imagenet21k",
        '"s3://bucket/imagenet"',
        "# the one with NVMe",
        "# half is enough",
        "# who trains",
        "# ours",
    ):
        assert kept in text, kept


def test_a_second_run_changes_nothing() -> None:
    text, _ = migrated(FILE)
    assert migrated(text) == (text, [])


def test_what_kubectl_gets_is_cleared_of_what_the_servers_set() -> None:
    item = {
        "apiVersion": "tdcs.io/v1alpha1",
        "kind": "Preload",
        "metadata": {
            "name": "warm",
            "uid": "u",
            "resourceVersion": "7",
            "finalizers": ["mine", "tdcs.io/finalizer"],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "kept"},
        },
        "spec": {"dataset": "d"},
        "status": {"state": "Complete"},
    }
    listed = {"apiVersion": "v1", "kind": "List", "items": [item]}
    assert migrate(listed)
    assert listed["items"] == [
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "Preload",
            "metadata": {"name": "warm", "finalizers": ["mine"], "annotations": {"mine": "kept"}},
            "spec": {"datasetRef": {"name": "d"}},
        }
    ]


def test_two_roles_that_are_one_alias_become_two_items() -> None:
    roles = "{Chief: &role {template: {spec: {containers: []}}}, Worker: *role}"
    head = "apiVersion: tdcs.io/v1alpha1\nkind: TrainingJob\nmetadata: {name: x}\n"
    text, _ = migrated(f"{head}spec:\n  replicaSpecs: {roles}\n")
    assert [one["name"] for one in yaml.safe_load(text)["spec"]["replicaSpecs"]] == ["Chief", "Worker"]


BAD = {
    "no YAML": ("a: 1\n---\na: [\n", r"line \d: no YAML"),
    "a template": ("---\n{{- if .Values.x }}\na: 1\n", "Templates must be rendered before"),
    "fraction": ("kind: Preload\nspec: {fraction: half}", r"Preload x: spec\.fraction is 'half'"),
    "both": ("kind: Preload\nspec: {fraction: 0.1, percent: 10}", "stands beside percent: remove one"),
    "both references": (
        "kind: Dataset\nspec: {cacheCluster: a, cacheClusterRef: {}}",
        "beside spec.cacheClusterRef",
    ),
    "a role": (
        "kind: TrainingJob\nspec: {replicaSpecs: {Evaluator: {}}}",
        "replicaSpecs.Evaluator is no role",
    ),
    "a duration": ("kind: Dataset\nspec: {source: {checkInterval: soon}}", "checkInterval is 'soon'"),
    "a kind": ("kind: Data", "has no kind Data"),
    "a spec": ("kind: Dataset\nspec: [x]", "spec is no mapping"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_rewritten_is_named_and_nothing_is_written(what: str, tmp_path: Path) -> None:
    body, message = BAD[what]
    head = (
        "" if "YAML" in what or "template" in what else "apiVersion: tdcs.io/v1alpha1\nmetadata: {name: x}\n"
    )
    with pytest.raises(MigrationError, match=message):
        migrated(head + body)
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(FILE)
    bad.write_text(head + body)
    result = CliRunner().invoke(main, ["migrate", "--in-place", str(good), str(bad)])
    assert result.exit_code == 1
    assert f"{bad}: " in result.output
    assert "nothing was written" in result.output
    assert good.read_text() == FILE


def test_the_command_reads_standard_input_and_writes_in_place(tmp_path: Path) -> None:
    expected, changes = migrated(FILE)
    piped = CliRunner().invoke(main, ["migrate", "-"], input=FILE)
    assert (piped.exit_code, piped.stdout) == (0, expected)
    assert piped.stderr.splitlines() == [f"standard input: {change}" for change in changes]
    file = tmp_path / "all.yaml"
    file.write_text(FILE)
    file.chmod(0o640)
    for _ in range(2):
        done = CliRunner().invoke(main, ["migrate", "-i", str(file)])
        assert (done.exit_code, done.stdout) == (0, "")
        assert (file.read_text(), file.stat().st_mode & 0o777) == (expected, 0o640)
    assert [path.name for path in tmp_path.iterdir()] == ["all.yaml"]
    missing = CliRunner().invoke(main, ["migrate", str(tmp_path / "none.yaml")])
    assert (missing.exit_code, "No such file" in missing.output) == (1, True)


@given(st.floats(min_value=0.0001, max_value=1))
def test_a_share_never_shrinks_and_is_always_accepted(fraction: float) -> None:
    obj = {
        "apiVersion": "tdcs.io/v1alpha1",
        "kind": "Preload",
        "metadata": {"name": "x"},
        "spec": {"dataset": "d", "fraction": fraction},
    }
    migrate(obj)
    percent = Preload.model_validate(obj).spec.percent
    assert percent is not None
    assert fraction * 100 - 1e-4 <= percent < fraction * 100 + 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("500ms", 0.5), ("0s", 0), ("48h", 172800)],
)
def test_durations_are_those_of_kubernetes(text: str, seconds: float) -> None:
    assert to_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "2d", "90", "1h 30m", "h", "1x", "-5s", "5s\n"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90s, 10m or 1h30m; a day is 24h"):
        to_seconds(text)
