"""A small trace from a seed, in the format of the published one."""

import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tdcs_labs.trace import TraceJob


def synthetic_jobs(*, count: int, seed: int = 3) -> list[TraceJob]:
    """Jobs that come in bursts from a few tenants, mostly small, some over several nodes."""
    draw = random.Random(seed)
    jobs: list[TraceJob] = []
    now = 0.0
    while len(jobs) < count:
        now += draw.expovariate(1 / 900)
        tenant, gpus = draw.choice("abcd"), draw.choice([1, 1, 1, 1, 2, 4, 8, 16])
        for _ in range(draw.randint(1, 8)):
            duration = draw.lognormvariate(7.2, 1.3)
            jobs.append(
                TraceJob(submitted=round(now), duration=round(duration) + 1.0, gpus=gpus, tenant=tenant)
            )
            now += draw.uniform(0, 20)
    return sorted(jobs[:count], key=lambda job: job.submitted)


def write_trace(path: Path, jobs: list[TraceJob]) -> Path:
    """Write jobs as a trace file."""
    start = datetime(2017, 10, 1)
    rows = [
        f"{start + timedelta(seconds=job.submitted)},{job.duration},{job.gpus},{job.duration * job.gpus},{job.tenant}"
        for job in jobs
    ]
    path.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows, ""]), encoding="utf-8")
    return path


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """A trace of 200 jobs."""
    return write_trace(tmp_path / "trace.csv", synthetic_jobs(count=200))
