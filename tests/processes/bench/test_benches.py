"""The benchmarks of the operator's and the nodes' side, in small: they run, and what holds at any size holds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.dataplane.node import needs_fuse

ROOT = Path(__file__).resolve().parents[3]


def run(name: str, *options: str) -> dict[str, Any]:
    """The line of a benchmark that has met its bars."""
    done = subprocess.run(
        [sys.executable, f"bench/{name}.py", *options],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.timeout(120)
def test_a_pass_of_the_cache_manager_over_a_fifth_of_its_bar_takes_less_than_the_bar() -> None:
    report = run("control_plane/cache_manager", "--datasets=20", "--jobs=100", "--nodes=40", "--limit=0.5")
    assert set(report["seconds"]) == {"first", "nothing new", "a job began"}


@pytest.mark.timeout(180)
def test_what_happens_to_blocks_behind_an_agents_back_is_known_within_five_seconds(tmp_path: Path) -> None:
    report = run(
        "cache/ledger", "--blocks=2000", f"--folder={tmp_path}", "--rest-seconds=0.2", "--removals=1"
    )
    assert report["bar"]


@pytest.mark.timeout(180)
def test_a_second_pod_gets_its_volume_at_once_and_the_plugin_looks_at_no_file_again(tmp_path: Path) -> None:
    report = run("cache/node_views", "--files=3000", f"--folder={tmp_path}", "--rest-seconds=0.5")
    assert report["bars"] == {"cold": True, "second": True}
    assert report["cold"]["linked"] == report["after_restart"]["linked"] == 3000


@pytest.mark.timeout(240)
def test_a_dataset_of_many_small_files_comes_from_its_bucket_to_a_pod(tmp_path: Path) -> None:
    report = run("cache/many_files", "--files=2700", f"--folder={tmp_path}")
    assert set(report["parts"]) == {"list", "load", "publish", "walk"}
    assert report["bytes"] > 2700 * 200


@pytest.mark.timeout(180)
def test_an_agent_is_rid_of_what_belongs_to_nothing(tmp_path: Path) -> None:
    assert run("cache/strangers", "--strangers=5000", f"--folder={tmp_path}")["strangers"] == 5000


@needs_fuse
@pytest.mark.timeout(240)
def test_the_processes_of_a_node_without_work_stay_below_their_bar_of_memory() -> None:
    assert run("cache/idle_node", "--rest-seconds=0")["processes"] >= 4
