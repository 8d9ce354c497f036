"""Workers of a benchmark: what they print comes back, and of several that fail the first one is named."""

from pathlib import Path

import pytest
from bench.training import loopback_job

FAILS_LATER = """
import os, pathlib, signal, sys, time
ended = pathlib.Path(sys.argv[1])
if os.environ["RANK"] == "1":
    ended.touch()
    os.kill(os.getpid(), signal.SIGTERM)
while not ended.exists():
    time.sleep(0.01)
time.sleep(1)
sys.exit(2)
"""


def test_what_each_worker_prints_comes_back_by_its_rank() -> None:
    words = ["-c", "import os; print(os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"]
    assert loopback_job.run(words, name="a job", workers=2, within=30) == ["0 of 2\n", "1 of 2\n"]


def test_the_worker_that_ended_first_is_named_with_its_signal(tmp_path: Path) -> None:
    words = ["-c", FAILS_LATER, f"{tmp_path}/ended"]
    with pytest.raises(SystemExit, match=r"^a job: rank 1 ended first, by SIGTERM$"):
        loopback_job.run(words, name="a job", workers=3, within=30)


def test_a_worker_that_exits_is_named_with_its_status() -> None:
    words = ["-c", "import os, sys; sys.exit(3 if os.environ['RANK'] == '1' else 0)"]
    with pytest.raises(SystemExit, match=r"^a job: rank 1 ended first, with exit status 3$"):
        loopback_job.run(words, name="a job", workers=2, within=30)


def test_workers_that_do_not_end_are_named_and_ended() -> None:
    words = ["-c", "import os, time; time.sleep(0 if os.environ['RANK'] == '0' else 600)"]
    with pytest.raises(SystemExit, match=r"^a job: rank 1, 2 still ran after 2 s$"):
        loopback_job.run(words, name="a job", workers=3, within=2)
