"""Who asks for a dataset: jobs that read it and jobs that wait."""

from tdcs.api.dataset import DatasetStatus
from tdcs.decide.cache.dataset_demand import use_of
from tdcs.decide.cache.mount_standing import DatasetJobs

NOW = "2026-03-01T12:00:00Z"
EARLIER = "2026-03-01T11:00:00Z"
JOB = ("n", "job")


def test_the_end_of_a_use_is_noted_also_when_no_operator_saw_it() -> None:
    reading = DatasetStatus(active_jobs=1, last_used_time=EARLIER, uses=[EARLIER])
    ended = use_of(status=reading, jobs=DatasetJobs(), mounted=False, now=NOW)
    assert (ended.last_used, ended.uses) == (NOW, (EARLIER,))
    still = use_of(status=reading, jobs=DatasetJobs(active=(JOB,)), mounted=False, now=NOW)
    assert still.last_used == EARLIER
    second = use_of(status=reading, jobs=DatasetJobs(active=(JOB, JOB)), mounted=True, now=NOW)
    assert (second.last_used, second.uses) == (EARLIER, (EARLIER, NOW))


def test_uses_that_are_still_to_come_count_as_now() -> None:
    """Else a Dataset that a job used while a clock was a year ahead would be the last to go for a year."""
    ahead = "2027-01-01T00:00:00Z"
    status = DatasetStatus(last_used_time=ahead, uses=[EARLIER, ahead])
    use = use_of(status=status, jobs=DatasetJobs(), mounted=False, now=NOW)
    assert (use.last_used, use.uses) == (NOW, (EARLIER, NOW))
