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
    return CliRunner().invoke(main, [str(each) for each in arguments])


def plan_json(profile: Path, *arguments: object) -> dict[str, Any]:
    """The JSON document of a plan."""
    result = run("plan", "--profile", profile, *arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


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
        max((each["computeSeconds"] + each["syncSeconds"]) / each["replicas"], each["transferSeconds"])
        for each in document["stages"]
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
    variables = {each["name"]: each["value"] for each in worker["template"]["spec"]["containers"][0]["env"]}
    assert variables["KEPT"] == "1"
    assert json.loads(variables[PLAN_VARIABLE]) == json.loads(result.output)


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
    names = [each["name"] for each in worker["template"]["spec"]["containers"][0]["env"]]
    assert (PLAN_VARIABLE in names) is planned


BAD_TEMPLATES = {
    "no job": ("kind: Pod\n", "has 0 documents of kind TrainingJob"),
    "no YAML": ("a: [", "is no YAML"),
    "another framework": (TEMPLATE.replace("PyTorch", "TensorFlow"), "spec.framework is TensorFlow"),
    "another role": (
        TEMPLATE.replace("    - name: Worker", "    - name: PS\n    - name: Worker"),
        "the roles PS, Worker",
    ),
    "the former version": (
        TEMPLATE.replace("    - name: Worker", "    Worker:"),
        "spec.replicaSpecs is missing, or no list; .* 'tdcs migrate FILE'",
    ),
    "mode Affinity": (TEMPLATE + "  scheduling: {mode: Affinity}\n", "mode is Affinity; datasets.*readers"),
    "elastic": (TEMPLATE + "  elastic: {minReplicas: 1}\n", "the workers of a plan are fixed"),
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
    "too little memory": (
        ["--workers", "2", "--bandwidth", "1Gbit", "--memory", "1Ki"],
        "the smallest memory",
    ),
    "no memory": (["--workers", "2", "--bandwidth", "1Gbit", "--memory", "much"], "is no size"),
    "too many stages": (
        ["--workers", "9", "--bandwidth", "1Gbit", "--straight"],
        "9 stages of one worker need 8 cuts",
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
}


@pytest.mark.parametrize("what", BAD_OPTIONS)
def test_bad_options_of_plan_end_with_a_sentence_and_code_2(chain: Path, what: str) -> None:
    arguments, message = BAD_OPTIONS[what]
    result = run("plan", "--profile", chain, *arguments)
    assert result.exit_code == 2
    assert message in result.output


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
    assert [each["node"] for each in document["transfers"]] == ["node2", "node4", "node6", "node7", "node8"]
    values = [each["priority"] for each in document["transfers"]]
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
