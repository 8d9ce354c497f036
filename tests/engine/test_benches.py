"""The benchmarks that need a real Alluxio, in small: they run to their end, and what holds at any size holds.

Those that take a minute or two are deep tests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tdcs_local import programs

ROOT = Path(__file__).resolve().parents[2]
PATHS = ":".join(str(ROOT / part) for part in ("", "deploy/local", "operator"))

SLOW = pytest.mark.deep("tests/engine/test_benches.py::test_three_copies_leave_the_source_once")


def lines(*words: str, status: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
    """What a benchmark prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in status, done.stdout + done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(240)
def test_three_copies_leave_the_source_once() -> None:
    (report,) = lines("bench/cache/agent_loading.py", "replicate", "--part=0.005")
    assert report["files"] == 50
    assert 1 <= report["source_ratio"] <= 1.02
    assert report["nodes_3"]["copies_per_s"] > 0


@SLOW
@pytest.mark.timeout(240)
def test_an_agent_is_fed_by_a_peer_and_over_a_link() -> None:
    peers, shaped = lines(
        "bench/cache/agent_loading.py", "peers", "shaped-small", "--part=0.005", "--rounds=1"
    )
    assert peers["over_plain_copy"] > 0
    assert 1 <= shaped["source_ratio"] <= 1.02


@pytest.fixture(scope="module")
def _job_service_is_installed() -> None:
    """To fetch it takes longer than the benchmark."""
    programs.ensure("alluxio-job")


@SLOW
@pytest.mark.usefixtures("_job_service_is_installed")
@pytest.mark.timeout(360, func_only=True)
def test_agents_load_next_to_alluxios_own_ways() -> None:
    (report,) = lines("bench/cache/agent_loading.py", "one-node", "--part=0.005", "--rounds=1")
    ways = ("master_driven", "distributed_load", "distributed_load_batch_20")
    assert all(report[way]["files_per_s"] > 0 for way in ways)
    assert report["agent"]["readable_per_s"] > 0


@SLOW
@pytest.mark.timeout(360)
def test_the_loader_before_the_agents_runs_next_to_them() -> None:
    (report,) = lines("bench/cache/previous_loader.py", "--files=50")
    for nodes in ("nodes_1", "nodes_3"):
        assert all(report[loader][nodes]["files_per_s"] > 0 for loader in ("previous", "agents"))


@pytest.mark.timeout(240)
def test_no_block_passes_through_the_operators_process() -> None:
    (report,) = lines("bench/cache/data_plane.py", "--files=100", "--size=100000", "--no-kills")
    assert report["copies"] == 2
    assert sum(report["socket_bytes_per_file"].values()) < 0.05 * report["size"]


@pytest.mark.timeout(240)
def test_a_cache_that_holds_more_of_a_dataset_is_not_slower() -> None:
    (report,) = lines("bench/remote_reads/partial_cache.py", "--files=200", "--rounds=1")
    assert report["bar"]
    assert report["cache_40"]["source_share"] > report["cache_60"]["source_share"]


@pytest.mark.deep(
    "tests/engine/views/test_views.py::test_what_a_pod_reads_is_right_before_during_and_after_a_load_and_turns_native"
)
@pytest.mark.timeout(240)
def test_a_volume_reads_all_files_next_to_the_disk_and_both_fuse_clients() -> None:
    rows = lines("-m", "bench.cache.read_speed", "--files=40", "--large=1", "--rounds=1", status=(0, 1))
    assert {(row["way"], row["files"]) for row in rows if row["way"] != "s3fs"} == {
        (way, kind) for way in ("disk", "view", "fuse-tuned", "fuse-stock") for kind in ("small", "large")
    }
    assert all(row["mb_per_second"] > 0 for row in rows)
