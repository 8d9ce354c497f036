"""How many jobs may read a dataset at once."""

from typing import Annotated

from pydantic import Field

from tdcs.api.base import Model


class Access(Model):
    """How many jobs may read the data at once."""

    max_concurrent_jobs: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """How many TrainingJobs may read each copy at once, those of other Datasets with the same source counted; further
    ones wait in the queue for a place. Left out, there is no limit; to let no job read it, suspend the jobs."""
