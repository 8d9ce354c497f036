"""The bar of the bench that compares the orders of the queue."""

from dataclasses import replace

import pytest
from bench.simulation.fairness import comparison, run

from tdcs_labs.trace import TraceJob
from tdcs_labs.workload import assign_work

RESULT = run(
    "priority",
    assign_work(jobs=[TraceJob(submitted=0.0, duration=60.0, gpus=1, tenant="one")]),
    "oracle",
)


@pytest.mark.parametrize(
    ("mean", "worst", "holds"), [(102.0, 5.0, True), (103.0, 5.0, False), (100.0, 5.1, False)]
)
def test_a_worse_mean_or_more_than_half_of_the_worst_slowdown_fails_the_bar(
    mean: float, worst: float, holds: bool
) -> None:
    before = replace(RESULT, mean_jct=100.0, slowdowns={"few": 10.0, "many": 1.0})
    after = replace(RESULT, mean_jct=mean, slowdowns={"few": worst, "many": 2.0})
    assert comparison(priority=before, fair=after)["holds"] is holds
