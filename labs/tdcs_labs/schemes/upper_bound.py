"""Bounds: data never lacks, whatever is decided.

`UpperBound`: every byte is on the nodes of its job before the job starts. Clairvoyant in the extreme: no store, no link
and no cache size limits anything, so each job takes exactly its time in the trace, plus the wait for GPUs in the same
queue as under every other scheme. No caching can make a job faster than that. (With gang queues a slower job can by
chance help others, so the mean over a trace is a bound up to such anomalies.)

`NearBound`: the same speed, and of the bytes that a job reads no more come from its own nodes than these can hold. Of a
dataset of D bytes a node whose cache holds C has at most min(1, C/D), as if nothing else were cached there. A pod reads
all files of a pass with the same chance, or in an order that does not depend on where they are, so that of the reads
that the kernel's page cache leaves, at most that part finds its bytes on its own node. A gang's mean over its nodes is
no larger. So no placement reads more locally, whatever it knows and however much it copies; where caches are shared by
datasets that are read at the same time, or data is new, the best that can be had is less.
"""

import math

from tdcs_labs.job import SimJob
from tdcs_labs.schemes.base import Scheme
from tdcs_labs.schemes.cache_plan import usable_bytes


class UpperBound(Scheme):
    """Everything is local."""

    name = "oracle"

    def client_rate(self, *, local: float) -> float:
        """No limit."""
        return math.inf

    def started(self, job: SimJob, *, now: float) -> None:
        """All of the job's data is there."""
        self.see(job, now=now, hit=1.0, local=1.0)


class NearBound(UpperBound):
    """As much is local as a node can hold."""

    name = "oracle-near"

    def started(self, job: SimJob, *, now: float) -> None:
        """The job's data is there, on other nodes where its own cannot hold all of it. No link limits it."""
        local = min(usable_bytes(self.scenario) / job.dataset.size_bytes, 1.0)
        job.see(now=now, hit=1.0, local=local, cache_rate=math.inf, nic_rate=math.inf)
