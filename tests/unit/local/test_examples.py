"""What a user applies is what the API accepts."""

import ast
from pathlib import Path

import yaml

from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import TrainingJob
from tdcs_local.kind.images import SPECS
from tdcs_local.store import operations

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "deploy" / "examples"


def _example(name: str) -> dict[str, object]:
    (found,) = yaml.safe_load_all((EXAMPLES / name).read_text())
    assert isinstance(found, dict)
    return found


def test_the_example_dataset_reads_from_the_local_store() -> None:
    dataset = Dataset.model_validate(_example("dataset.yaml"))
    assert dataset.spec.source.options.endpoint == operations.ENDPOINT
    assert dataset.spec.source.secret_ref is not None


def test_the_example_job_uses_the_example_dataset_and_a_gpu_in_each_worker() -> None:
    job = TrainingJob.model_validate(_example("trainingjob.yaml"))
    metadata = _example("dataset.yaml")["metadata"]
    assert isinstance(metadata, dict)
    assert [use.name for use in job.spec.datasets] == [metadata["name"]]
    worker = job.spec.worker
    assert worker.replicas == 2
    (container,) = worker.template["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container["args"][:2] == ["--data", job.spec.datasets[0].mount_path]


def test_the_parameter_server_job_has_a_chief_and_gives_gpus_to_workers_only() -> None:
    job = TrainingJob.model_validate(_example("trainingjob-parameter-server.yaml"))
    roles = job.spec.by_role()
    assert {role: spec.replicas for role, spec in roles.items()} == {"Chief": 1, "PS": 1, "Worker": 2}
    with_gpu = {
        role
        for role, spec in roles.items()
        if "nvidia.com/gpu" in spec.template["spec"]["containers"][0]["resources"]["limits"]
    }
    assert with_gpu == {"Worker"}
    for spec in roles.values():
        (container,) = spec.template["spec"]["containers"]
        assert container["command"][1].removeprefix("/opt/train/bin/") in SPECS["train-tensorflow"].files


def test_the_tensorflow_image_has_every_module_of_tdcs_train_that_its_files_import() -> None:
    """The other images have the whole package."""
    files = {name: source for name, source in SPECS["train-tensorflow"].files.items() if name.endswith(".py")}
    for name, source in files.items():
        for node in ast.walk(ast.parse((ROOT / source).read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("tdcs_train"):
                continue
            module = str(node.module).replace(".", "/")
            here = {f"{module}.py", f"{module}/__init__.py"} & files.keys()
            assert here, f"{name} imports {node.module}, which the image does not have"


def test_the_compile_jobs_write_where_the_dataset_of_compiled_models_reads() -> None:
    jobs = list(yaml.safe_load_all((EXAMPLES / "compile-digits.yaml").read_text()))
    dataset = Dataset.model_validate(_example("dataset-compiled.yaml"))
    targets = set()
    for job in jobs:
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        words = dict(word.removeprefix("--").split("=", 1) for word in container["args"] if "=" in word)
        assert words["output"] == dataset.spec.source.uri
        assert words["endpoint"] == dataset.spec.source.options.endpoint == operations.ENDPOINT
        assert pod["nodeSelector"] == {"tdcs.io/target": words["target"]}
        assert container["args"][1].split(":")[0].removeprefix("/opt/train/bin/") in SPECS["train-tvm"].files
        targets.add(words["target"])
    assert len(targets) == len(jobs) == 2


def test_the_score_job_needs_no_framework_and_has_a_pod_for_each_node_of_the_artifacts() -> None:
    job = TrainingJob.model_validate(_example("trainingjob-score.yaml"))
    assert job.spec.framework == "None"
    compiled = Dataset.model_validate(_example("dataset-compiled.yaml"))
    assert [use.name for use in job.spec.datasets] == ["mnist", "compiled"]
    worker = job.spec.worker
    assert worker.replicas == compiled.spec.placement.node_count
    (container,) = worker.template["spec"]["containers"]
    assert container["env"] == [{"name": "PODS", "value": str(worker.replicas)}]
    assert container["command"][1].removeprefix("/opt/train/bin/") in SPECS["train-tvm"].files
