"""The bound: every byte is on the nodes of its job before the job starts.

Clairvoyant in the extreme: no store, no link and no cache size limits anything, so each job takes
exactly its time in the trace, plus the wait for GPUs in the same queue as under every other scheme. No
caching can make a job faster than that. (With gang queues a slower job can by chance help
others, so the mean over a trace is a bound up to such anomalies.)
"""

import math

from tdcs_labs.job import SimJob
from tdcs_labs.schemes.base import Scheme


class UpperBound(Scheme):
    """Everything is local."""

    name = "oracle"

    def client_rate(self, *, local: float) -> float:
        """No limit."""
        return math.inf

    def started(self, job: SimJob, *, now: float) -> None:
        """All of the job's data is there."""
        self.see(job, now=now, hit=1.0, local=1.0)
