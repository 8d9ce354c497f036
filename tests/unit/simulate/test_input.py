"""Wrong traces and scenarios: one sentence that names the place, exit code 2, no traceback."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tdcs.cli.main import main

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
        (HEADER + "2017-10-01 10:00:01,5\n", "row 2: num_gpus is not a number"),
        (HEADER + "2017-10-01 10:00:01,5,1.5,a\n", "row 2: num_gpus must be a whole number"),
        (
            HEADER + GOOD + "2017-10-01 10:00:01,5,513,a\n",
            "row 3: num_gpus is 513 but the cluster has only 512",
        ),
        (HEADER + GOOD + "2017-10-01 09:59:59,5,1,a\n", "row 3: timestamp 2017-10-01 09:59:59 is earlier"),
        (HEADER + "yesterday,5,1,a\n", "row 2: timestamp is not a date and time: 'yesterday'"),
        (HEADER + "2017-10-01 10:00:01,5,1,\n", "row 2: cluster is empty"),
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
        ["--limit", "0"],
        ["--scheme", "magic"],
        ["--mix", "video"],
    ],
)
def test_a_wrong_option_is_refused(trace_file: Path, option: list[str]) -> None:
    result = CliRunner().invoke(main, ["simulate", "trace", "--trace", str(trace_file), *option])
    assert result.exit_code == 2
    assert option[0] in result.stderr


@pytest.mark.parametrize("name", ["figure.pdf", "missing/figure.svg"])
def test_a_plot_that_cannot_be_made_is_refused_before_the_run(
    trace_file: Path, tmp_path: Path, name: str
) -> None:
    target = tmp_path / name
    result = CliRunner().invoke(
        main, ["simulate", "trace", "--trace", str(trace_file), "--plot", str(target)]
    )
    assert result.exit_code == 2
    assert str(target) in result.stderr


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
        ((SCENARIO, "- 1\n- 2\n"), "holds no keys"),
        ((SCENARIO, ""), "holds no keys"),
        ((SCENARIO, "a: [1"), "is not YAML"),
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


def test_images_per_second_need_the_number_of_files(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    text = SCENARIO.replace("warmSeconds: 60", "imagesPerSecondPerGpu: 5").replace("datasetFiles: 100\n", "")
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["predict", "--file", str(path)])
    assert result.exit_code == 2
    assert "key datasetFiles is missing" in result.stderr
