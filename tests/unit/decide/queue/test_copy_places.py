"""Places at the copies of Datasets."""

from typing import Any

from tdcs.decide.queue.copy_places import requests_of


def dataset(name: str, *, path: str = "/datasets/p", **access: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"access": access}, "status": {"mountPath": path}}


def test_a_job_asks_for_places_by_the_limit_of_the_dataset_that_it_names() -> None:
    objects = {("n", "a"): dataset("a", maxConcurrentJobs=2), ("n", "new"): {"spec": {}}}
    requests = requests_of(namespace="n", datasets=["a", "new", "missing"], dataset_objects=objects)
    assert [
        (place_request.dataset, place_request.limit, place_request.copies) for place_request in requests
    ] == [("n/a", 2, 1)]
