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


@pytest.mark.parametrize("kind", ["Placed", "Mounted"])
def test_a_condition_of_an_older_spec_is_not_quoted_as_the_cause(kind: str) -> None:
    dataset = half_loaded((kind, "False", "PathNotFound", "no file under 'trayn'"))
    if kind == "Mounted" and dataset.status is not None:
        dataset = dataset.model_copy(
            update={"status": dataset.status.model_copy(update={"conditions": dataset.status.conditions[1:]})}
        )
    use = DatasetUse.model_validate({"name": "images", "mountPath": "/data", "readiness": {"percent": 100}})
    for generation, text in ((0, "PathNotFound: no file under 'trayn'"), (1, "its spec has changed")):
        state = readiness(use, dataset, present=True, generation=generation, now=NOW)
        assert (state.why or state.lacks_why).startswith(text)


def test_a_condition_that_the_operators_last_look_left_alone_is_no_cause() -> None:
    dataset = half_loaded(("Placed", "False", "PathNotFound", "no file under 'trayn'"))
    assert dataset.status is not None
    status = dataset.status.model_copy(update={"observed_generation": 2})
    use = DatasetUse.model_validate({"name": "images", "mountPath": "/data", "readiness": {"percent": 100}})
    state = readiness(use, dataset.model_copy(update={"status": status}), present=True, generation=2, now=NOW)
    assert state.lacks_why == ""
