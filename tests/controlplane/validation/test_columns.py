"""What `kubectl get -o wide` prints, as the API server makes its tables."""

import json

from tests.controlplane.validation.objects import dataset
from tests.support.kube import Kube


def test_the_source_of_a_dataset_is_shown_whoever_it_is_of(installed: Kube, namespace: str) -> None:
    installed.create(dataset(namespace=namespace, name="own"))
    shared = dataset(namespace=namespace, name="shared")
    shared["spec"]["source"] = {"datasetRef": {"namespace": "team-a", "name": "pictures"}}
    installed.create(shared)

    table = installed.table("Dataset", namespace=namespace)

    place = [column["name"] for column in table["columnDefinitions"]].index("Source")
    source_by_name = {row["cells"][0]: row["cells"][place] for row in table["rows"]}
    assert source_by_name["own"] == "s3://bucket/prefix"
    assert json.loads(source_by_name["shared"]) == {"namespace": "team-a", "name": "pictures"}
