"""The benchmark of an operator with many mounts, in small: it runs, and what does not depend on the machine holds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(240)
def test_a_small_operator_knows_everything_after_a_restart_without_a_listing() -> None:
    sizes = ["--mounts=20", "--nodes=30", "--files=200000", "--large=20000", "--rest-seconds=0"]
    run = subprocess.run(
        [sys.executable, "bench/control_plane/operator_scale.py", *sizes],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.startswith("{"), run.stderr[-2000:]
    report = json.loads(run.stdout)
    assert report["restart_listings"] == 0
    assert report["bars"]["memory"]
