"""DataCheck: when the data of a Workload of Kueue is enough for it to start. Parameters of an AdmissionCheck."""

from typing import Annotated

from pydantic import Field

from tdcs.api.base import Model, defaulted
from tdcs.api.durations import Duration, to_seconds


class DataCheckSpec(Model):
    """What a Workload waits for, and for how long."""

    percent: Annotated[int, Field(ge=0, le=100)] = 100
    """Share of each Dataset that must be cached, in whole percent of what its spec asks to be cached."""
    hold_quota: Duration = "5m"
    """How long a Workload with quota is Pending while the rest arrives, before it becomes Retry. One that would need
    longer becomes Retry at once: it gives its quota back, and is queued again when its data is there."""
    max_wait: Duration | None = None
    """How long after its creation a Workload waits for data at all; then it starts with what is there. Left out, it
    waits as long as it takes."""
    look_ahead: Annotated[int, Field(ge=0, le=100)] = 3
    """For so many of the first Workloads that wait for quota what they lack is loaded meanwhile."""

    @property
    def hold_seconds(self) -> float:
        return to_seconds(self.hold_quota)

    @property
    def max_wait_seconds(self) -> float | None:
        return None if self.max_wait is None else to_seconds(self.max_wait)


class DataCheck(Model):
    """Parameters of an AdmissionCheck of Kueue with the controller tdcs.io/data, which names it. It has no namespace,
    as AdmissionChecks have none."""

    spec: DataCheckSpec = defaulted(DataCheckSpec)
    """What a Workload waits for, and for how long."""
