"""What a node runs, by its processor and its labels, and where pods for a target may run."""

import platform
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.control.builders import JOB_OBJECT, job_spec

from tdcs.api import targets
from tdcs.api.targets import LEVELS, at_least, processor_features, processor_target, with_target
from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.control.job import job_children
from tdcs.decide.job.node_failures import avoiding
from tdcs.decide.place.node_eligibility import may_run, why_nowhere
from tdcs.model.kube_objects import Object
from tdcs.node.agent.node_processor import this_processor
from tdcs_train.artifacts.targets import TARGETS

V3 = "abm avx avx2 bmi1 bmi2 cx16 f16c fma lahf_lm movbe pni popcnt sse4_1 sse4_2 ssse3 xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


def test_the_names_and_features_are_those_of_artifacts() -> None:
    assert LEVELS["amd64"] == tuple((target.name, target.features) for target in TARGETS)


@pytest.mark.parametrize(
    ("machine", "features", "target"),
    [
        ("x86_64", "", "x86-64"),
        ("x86_64", V3, "x86-64-v3"),
        ("x86_64", V3.replace(" fma", ""), "x86-64-v2"),
        ("x86_64", V4, "x86-64-v4"),
        ("x86_64", V4.replace("avx2 ", ""), "x86-64-v2"),
        ("aarch64", "fp asimd", "arm64-v8.0"),
        ("aarch64", "fp asimd crc32 atomics asimdrdm", "arm64-v8.1"),
        ("aarch64", "fp asimd crc32 atomics asimdrdm dcpop", "arm64-v8.2"),
        ("riscv64", "", ""),
    ],
)
def test_a_processor_runs_the_level_whose_features_it_has(machine: str, features: str, target: str) -> None:
    assert processor_target(machine=machine, features=features.split()) == target


def test_features_are_those_that_all_cores_have(tmp_path: Path) -> None:
    cpuinfo = f"processor : 0\nflags\t\t: {V4}\n\nprocessor : 1\nflags\t\t: {V3}\n"
    assert processor_features(cpuinfo) == set(V3.split())
    assert processor_features("Features\t: fp asimd\n") == {"fp", "asimd"}
    assert processor_features("vendor: x\n") == frozenset()
    assert this_processor(tmp_path / "missing") == ""
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    machine = platform.machine()
    expected = processor_target(machine=machine, features=V3.split())
    assert this_processor(tmp_path / "cpuinfo") == expected


def test_better_processors_run_what_is_for_lesser_ones() -> None:
    assert at_least("x86-64-v3") == ("x86-64-v3", "x86-64-v4")
    assert at_least("cuda-80") == ("cuda-80",)


def node(name: str, labels: dict[str, str]) -> Object:
    return {"metadata": {"name": name, "labels": labels}}


NODES = [
    node("old", {"kubernetes.io/arch": "amd64", "tdcs.io/target": "x86-64-v2"}),
    node("new", {"kubernetes.io/arch": "amd64", "tdcs.io/target": "x86-64-v4", "pool": "b"}),
    node(
        "gpu",
        {
            "kubernetes.io/arch": "amd64",
            "nvidia.com/gpu.compute.major": "9",
            "nvidia.com/gpu.compute.minor": "0",
        },
    ),
    node("arm", {"kubernetes.io/arch": "arm64", "tdcs.io/target": "arm64-v8.2"}),
]


def template(target: str, *, field: str = "annotations", **pod: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "train"}]
    return {"metadata": {field: {"tdcs.io/target": target}}, "spec": {"containers": containers, **pod}}


def runs_on(pod: Object) -> list[str]:
    return [one["metadata"]["name"] for one in NODES if may_run(pod, one)]


@pytest.mark.parametrize("field", ["annotations", "labels"])
@pytest.mark.parametrize(
    ("target", "nodes"),
    [
        ("x86-64", ["old", "new", "gpu"]),
        ("x86-64-v2", ["old", "new"]),
        ("x86-64-v3", ["new"]),
        ("arm64-v8.1", ["arm"]),
        ("cuda-90", ["gpu"]),
        ("cuda-80", []),
    ],
)
def test_pods_for_a_target_run_where_it_is_known_to_run(target: str, nodes: list[str], field: str) -> None:
    assert runs_on(with_target(template(target, field=field))["spec"]) == nodes


def required(*terms: Object) -> Object:
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    }


POOL_B = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["b"]}]}
OLD = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["old"]}]}


@pytest.mark.parametrize(
    ("terms", "nodes"),
    [([POOL_B], ["new"]), ([OLD, POOL_B], ["old", "new"]), ([OLD, {}], ["old"]), ([{}], [])],
)
def test_what_the_template_requires_holds_as_well(terms: list[Object], nodes: list[str]) -> None:
    assert runs_on(with_target(template("x86-64-v2", affinity=required(*terms)))["spec"]) == nodes


def test_the_jobs_of_a_training_job_have_it_and_leave_bad_nodes_as_well() -> None:
    spec = job_spec(roles={"Worker": {"replicas": 1, "template": template("x86-64-v2")}})
    job = job_children.job(owner=JOB_OBJECT, spec=spec, role="Worker", suspended=True)
    assert runs_on(job["spec"]["template"]["spec"]) == ["old", "new"]
    assert runs_on(avoiding(spec, ["old"]).worker.template["spec"]) == ["new"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            "x86-64-v3",
            (
                "no node is known to run x86-64-v3, for which its pods are made (the nodes: 2 x86-64-v2, 1 without a "
                "target in their labels): label those that run it: kubectl label node NODE tdcs.io/target=x86-64-v3, "
                "or correct the template"
            ),
        ),
        (
            "cuda-80",
            (
                "no node is known to run cuda-80, for which its pods are made (the nodes: 2 without a GPU in their "
                "labels, 1 cuda-90): add one that does, or install NVIDIA's GPU feature discovery, which labels nodes, "
                "or correct the template"
            ),
        ),
    ],
)
def test_what_no_node_runs_is_named_with_what_they_run(target: str, words: str) -> None:
    pod = with_target(template(target))["spec"]
    old, _, gpu, _ = NODES
    assert why_nowhere(pod, [old, old, gpu]) == words


@pytest.mark.parametrize("target", ["x86-64-v9", "cuda-8.0", "", "x86-64-v3,cuda-90"])
def test_a_target_that_there_is_not_is_refused(target: str) -> None:
    worker = {"name": "Worker", "template": template(target)}
    with pytest.raises(ValidationError, match="must be one of x86-64, x86-64-v2, "):
        TrainingJobSpec.model_validate({"replicaSpecs": [worker]})
    assert target not in targets.TARGETS


def test_annotation_and_label_that_differ_are_refused() -> None:
    both = template("x86-64-v2")
    both["metadata"]["labels"] = {"tdcs.io/target": "x86-64-v3"}
    with pytest.raises(ValueError, match="and is x86-64-v2 and x86-64-v3"):
        targets.target_of(both)
