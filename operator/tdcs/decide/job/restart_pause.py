"""How long a job that fails again and again waits before all of its pods are restarted once more.

The first restart is made at once, and so is one after a pod that the cluster took. Later ones are at least so far apart
as a Job's retries are: a program that fails when it starts would else read its data and write its logs all the time.
"""

from tdcs.api.durations import seconds_since
from tdcs.decide.job.job_restart import JobRestart
from tdcs.decide.job.observed_job import Observed

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 360.0
"""Seconds between the starts of a job that is restarted the second time, and at most; in between they double."""


def restart_pause(seen: Observed, restart: JobRestart, *, now: str) -> float:
    """Seconds until all pods may be restarted; 0: now."""
    before = seen.known.restarts_count_towards_max or 0
    starts = [job.start_time for job in seen.jobs.values() if job.start_time]
    if not restart.failed or before < 1 or not starts:
        return 0.0
    apart = min(FIRST_PAUSE * float(1 << min(before - 1, 16)), LONGEST_PAUSE)
    return max(apart - seconds_since(max(starts), now=now), 0.0)
