"""What a job waits for of its datasets, in the words of the datasets' own conditions."""

import pytest

from tdcs.api.conditions import Condition
from tdcs.api.dataset import Dataset, DatasetStatus
from tdcs.api.trainingjob import DatasetUse
from tdcs.decide.job.job_phase import readiness

NOW = "2026-11-30T12:00:00Z"


def half_loaded(*conditions: tuple[str, str, str, str]) -> Dataset:
    """A Dataset of which half is loaded, with conditions given as type, status, reason and message."""
    dataset = Dataset.model_validate({"spec": {"source": {"uri": "s3://bucket/images"}}})
    rows = [("Mounted", "True", "Mounted", ""), *conditions]
    return dataset.model_copy(
        update={
            "status": DatasetStatus(
                claim_name="images",
                loaded_ratio=0.5,
                conditions=[
                    Condition.model_validate(
                        {"type": kind, "status": status, "reason": reason, "message": message}
                        | {"lastTransitionTime": NOW}
                    )
                    for kind, status, reason, message in rows
                ],
            )
        }
    )


@pytest.mark.parametrize(
    ("conditions", "cause"),
    [
        pytest.param([("Loaded", "False", "Loading", "on its way")], "", id="it arrives"),
        pytest.param(
            [("Loaded", "False", "LoadFailed", "the store answers 403")],
            "LoadFailed: the store answers 403",
            id="the source gives nothing",
        ),
        pytest.param(
            [("Loaded", "False", "FilesFailed", "a.jpg: it changed")],
            "FilesFailed: a.jpg: it changed",
            id="files cannot be had",
        ),
        pytest.param(
            [("Placed", "False", "NoCacheNode", "no node"), ("Loaded", "False", "LoadFailed", "403")],
            "NoCacheNode: no node",
            id="without a place nothing can be loaded",
        ),
        pytest.param(
            [("Placed", "True", "Placed", ""), ("Loaded", "True", "Loaded", "")], "", id="all is there"
        ),
    ],
)
def test_a_job_that_waits_quotes_why_no_more_of_its_data_comes(
    conditions: list[tuple[str, str, str, str]], cause: str
) -> None:
    use = DatasetUse.model_validate({"name": "images", "mountPath": "/data", "readiness": {"percent": 100}})
    assert readiness(use, half_loaded(*conditions), present=True, now=NOW).lacks_why == cause
