"""Wrong traces and scenarios: one sentence that names the place, exit code 2, no traceback."""

import itertools
import json
import math
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tdcs.api.failures import InputError
from tdcs.cli.main import main
from tdcs.decide.job.job_scenario import BOUNDS, KEYS, parse_scenario
from tdcs.decide.job.job_time import predict
from tdcs_labs.advice import advise
from tdcs_labs.plots import check_plot
from tdcs_labs.predict_command import document

HEADER = "timestamp,duration,num_gpus,cluster\n"
GOOD = "2017-10-01 10:00:00,60,1,a\n"
SCENARIO = """
gpus: 8
nodes: 1
epochs: 3
datasetBytes: 1000000
datasetFiles: 100
cacheBytes: 2000000
remoteBytesPerSecond: 1000
warmSeconds: 60
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        (HEADER, "has a header but no jobs"),
        (
            "timestamp,num_gpus,cluster\n2017-10-01 10:00:00,1,a\n",
            "row 1: the header lacks the column duration",
        ),
        ("timestamp\n", "lacks the columns duration, num_gpus, cluster"),
        (HEADER + GOOD + "2017-10-01 10:00:01,-5,1,a\n", "row 3: duration must be above zero, got -5"),
        (HEADER + "2017-10-01 10:00:01,0,1,a\n", "row 2: duration must be above zero"),
        (HEADER + "2017-10-01 10:00:01,nan,1,a\n", "row 2: duration must be above zero"),
        (HEADER + "2017-10-01 10:00:01,1e308,1,a\n", "row 2: duration must be at most 1e+10, got 1e308"),
        (HEADER + "2017-10-01 10:00:01,soon,1,a\n", "row 2: duration is not a number: 'soon'"),
        (HEADER + "2017-10-01 10:00:01,5\n", "row 2: row has 2 of 4 cells; add num_gpus, cluster"),
        (
            HEADER.replace(",", ";"),
            "row 1: the cells are separated by semicolons; export the trace with commas",
        ),
        (HEADER.replace(",", "\t"), "row 1: the cells are separated by tabs"),
        (HEADER + "2017-10-01 10:00:01,5,1.5,a\n", "row 2: num_gpus must be a whole number"),
        (
            HEADER + GOOD + "2017-10-01 10:00:01,5,513,a\n",
            "row 3: num_gpus is 513 but the cluster has only 512",
        ),
        (HEADER + GOOD + "2017-10-01 09:59:59,5,1,a\n", "row 3: timestamp 2017-10-01 09:59:59 is earlier"),
        (HEADER + "yesterday,5,1,a\n", "row 2: timestamp is not a date and time: 'yesterday'"),
        (HEADER + "2017-10-01 10:00:01,5,1,\n", "row 2: cluster is empty"),
        (
            HEADER + "0001-01-01T00:00:00+23:59,5,1,a\n",
            "row 2: timestamp 0001-01-01T00:00:00+23:59 is outside",
        ),
        (
            HEADER + "9999-12-31T23:59:59-23:59,5,1,a\n",
            "row 2: timestamp 9999-12-31T23:59:59-23:59 is outside",
        ),
        (
            "timestamp,duration,num_gpus,duration,cluster\n2017-10-01 10:00:00,60,1,70,a\n",
            "row 1: the header has the column duration more than once",
        ),
        (
            HEADER + GOOD + "2017-10-01 10:00:01,1,5,1,a\n",
            "row 3: has 5 cells but the header names 4 columns; remove 'a'",
        ),
    ],
)
def test_a_wrong_trace_is_refused_with_the_row(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["simulate", "trace", "--trace", str(path), "--json"])
    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert words in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_trace_from_a_spreadsheet_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("\ufeff" + HEADER + GOOD, encoding="utf-8")
    assert CliRunner().invoke(main, ["simulate", "trace", "--trace", str(path), "--json"]).exit_code == 0


def test_a_trace_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    for path, words in (
        (tmp_path / "none.csv", "cannot be read"),
        (binary, "is not a CSV file in UTF-8"),
        (tmp_path, "cannot be read"),
    ):
        result = CliRunner().invoke(main, ["simulate", "trace", "--trace", str(path)])
        assert result.exit_code == 2
        assert words in result.stderr


@pytest.mark.parametrize(
    "option",
    [
        ["--nodes", "0"],
        ["--gpus-per-node", "-1"],
        ["--nodes", "100000000"],
        ["--remote-gbps", "0"],
        ["--remote-gbps", "nan"],
        ["--nic-gbps", "inf"],
        ["--cache-gb-per-node", "nan"],
        ["--cache-gb-per-node", "1e300"],
        ["--nic-gbps", "1e308"],
        ["--nic-gbps", "1e-320"],
        ["--remote-gbps", "1e-320"],
        ["--remote-gbps", "1e308"],
        ["--remote-requests", "1e-320"],
        ["--remote-requests", "1e308"],
        ["--limit", "0"],
        ["--scheme", "magic"],
        ["--mix", "video"],
        ["--jobs-per-copy", "-1"],
        ["--jobs-per-copy", "1", "--scheme", "fluid-like"],
        ["--on-limit", "Clone"],
    ],
)
def test_a_wrong_option_is_refused(trace_file: Path, option: list[str]) -> None:
    result = CliRunner().invoke(main, ["simulate", "trace", "--trace", str(trace_file), *option])
    assert result.exit_code == 2
    assert option[0] in result.stderr


@pytest.mark.parametrize(
    "option",
    [
        ["--cache-gb-per-node", "1e-300"],
        [
            "--cache-gb-per-node",
            "1e6",
            "--nic-gbps",
            "1e6",
            "--remote-gbps",
            "1e6",
            "--remote-requests",
            "1e9",
        ],
        [
            "--cache-gb-per-node",
            "0",
            "--nic-gbps",
            "0.001",
            "--remote-gbps",
            "0.001",
            "--remote-requests",
            "1",
        ],
    ],
)
def test_the_ends_of_the_ranges_give_numbers(tmp_path: Path, option: list[str]) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + GOOD + "9999-12-31 23:59:59,60,8,b\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["simulate", "trace", "--trace", str(path), "--json", *option])
    assert result.exit_code == 0, result.output
    assert_finite(json.loads(result.stdout))


def assert_finite(number_or_tree: object) -> None:
    """No number of a document is infinite or none."""
    if isinstance(number_or_tree, dict):
        for value in number_or_tree.values():
            assert_finite(value)
    if isinstance(number_or_tree, float):
        assert math.isfinite(number_or_tree)


PLOTS = ["figure.pdf", "missing/figure.svg", "/proc/x.svg"]


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_that_cannot_be_made_is_refused_before_the_run(
    trace_file: Path, tmp_path: Path, name: str
) -> None:
    target = tmp_path / name
    result = CliRunner().invoke(
        main, ["simulate", "trace", "--trace", str(trace_file), "--plot", str(target)]
    )
    assert result.exit_code == 2
    assert str(target) in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_that_cannot_be_made_is_refused_by_every_command(tmp_path: Path, name: str) -> None:
    scenario, target = tmp_path / "job.yaml", tmp_path / name
    scenario.write_text(SCENARIO, encoding="utf-8")
    for command in (["simulate", "paper"], ["predict", "--file", str(scenario)]):
        result = CliRunner().invoke(main, [*command, "--plot", str(target)])
        assert result.exit_code == 2
        assert str(target) in result.stderr
        assert result.stdout == ""


def test_a_plot_is_tried_without_a_trace_and_without_waiting(tmp_path: Path) -> None:
    new, old, pipe = tmp_path / "new.svg", tmp_path / "old.svg", tmp_path / "pipe.svg"
    old.write_text("drawn before", encoding="utf-8")
    check_plot(new)
    check_plot(old)
    assert not new.exists()
    assert old.read_text(encoding="utf-8") == "drawn before"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="cannot be written"):
        check_plot(pipe)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("gpus: 8", "gpus: 0"), "gpus must be above zero, got 0"),
        (("datasetBytes: 1000000", "datasetBytes: 0"), "datasetBytes must be above zero"),
        (("cacheBytes: 2000000", "cacheBytes: 0"), "cacheBytes must be above zero"),
        (("cacheBytes: 2000000", "cacheBytes: -1"), "cacheBytes must be above zero"),
        (("cacheBytes: 2000000", "cacheBytes: lots"), "cacheBytes must be a number, got 'lots'"),
        (("cacheBytes: 2000000", "cacheBytes: true"), "cacheBytes must be a number"),
        (("cacheBytes: 2000000", "cacheBytes: .nan"), "cacheBytes must be a number"),
        (("epochs: 3", "epochs: 1.5"), "epochs must be a whole number"),
        (("nodes: 1", "nodes: 9"), "nodes is 9 but gpus is 8"),
        (("epochs: 3", ""), "key epochs is missing"),
        (("epochs: 3", "epochs: 3\ncolour: red"), "unknown key colour"),
        (("warmSeconds: 60", ""), "give either warmSeconds or imagesPerSecondPerGpu"),
        (("warmSeconds: 60", "warmSeconds: 60\nimagesPerSecondPerGpu: 5"), "give either"),
        (("datasetFiles: 100\n", ""), None),
        (
            ("datasetFiles: 100\ncacheBytes: 2000000", "cacheBytes: 2000000\nimagesPerSecondPerGpu: 5"),
            "give either",
        ),
        ((SCENARIO, "- 1\n- 2\n"), "is a list, not keys with values"),
        ((SCENARIO, "eight GPUs please"), "is plain text, not keys with values"),
        ((SCENARIO, "8"), "is a single value, not keys with values"),
        (("cacheBytes: 2000000", "cacheBytes: 144GB"), "got '144GB'; write 144G or 144Gi"),
        (("cacheBytes: 2000000", "cacheBytes: 144 GiB"), "got '144 GiB'; write 144Gi"),
        (("remoteBytesPerSecond: 1000", "remoteBytesPerSecond: 180MB/s"), "write 180M or 180Mi"),
        ((SCENARIO, ""), "holds no keys"),
        ((SCENARIO, "a: [1"), "is not YAML"),
        ((SCENARIO, "[" * 1000), "is nested too deeply"),
        ((SCENARIO, "gpus: 2001-99-99"), "is not YAML"),
        ((SCENARIO, "gpus: " + "9" * 5000), "is not YAML"),
        ((SCENARIO, "#" * 1_000_001), "is longer than a scenario can be"),
        (("gpus: 8", "gpus: " + "9" * 400), "gpus must be at least 1 and at most 1e+06, got 9999"),
        (("gpus: 8", "gpus: -" + "9" * 400), "gpus must be above zero, got -9999"),
        (("gpus: 8", "gpus: 0x" + "f" * 9000), "gpus must be at least 1 and at most 1e+06, got a number of"),
        (("nodes: 1", "nodes: 1000000000"), "nodes must be at least 1 and at most 10000, got 1000000000"),
        (("epochs: 3", "epochs: 1000000000"), "epochs must be at least 1 and at most 1e+06, got"),
        (
            ("datasetBytes: 1000000", "datasetBytes: 1.0e+308"),
            "datasetBytes must be at least 1 and at most 1e+18",
        ),
        (
            ("datasetBytes: 1000000", "datasetBytes: 1e24"),
            "datasetBytes must be at least 1 and at most 1e+18",
        ),
        (("cacheBytes: 2000000", "cacheBytes: .inf"), "cacheBytes must be at least 1 and at most 1e+18"),
        (
            ("remoteBytesPerSecond: 1000", "remoteBytesPerSecond: 1.0e-308"),
            "remoteBytesPerSecond must be at least 1 and at most 1e+15, got 1e-308",
        ),
        (("warmSeconds: 60", "warmSeconds: 1.0e-300"), "warmSeconds must be at least 0.001"),
        (
            ("epochs: 3", "epochs: 3\nepochs: 4"),
            "key epochs is given a second time in line 5; keep one of them",
        ),
    ],
)
def test_a_wrong_scenario_is_refused_with_the_key(
    tmp_path: Path, change: tuple[str, str], words: str | None
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(SCENARIO.replace(*change), encoding="utf-8")
    result = CliRunner().invoke(main, ["predict", "--file", str(path), "--json"])
    if words is None:
        assert result.exit_code == 0
        return
    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert words in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("readCpuSecondsPerFile: 0.01", "key cpusPerNode is missing; readCpuSecondsPerFile needs it"),
        ("cpusPerNode: 2", "key readCpuSecondsPerFile is missing; cpusPerNode means nothing without it"),
        ("jobsPerNode: 2", "key readCpuSecondsPerFile is missing; jobsPerNode means nothing without it"),
        ("readCpuSecondsPerFile: 0\ncpusPerNode: 2", "above zero, got 0; leave the key out"),
        (
            "readCpuSecondsPerFile: 0.01\ncpusPerNode: 2\njobsPerNode: 1.5",
            "jobsPerNode must be a whole number, got 1.5",
        ),
        (
            "readCpuSecondsPerFile: 20\ncpusPerNode: 2",
            "cpusPerNode and jobsPerNode as given the processors of its nodes take 3000 s for the fully cached job",
        ),
    ],
)
def test_what_reading_costs_is_given_whole_or_not_at_all(tmp_path: Path, more: str, words: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"{SCENARIO}{more}\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["predict", "--file", str(path)])
    assert result.exit_code == 2
    assert words in result.stderr


def test_what_reading_costs_needs_the_number_of_files(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    text = SCENARIO.replace("datasetFiles: 100\n", "") + "readCpuSecondsPerFile: 0.01\ncpusPerNode: 2\n"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["predict", "--file", str(path)])
    assert result.exit_code == 2
    assert "key datasetFiles is missing; readCpuSecondsPerFile needs it" in result.stderr


def test_a_scenario_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\x89PNG\r\n\xff\xfe")
    result = CliRunner().invoke(main, ["predict", "--file", str(path)])
    assert result.exit_code == 2
    assert f"{path}: is no text in UTF-8" in result.stderr
    result = CliRunner().invoke(main, ["predict", "--file", "-"], input="")
    assert result.exit_code == 2
    assert "standard input: holds no keys" in result.stderr


def test_a_job_measured_faster_than_its_links_is_refused_with_both_keys(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "gpus: 32\nnodes: 4\nepochs: 10\ndatasetBytes: 147e9\ncacheBytes: 200e9\nremoteBytesPerSecond: 1G\n"
        "nicBytesPerSecond: 100M\nwarmSeconds: 1000\n",
        encoding="utf-8",
    )
    result = CliRunner().invoke(main, ["predict", "--file", str(path), "--json"])
    assert result.exit_code == 2
    assert "warmSeconds is 1000, but with nicBytesPerSecond 1e+08" in result.stderr
    assert "2756 s" in result.stderr
    path.write_text(path.read_text(encoding="utf-8").replace("100M", "1G"), encoding="utf-8")
    result = CliRunner().invoke(main, ["predict", "--file", str(path), "--json"])
    assert json.loads(result.stdout)["warmSeconds"] == 1000


def test_the_ends_of_a_scenarios_bounds_give_numbers() -> None:
    """Every key at its least or its most, in all combinations that a job can have."""
    keys = [key for key in KEYS if key not in ("nodes", "imagesPerSecondPerGpu")]
    for nodes in (1, 2):
        for ends in itertools.product((0, 1), repeat=len(keys)):
            values: dict[object, object] = {
                key: BOUNDS[key][end] for key, end in zip(keys, ends, strict=True)
            }
            values["nodes"] = nodes
            del values["warmSeconds"], values["nicBytesPerSecond"]
            values["imagesPerSecondPerGpu"] = BOUNDS["imagesPerSecondPerGpu"][ends[-1]]
            if values["gpus"] == 1 and nodes == 2:
                continue
            prediction = predict(parse_scenario(where="test", values=values))
            json.dumps(document(prediction, advice=advise(prediction)), allow_nan=False)


def test_the_largest_job_is_predicted_in_seconds() -> None:
    """Ten thousand page caches settle slowly; each step must be cheap."""
    values: dict[object, object] = {
        "gpus": 10_000,
        "nodes": 10_000,
        "epochs": 1_000_000,
        "datasetBytes": 1e15,
        "cacheBytes": 1e15,
    }
    values |= {"remoteBytesPerSecond": 1e9, "pageCacheBytesPerNode": 9.99e14, "warmSeconds": 1e12}
    began = time.process_time()
    predict(parse_scenario(where="test", values=values))
    assert time.process_time() - began < 60


def test_images_per_second_need_the_number_of_files(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    text = SCENARIO.replace("warmSeconds: 60", "imagesPerSecondPerGpu: 5").replace("datasetFiles: 100\n", "")
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["predict", "--file", str(path)])
    assert result.exit_code == 2
    assert "key datasetFiles is missing" in result.stderr
