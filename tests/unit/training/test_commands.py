"""The commands `tdcs-train plan` and `tdcs-train order`, as a user runs them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tdcs_train import __version__
from tdcs_train.cli.main import main
from tdcs_train.job import PLAN_VARIABLE

TEMPLATE = """\
apiVersion: tdcs.io/v1alpha2
kind: TrainingJob
metadata: {name: digits}
spec:
  framework: PyTorch
  datasets:
    - {name: mnist, mountPath: /data}
  workers: 7
  replicaSpecs:
    - name: Worker
      template:
        spec:
          containers:
            - name: torch
              image: train-pytorch
              env: [{name: KEPT, value: "1"}]
"""


def run(*arguments: object) -> Result:
    """The command with its exit code and output."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def plan_json(profile: Path, *arguments: object) -> dict[str, Any]:
    """The JSON document of a plan."""
    result = run("plan", "--profile", profile, *arguments, "--json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.output)
    return document


def test_a_plan_is_one_json_document(chain: Path) -> None:
    document = plan_json(chain, "--workers", 3, "--bandwidth", "1Gbit")
    assert [stage["replicas"] for stage in document["stages"]] == [2, 1]
    assert document["advice"] == "a pipeline of 2 stages, 2-1 workers, is best here"
    first, last = document["stages"]
    assert {
        "nodes",
        "replicas",
        "computeSeconds",
        "syncSeconds",
        "transferSeconds",
        "warmup",
        "versions",
    } < set(first)
    assert [first["warmup"], first["versions"], last["warmup"], last["versions"]] == [1, 2, 0, 1]
    assert first["nodes"] + last["nodes"] == [f"node{number}" for number in range(2, 9)]
    slowest = max(
        max((stage["computeSeconds"] + stage["syncSeconds"]) / stage["replicas"], stage["transferSeconds"])
        for stage in document["stages"]
    )
    assert document["bottleneckSeconds"] == pytest.approx(slowest)
    assert document["speedVsOne"] == pytest.approx(0.0715 / slowest)


def test_the_answer_depends_on_the_link(chain: Path) -> None:
    def advice(bandwidth: str) -> str:
        return str(plan_json(chain, "--workers", 2, "--bandwidth", bandwidth)["advice"])

    assert advice("1Mbit") == "one worker is best here"
    assert advice("500Mbit") == "a pipeline of 2 stages, 1-1 workers, is best here"
    assert advice("1000Gbit") == "data parallel is best here"


def test_the_table_names_every_stage_and_ends_with_the_advice(chain: Path) -> None:
    result = run("plan", "--profile", chain, "--workers", 3, "--bandwidth", "1Gbit")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split()[:3] == ["stage", "workers", "layers"]
    assert [line.split()[1] for line in lines[1:3]] == ["2", "1"]
    assert lines[-1] == "a pipeline of 2 stages, 2-1 workers, is best here"


def test_a_plan_says_what_is_expected_where_transfers_are_not_hidden(chain: Path) -> None:
    slow, fast = (plan_json(chain, "--workers", 2, "--bandwidth", rate) for rate in ("300Mbit", "700Mbit"))
    assert slow["expectedSeconds"] > 1.2 * slow["bottleneckSeconds"]
    assert fast["expectedSeconds"] == pytest.approx(fast["bottleneckSeconds"])
    deeper = plan_json(chain, "--workers", 2, "--bandwidth", "300Mbit", "--ahead", 1)
    assert deeper["expectedSeconds"] < 0.95 * slow["expectedSeconds"]
    lines = run("plan", "--profile", chain, "--workers", 2, "--bandwidth", "300Mbit").output.splitlines()
    assert lines[-2] == (
        "with 2 mini-batches in flight transfers are not all hidden: "
        f"{slow['expectedSeconds']:.6f} seconds a mini-batch are expected, "
        f"with --ahead 1 {deeper['expectedSeconds']:.6f}"
    )
    text = run("plan", "--profile", chain, "--workers", 2, "--bandwidth", "700Mbit").output
    assert "hidden" not in text


def test_what_is_ahead_costs_versions_and_memory_of_all_stages_but_the_last(chain: Path) -> None:
    plain, ahead = (
        plan_json(chain, "--workers", 3, "--bandwidth", "1Gbit", "--ahead", count) for count in (0, 2)
    )
    assert (plain["ahead"], ahead["ahead"]) == (0, 2)
    assert plain["bottleneckSeconds"] == ahead["bottleneckSeconds"]
    first, last = plain["stages"]
    assert [(stage["warmup"], stage["versions"]) for stage in ahead["stages"]] == [
        (first["warmup"] + 2, first["versions"] + 2),
        (last["warmup"], last["versions"]),
    ]
    assert ahead["stages"][0]["memoryBytes"] == pytest.approx(3 * first["memoryBytes"])
    assert ahead["stages"][1]["memoryBytes"] == last["memoryBytes"]
    limit = ("--memory", str(int(1.05 * last["memoryBytes"])))
    result = run("plan", "--profile", chain, "--workers", 3, "--bandwidth", "1Gbit", "--ahead", 40, *limit)
    assert result.exit_code == 2
    assert "--ahead: with 40 stage 0 needs" in result.output
    assert "Traceback" not in result.output


def test_a_graph_with_skipping_tensors_and_constants_is_planned(attention: Path) -> None:
    document = plan_json(attention, "--workers", 4, "--bandwidth", "10Gbit", "--sync", "ps")
    names = sorted(name for stage in document["stages"] for name in stage["nodes"])
    assert names == sorted(f"node{number}" for number in range(3, 14) if number != 6)


def test_the_job_has_the_workers_readers_and_plan_of_the_plan(chain: Path, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(TEMPLATE)
    result = run(
        "plan", "--profile", chain, "--workers", 3, "--bandwidth", "1Gbit", "--job", tmp_path / "job.yaml",
        "--json", "-o", tmp_path / "out.yaml",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    job = yaml.safe_load((tmp_path / "out.yaml").read_text())
    (worker,) = job["spec"]["replicaSpecs"]
    assert job["spec"]["workers"] == 3
    assert job["spec"]["datasets"] == [{"name": "mnist", "mountPath": "/data", "readers": "0-1"}]
    variables = {
        variable["name"]: variable["value"] for variable in worker["template"]["spec"]["containers"][0]["env"]
    }
    assert variables["KEPT"] == "1"
    assert json.loads(variables[PLAN_VARIABLE]) == json.loads(result.output)


def test_pods_have_the_gpus_of_the_innermost_level_and_stay_near_each_other(
    chain: Path, tmp_path: Path
) -> None:
    template = tmp_path / "job.yaml"
    limits = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
    job = yaml.safe_load(TEMPLATE)
    job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0] |= limits
    template.write_text(yaml.safe_dump(job))
    words = ["plan", "--profile", chain, "--levels", "2,2", "--bandwidth", "10Gbit,1Gbit", "--job", template]
    result = run(
        *words, "--near", "example.com/rack", "--near", "topology.kubernetes.io/zone", "-o", tmp_path / "o"
    )
    assert result.exit_code == 0, result.output
    spec = yaml.safe_load((tmp_path / "o").read_text())["spec"]
    pod = spec["replicaSpecs"][0]["template"]["spec"]
    assert spec["workers"] == 2
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    plan = json.loads(pod["containers"][0]["env"][1]["value"])
    assert [level["machines"] for level in plan["levels"]] == [2, 2]
    wishes = pod["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [(term["weight"], term["podAffinityTerm"]["topologyKey"]) for term in wishes] == [
        (100, "example.com/rack"),
        (50, "topology.kubernetes.io/zone"),
    ]
    assert wishes[0]["podAffinityTerm"]["labelSelector"] == {
        "matchLabels": {"tdcs.io/training-job": "digits"}
    }
    refused = run("plan", "--profile", chain, "--workers", 4, "--bandwidth", "1Gbit", "--job", template)
    assert refused.exit_code == 2
    assert "has 8 GPUs for a pod, and the plan has one level" in refused.output


@pytest.mark.parametrize(("bandwidth", "workers", "planned"), [("1Mbit", 1, False), ("1000Gbit", 2, True)])
def test_the_job_follows_the_advice_where_no_pipeline_is_best(
    chain: Path, tmp_path: Path, bandwidth: str, workers: int, planned: bool
) -> None:
    (tmp_path / "job.yaml").write_text(TEMPLATE.replace("/data}", "/data, readers: '0'}"))
    result = CliRunner(catch_exceptions=False).invoke(
        main,
        [
            "plan",
            "--profile",
            str(chain),
            "--workers",
            "2",
            "--bandwidth",
            bandwidth,
            "--job",
            str(tmp_path / "job.yaml"),
        ],
    )
    assert result.exit_code == 0
    job = yaml.safe_load(result.stdout)
    (worker,) = job["spec"]["replicaSpecs"]
    assert job["spec"]["workers"] == workers
    assert job["spec"]["datasets"] == [{"name": "mnist", "mountPath": "/data"}]
    names = [variable["name"] for variable in worker["template"]["spec"]["containers"][0]["env"]]
    assert (PLAN_VARIABLE in names) is planned


SLOW_CUT = """\
node1 -- Input -- forward_compute_time=0, backward_compute_time=0, activation_size=1000, parameter_size=0
node2 -- L1 -- forward_compute_time=333, backward_compute_time=667, activation_size=47500000, parameter_size=20000000
node3 -- L2 -- forward_compute_time=333, backward_compute_time=667, activation_size=1000, parameter_size=20000000
\tnode1 -- node2
\tnode2 -- node3
"""
"""On two workers at 100 MB/s the slowest stage of a cut takes 1 s, but its transfers cannot be hidden."""


def test_a_pipeline_slower_than_data_parallel_is_not_advised_and_the_job_has_one_stage(
    tmp_path: Path,
) -> None:
    (tmp_path / "graph.txt").write_text(SLOW_CUT)
    (tmp_path / "job.yaml").write_text(TEMPLATE)
    planned = [
        "plan",
        "--profile",
        tmp_path / "graph.txt",
        "--workers",
        2,
        "--bandwidth",
        "100MB",
        "--ahead",
        0,
    ]
    result = run(*planned, "--job", tmp_path / "job.yaml", "--json", "-o", tmp_path / "out.yaml")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert document["advice"] == "data parallel is best here"
    assert [(stage["nodes"], stage["replicas"]) for stage in document["stages"]] == [(["node2", "node3"], 2)]
    assert document["expectedSeconds"] == pytest.approx(document["dataParallelSeconds"])
    spec = yaml.safe_load((tmp_path / "out.yaml").read_text())["spec"]
    assert (spec["workers"], spec["datasets"]) == (2, [{"name": "mnist", "mountPath": "/data"}])
    lines = run(*planned).output.splitlines()
    assert [lines[1].split()[1], lines[-1]] == ["2", "data parallel is best here"]
    assert "1.000 times data parallel" in lines[-2]


NOT_HIDDEN = SLOW_CUT.replace("=47500000", "=8000000").replace(
    "parameter_size=20000000", "parameter_size=22000000"
)
"""A pipeline is best, though its transfers are not hidden. Its first stage needs 30 MB, and as much more for each
mini-batch ahead."""


@pytest.mark.parametrize(
    ("ahead", "megabytes", "named"), [(0, 61, True), (0, 59, False), (63, 10_000, True), (64, 10_000, False)]
)
def test_a_plan_names_the_next_number_ahead_only_where_it_would_be_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, megabytes: int, named: bool
) -> None:
    # So that it names a larger number where nothing is to be gained, too.
    monkeypatch.setattr("tdcs_train.cli.plan.NOTABLE", 0.99)
    (tmp_path / "graph.txt").write_text(NOT_HIDDEN)
    words = ["plan", "--profile", tmp_path / "graph.txt", "--workers", 2, "--bandwidth", "100MB"]
    words += ["--memory", f"{megabytes}M"]
    text = run(*words, "--ahead", ahead).output
    assert "seconds a mini-batch are expected" in text
    assert (f"with --ahead {ahead + 1} " in text) is named
    assert run(*words, "--ahead", ahead + 1).exit_code == (0 if named else 2)


BAD_TEMPLATES = {
    "no job": ("kind: Pod\n", "has 0 documents of kind TrainingJob"),
    "no YAML": ("a: [", "is no YAML"),
    "another framework": (TEMPLATE.replace("PyTorch", "TensorFlow"), "spec.framework is TensorFlow"),
    "another role": (
        TEMPLATE.replace("    - name: Worker", "    - name: PS\n    - name: Worker"),
        "the roles PS, Worker",
    ),
    "roles that are no list": (
        TEMPLATE.replace("    - name: Worker", "    Worker:"),
        "spec.replicaSpecs is missing, or no list; name the role Worker in one",
    ),
    "mode Affinity": (TEMPLATE + "  scheduling: {mode: Affinity}\n", "mode is Affinity; datasets.*readers"),
    "elastic": (TEMPLATE + "  elastic: {minReplicas: 1}\n", "the workers of a plan are fixed"),
    "datasets that are a number": (
        TEMPLATE.replace("datasets:\n    - {name: mnist, mountPath: /data}", "datasets: 5"),
        r"spec\.datasets is no list",
    ),
    "a dataset that is a word": (
        TEMPLATE.replace("- {name: mnist, mountPath: /data}", "- mnist"),
        r"spec\.datasets\[0\] is missing, or no mapping",
    ),
    "variables that are a number": (
        TEMPLATE.replace('[{name: KEPT, value: "1"}]', "5"),
        r"containers\[0\]\.env is no list",
    ),
    "a variable that is a word": (
        TEMPLATE.replace('[{name: KEPT, value: "1"}]', "[A]"),
        r"containers\[0\]\.env\[0\] is missing, or no mapping",
    ),
    "variables as a mapping": (
        TEMPLATE.replace('[{name: KEPT, value: "1"}]', "{A: b}"),
        r"containers\[0\]\.env is no list",
    ),
    "a date that is none": (TEMPLATE + "  at: 2001-99-99\n", "is no YAML"),
    "a nest without end": (TEMPLATE + f"  deep: {'[' * 1000}{']' * 1000}\n", "nested too deeply"),
    "no container": (TEMPLATE.split("containers:")[0] + "containers: []\n", "containers: there is none"),
}


@pytest.mark.parametrize("what", BAD_TEMPLATES)
def test_a_template_that_cannot_take_a_plan_is_refused(chain: Path, tmp_path: Path, what: str) -> None:
    text, message = BAD_TEMPLATES[what]
    (tmp_path / "job.yaml").write_text(text)
    result = run(
        "plan", "--profile", chain, "--workers", 3, "--bandwidth", "1Gbit", "--job", tmp_path / "job.yaml"
    )
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert re.search(message, result.output)


BAD_OPTIONS = {
    "no workers": (["--bandwidth", "1Gbit"], "--workers or --levels"),
    "unequal lists": (
        ["--levels", "2,2", "--bandwidth", "1Gbit"],
        "--levels has 2 levels and --bandwidth 1 values",
    ),
    "another product": (
        ["--levels", "2,2", "--workers", "5", "--bandwidth", "1Gbit,1Gbit"],
        "4 workers and --workers 5",
    ),
    "no bandwidth": (["--workers", "2", "--bandwidth", "fast"], "is no bandwidth"),
    "zero bandwidth": (["--workers", "2", "--bandwidth", "0"], "is no bandwidth"),
    "no level": (["--levels", "2,x", "--bandwidth", "1Gbit,1Gbit"], "is no whole number"),
    "a superscript": (["--levels", "²,2", "--bandwidth", "1Gbit,1Gbit"], "is no whole number"),
    "too many machines": (["--workers", "1000000", "--bandwidth", "1Gbit"], "1000000 machines on one level"),
    "too many machines of a level": (
        ["--levels", "2,4000", "--bandwidth", "1Gbit,1Gbit"],
        "4000 machines on one level, above 1024; divide them into levels",
    ),
    "too little memory": (
        ["--workers", "2", "--bandwidth", "1Gbit", "--memory", "1Ki"],
        "the smallest memory",
    ),
    "no memory": (["--workers", "2", "--bandwidth", "1Gbit", "--memory", "much"], "is no size"),
    "too many stages": (
        ["--workers", "9", "--bandwidth", "1Gbit", "--straight"],
        "9 stages of one worker are more than the model of 7 layers has",
    ),
    "a ratio of zero": (
        ["--workers", "2", "--bandwidth", "1Gbit", "--activation-ratio", "0"],
        "--activation-ratio",
    ),
    "a ratio of nan": (
        ["--workers", "2", "--bandwidth", "1Gbit", "--activation-ratio", "nan"],
        "--activation-ratio",
    ),
    "two documents": (
        ["--workers", "2", "--bandwidth", "1Gbit", "--json", "--job", "x.yaml"],
        "needs --output",
    ),
    "an output without a job": (
        ["--workers", "2", "--bandwidth", "1Gbit", "--output", "plan.json"],
        "--output is where --job writes",
    ),
}


@pytest.mark.parametrize("what", BAD_OPTIONS)
def test_bad_options_of_plan_end_with_a_sentence_and_code_2(chain: Path, what: str) -> None:
    arguments, message = BAD_OPTIONS[what]
    result = run("plan", "--profile", chain, *arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("option", "value"), [("--timeout", "nan"), ("--timeout", "inf"), ("--seconds", "nan")]
)
def test_seconds_of_link_that_are_none_are_refused(option: str, value: str) -> None:
    result = run("link", "--master", "127.0.0.1", "--port", 1, "--rank", 0, "--world-size", 2, option, value)
    assert result.exit_code == 2
    assert f"'{option}': {value} is no number of seconds" in result.output


def test_the_package_runs_as_a_module() -> None:
    words = [sys.executable, "-m", "tdcs_train", "version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == __version__


@pytest.mark.parametrize("command", ["plan", "order"])
def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    workers = ["--workers", 2] if command == "plan" else []
    for name, message in (("none", "No such file"), ("bytes", "byte 0 is not UTF-8"), ("", "Is a directory")):
        result = run(command, "--profile", tmp_path / name, "--bandwidth", "1Gbit", *workers)
        assert result.exit_code == 2
        assert message in result.output


@pytest.mark.parametrize("rule", ["count", "timed", "searched"])
def test_an_order_is_one_json_document(chain: Path, rule: str) -> None:
    result = run("order", "--profile", chain, "--bandwidth", "10Gbit", "--rule", rule, "--json")
    assert result.exit_code == 0
    document = json.loads(result.output)
    assert [transfer["node"] for transfer in document["transfers"]] == [
        "node2",
        "node4",
        "node6",
        "node7",
        "node8",
    ]
    values = [transfer["priority"] for transfer in document["transfers"]]
    assert values == sorted(values, reverse=True)
    assert document["plannedSeconds"] < document["randomSeconds"]
    assert 0 < document["overlap"]["random"] < document["overlap"]["planned"] <= 1
    assert 0 < document["efficiency"]["random"] < document["efficiency"]["planned"] <= 1


def test_an_order_that_hardly_matters_is_called_so(chain: Path) -> None:
    assert "hardly matters" in run("order", "--profile", chain, "--bandwidth", "1Mbit").output
    assert "hardly matters" not in run("order", "--profile", chain, "--bandwidth", "10Gbit").output


def test_a_reader_that_has_gone_ends_the_command_without_a_word() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tdcs_train.cli", "targets"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
