"""What KEDA is answered about Datasets and CacheClusters."""

from typing import Any

import pytest

from tdcs.control.context import Stores
from tdcs.decide.scaled_metric import (
    QuestionError,
    ScaledMetric,
    UnknownObjectError,
    metric_of,
)

GB = 10**9


def stores(*, dataset: dict[str, Any] | None = None, access: dict[str, Any] | None = None) -> Stores:
    workers = [{"node": "a", "capacityBytes": 120 * GB}, {"node": "b", "capacityBytes": 80 * GB}]
    cluster = {"workers": workers, "capacityBytes": 200 * GB, "wantedBytes": 120 * GB}
    return Stores(
        datasets={
            ("team", "pictures"): {
                "metadata": {"name": "pictures"},
                "spec": {"access": access or {}},
                "status": {"activeJobs": 3, "waitingJobs": 2} if dataset is None else dataset,
            }
        },
        cache_clusters={
            ("tdcs-system", "default"): {"metadata": {"name": "default"}, "spec": {}, "status": cluster},
            ("tdcs-system", "new"): {"metadata": {"name": "new"}, "spec": {}, "status": {"wantedBytes": 5}},
        },
    )


def scaled_metric(namespace: str = "team", *, world: Stores | None = None, **metadata: str) -> ScaledMetric:
    objects = world or stores()
    return metric_of(
        metadata, namespace=namespace, datasets=objects.datasets, cache_clusters=objects.cache_clusters
    )


def test_readers_are_jobs_that_read_or_wait_and_a_copy_takes_as_many_as_its_spec_says() -> None:
    assert scaled_metric(dataset="pictures") == ScaledMetric(name="readers", value=5, target=1)
    limited = stores(access={"maxConcurrentJobs": 4})
    assert scaled_metric(dataset="pictures", world=limited).target == 4
    assert scaled_metric(dataset="pictures", target="2.5", world=limited).target == 2.5


def test_nothing_to_read_is_nothing_to_scale_for() -> None:
    assert scaled_metric(dataset="pictures").active
    assert not scaled_metric(dataset="pictures", world=stores(dataset={"state": "Ready"})).active


def test_wanted_bytes_are_shared_by_workers_that_each_take_most_of_what_they_hold() -> None:
    metric = scaled_metric("tdcs-system", cacheCluster="default")
    assert metric == ScaledMetric(name="wantedBytes", value=120 * GB, target=85 * GB)
    assert scaled_metric("tdcs-system", cacheCluster="default", target="50Gi").target == 50 * 2**30
    assert scaled_metric("tdcs-system", cacheCluster="new", target="1k").value == 5


def test_workers_that_come_or_go_do_not_change_what_one_of_them_takes() -> None:
    world = stores()
    status = world.cache_clusters["tdcs-system", "default"]["status"]
    status["workers"] += [
        {"node": "c", "state": "Pending", "capacityBytes": 0},
        {"node": "d", "state": "Pending"},
        {"node": "e", "state": "Draining", "capacityBytes": 100 * GB},
    ]
    metric = scaled_metric("tdcs-system", world=world, cacheCluster="default")
    assert metric == ScaledMetric(name="wantedBytes", value=120 * GB, target=85 * GB)
    status["workers"] = [{"node": "c", "state": "Pending"}]
    with pytest.raises(UnknownObjectError, match="write target"):
        scaled_metric("tdcs-system", world=world, cacheCluster="default")


def test_keys_that_keda_itself_puts_next_to_are_left_alone() -> None:
    assert scaled_metric(dataset="pictures", scalerAddress="tdcs-scaler.tdcs-system:8083").value == 5


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({}, "neither dataset and cacheCluster"),
        ({"dataset": "pictures", "cacheCluster": "default"}, "both dataset and cacheCluster"),
        ({"dataset": "pictures", "targets": "1"}, "has targets: known are"),
        ({"dataset": "pictures", "target": "0"}, "no number above 0"),
        ({"dataset": "pictures", "target": "nan"}, "no number above 0"),
        ({"dataset": "pictures", "target": "inf"}, "no number above 0"),
        ({"dataset": "pictures", "target": "many"}, "no number above 0"),
    ],
)
def test_a_wrong_trigger_is_answered_with_what_to_write(metadata: dict[str, str], says: str) -> None:
    objects = stores()
    with pytest.raises(QuestionError, match=says):
        metric_of(
            metadata, namespace="team", datasets=objects.datasets, cache_clusters=objects.cache_clusters
        )


def test_a_wrong_target_of_a_cache_is_answered_with_what_to_write() -> None:
    with pytest.raises(QuestionError, match="no number above 0"):
        scaled_metric("tdcs-system", cacheCluster="default", target="-1")


def test_objects_of_other_namespaces_and_those_without_a_status_are_unknown() -> None:
    with pytest.raises(UnknownObjectError, match="no Dataset other/pictures"):
        scaled_metric("other", dataset="pictures")
    with pytest.raises(UnknownObjectError, match="no CacheCluster team/default"):
        scaled_metric(cacheCluster="default")
    with pytest.raises(UnknownObjectError, match="nothing is known of Dataset team/pictures yet"):
        scaled_metric(dataset="pictures", world=stores(dataset={}))
    with pytest.raises(UnknownObjectError, match="write target"):
        scaled_metric("tdcs-system", cacheCluster="new")
