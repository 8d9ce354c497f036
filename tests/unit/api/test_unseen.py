"""An object that the operator has not looked at has no status, whatever the server fills in."""

from typing import Any

import pytest

from tdcs.api.cachecluster import CacheCluster
from tdcs.api.dataset import Dataset
from tdcs.api.preload import Preload
from tdcs.api.trainingjob import TrainingJob

POD = {"spec": {"containers": [{"name": "main", "image": "train"}]}}
SPECS: list[tuple[Any, dict[str, Any]]] = [
    (CacheCluster, {}),
    (Dataset, {"source": {"uri": "file:///nfs"}}),
    (Preload, {"datasetRef": {"name": "pictures"}}),
    (TrainingJob, {"replicaSpecs": [{"name": "Worker", "template": POD}]}),
]


@pytest.mark.parametrize(("model", "spec"), SPECS, ids=[model.__name__ for model, _ in SPECS])
def test_the_servers_default_is_no_status_and_anything_else_is(model: Any, spec: dict[str, Any]) -> None:
    assert model.model_validate({"spec": spec, "status": {"observedGeneration": -1}}).status is None
    assert model.model_validate({"spec": spec}).status is None
    found = model.model_validate({"spec": spec, "status": {"observedGeneration": -1, "message": "all"}})
    assert found.status.message == "all"
