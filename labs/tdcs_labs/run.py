"""Run a trace under a scheme and say what came out."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tdcs_labs.engine import Progress, Simulation
from tdcs_labs.scenario import Scenario
from tdcs_labs.schemes.alluxio import AlluxioLru
from tdcs_labs.schemes.base import Scheme
from tdcs_labs.schemes.fluid import Fluid
from tdcs_labs.schemes.tdcs import Tdcs, TdcsOptedOut
from tdcs_labs.schemes.upper_bound import NearBound, UpperBound
from tdcs_labs.workload import WorkItem

SCHEMES: dict[str, type[Scheme]] = {
    scheme.name: scheme for scheme in (Scheme, AlluxioLru, Fluid, Tdcs, TdcsOptedOut, UpperBound, NearBound)
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a run came to. Times are seconds, sizes bytes.

    Attributes:
        scheme: how data reached the jobs.
        jobs: jobs that ran, which is all of them.
        mean_jct: mean time from a job's submission to its end.
        p50_jct: the median of it.
        p99_jct: its 99th percentile.
        makespan: from the first submission to the last end.
        gpu_idle_fraction: of the GPU time that jobs held, the part in which they waited for data.
        remote_bytes: bytes that the store sent, to jobs and to loads.
        cross_zone_bytes: bytes that came from other zones, to jobs and to copies.
        local_fraction: of the bytes that jobs read, the part that came from their own nodes.
        preemptions: times that a job gave its place to a more important one.
        evictions: times that a dataset lost bytes to make room.
        wall: seconds that the simulation took.
        completions: the time from submission to end of each job, in the order of the trace.
        slowdowns: by tenant, the time from submission to end of all its jobs over the time that they train.
    """

    scheme: str
    jobs: int
    mean_jct: float
    p50_jct: float
    p99_jct: float
    makespan: float
    gpu_idle_fraction: float
    remote_bytes: float
    cross_zone_bytes: float
    local_fraction: float
    preemptions: int
    evictions: int
    wall: float
    completions: Sequence[float]
    slowdowns: Mapping[str, float]

    def fairness(self) -> dict[str, float]:
        """How evenly the tenants waited: Jain's index of their slowdowns, and the worst of them."""
        values = list(self.slowdowns.values())
        return {
            "jainIndex": round(jain_index(values), 6),
            "worstSlowdown": round(max(values, default=0.0), 3),
        }

    def document(self) -> dict[str, object]:
        """The result as the command prints it."""
        return {
            "scheme": self.scheme,
            "jobs": self.jobs,
            "meanJctSeconds": round(self.mean_jct, 3),
            "p50JctSeconds": round(self.p50_jct, 3),
            "p99JctSeconds": round(self.p99_jct, 3),
            "makespanSeconds": round(self.makespan, 3),
            "gpuIdleFraction": round(self.gpu_idle_fraction, 6),
            "remoteBytes": int(self.remote_bytes),
            "localFraction": round(self.local_fraction, 6),
            "evictions": self.evictions,
            "wallSeconds": round(self.wall, 3),
        }


def simulate(
    *, work: Sequence[WorkItem], scenario: Scenario, scheme: str, progress: Progress | None = None
) -> Result:
    """Run a workload under the scheme of that name."""
    began = time.perf_counter()
    simulation = Simulation(work=work, scenario=scenario, scheme=SCHEMES[scheme], progress=progress)
    simulation.run()
    jobs = simulation.jobs
    times = [job.ended - job.submitted for job in jobs]
    ordered = sorted(times)
    useful = sum(item.job.duration * item.job.gpus for item in work)
    read = sum(job.read_bytes for job in jobs)
    return Result(
        scheme=scheme,
        jobs=len(jobs),
        mean_jct=sum(times) / len(times),
        p50_jct=_percentile(ordered, 0.50),
        p99_jct=_percentile(ordered, 0.99),
        makespan=max(job.ended for job in jobs) - min(job.submitted for job in jobs),
        gpu_idle_fraction=max(1.0 - useful / simulation.busy_gpu_seconds, 0.0),
        remote_bytes=sum(job.remote_bytes for job in jobs) + simulation.scheme.loaded_bytes,
        cross_zone_bytes=sum(job.cross_bytes for job in jobs) + simulation.scheme.cross_zone_bytes,
        local_fraction=sum(job.local_bytes for job in jobs) / read,
        preemptions=simulation.preemptions,
        evictions=simulation.scheme.evictions,
        wall=time.perf_counter() - began,
        completions=times,
        slowdowns=_slowdowns(work, times),
    )


def _slowdowns(work: Sequence[WorkItem], times: Sequence[float]) -> dict[str, float]:
    took: dict[str, float] = {}
    trained: dict[str, float] = {}
    for item, seconds in zip(work, times, strict=True):
        tenant = item.job.tenant
        took[tenant] = took.get(tenant, 0.0) + seconds
        trained[tenant] = trained.get(tenant, 0.0) + item.job.duration
    return {tenant: seconds / trained[tenant] for tenant, seconds in took.items() if trained[tenant] > 0}


def _percentile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of all do not exceed."""
    return ordered[max(math.ceil(part * len(ordered)) - 1, 0)]


def jain_index(values: Sequence[float]) -> float:
    """How equal some values are, from 1/n to 1 (Jain, Chiu and Hawe, 1984); 1 for none."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else 1.0
