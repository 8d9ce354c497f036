"""The picture of a plan."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tdcs_train.cli.main import main

PROFILE = """\
node1 -- Input0 -- forward_compute_time=0, backward_compute_time=0, activation_size=1000, parameter_size=0
node2 -- Conv2d(3, 6) -- forward_compute_time=1, backward_compute_time=2, activation_size=2048, parameter_size=9000000
node3 -- Linear(10) -- forward_compute_time=1, backward_compute_time=2, activation_size=1000, parameter_size=2000000000
\tnode1 -- node2
\tnode2 -- node3
"""


def test_a_plan_is_drawn_with_its_stages_and_what_travels_between_them(tmp_path: Path) -> None:
    (tmp_path / "graph.txt").write_text(PROFILE)
    words = ["plan", "--profile", f"{tmp_path}/graph.txt", "--workers", "2", "--bandwidth", "100MB"]
    done = CliRunner().invoke(main, [*words, "--dot", f"{tmp_path}/plan.dot"])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "plan.dot").read_text()
    assert re.findall(r"label=\"(stage \d: 1 worker)", text) == ["stage 0: 1 worker", "stage 1: 1 worker"]
    assert '"node2" -> "node3" [label="2.0 KiB", penwidth=2, color=red];' in text
    assert '[label="Conv2d\\n3.00 ms, 8.6 MiB"' in text
    assert "a pipeline of 2 stages" in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("count", [61, 400])
def test_of_a_large_stage_the_borders_are_drawn(tmp_path: Path, count: int) -> None:
    cost = "forward_compute_time=1, backward_compute_time=1, activation_size=10, parameter_size=10"
    lines = ["node0 -- Input0 -- " + cost.replace("=1,", "=0,")]
    lines += [f"node{number} -- Layer() -- {cost}" for number in range(1, count + 1)]
    lines += [f"\tnode{number} -- node{number + 1}" for number in range(count)]
    (tmp_path / "graph.txt").write_text("\n".join([*lines, ""]))
    words = ["plan", "--profile", f"{tmp_path}/graph.txt", "--workers", "1", "--bandwidth", "100MB"]
    done = CliRunner().invoke(main, [*words, "--dot", f"{tmp_path}/plan.dot"])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "plan.dot").read_text()
    assert len(re.findall(r"\[label=\"Layer", text)) == 2
    assert f", 2 of {count} layers" in text
    assert f'"node1" -> "node{count}" [style=dotted]' in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--latency", "soon"], "'soon' is no time"),
        (["--latency", "-1ms"], "'-1ms' is no time"),
        (["--latency", "1ms,2ms"], "--levels has 1 levels and --latency 2 values"),
    ],
)
def test_a_latency_that_means_nothing_is_refused(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "graph.txt").write_text(PROFILE)
    common = ["plan", "--profile", f"{tmp_path}/graph.txt", "--workers", "2", "--bandwidth", "100MB"]
    done = CliRunner().invoke(main, [*common, *words])
    assert done.exit_code == 2
    assert message in done.output
