"""Metrics agree with the objects."""

import datetime
from contextlib import suppress

import pytest
from prometheus_client import generate_latest
from tests.unit.control.builders import dataset_object

from tdcs.control.context import Stores, WorkKey
from tdcs.control.operator_metrics import OperatorMetrics
from tdcs.kube.queue import KeyedQueue


class Three(KeyedQueue[WorkKey]):
    """Three objects wait, the first for half a second."""

    def __len__(self) -> int:
        return 3

    def oldest_age(self) -> float:
        return 0.5


def values_of(metrics: OperatorMetrics) -> dict[str, float]:
    """Every sample with its labels, as the text format has it."""
    lines = generate_latest(metrics.registry).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def metrics_of(**stores: dict[tuple[str, str], object]) -> OperatorMetrics:
    metrics = OperatorMetrics()
    metrics.show(
        stores=Stores(**stores),  # type: ignore[arg-type]
        queue=Three(),
        schedule_overdue_seconds=lambda: 7.5,
    )
    return metrics


def test_metrics_have_the_state_of_every_object() -> None:
    status: dict[str, object] = {"state": "Ready", "totalBytes": 10, "cachedBytes": 10, "physicalBytes": 20}
    status["copies"] = [{"id": "0", "nodes": []}, {"id": "clone-1", "nodes": []}, {"id": "clone-2"}]
    dataset = {**dataset_object(), "status": status}
    job = {
        "metadata": {"name": "train", "namespace": "n"},
        "status": {"state": "Succeeded", "locality": 0.5},
    }
    workers = [{"node": "a", "state": "Ready", "capacityBytes": 8, "usedBytes": 5}, {"node": "b"}]
    cluster = {"metadata": {"name": "default"}, "status": {"workers": workers, "wantedBytes": 12}}
    metric_values = values_of(
        metrics_of(
            datasets={("n", "pictures"): dataset},
            training_jobs={("n", "train"): job},
            cache_clusters={("tdcs-system", "default"): cluster},
        )
    )
    assert metric_values['tdcs_dataset_physical_bytes{dataset="pictures",namespace="n"}'] == 20
    assert metric_values['tdcs_dataset_state{dataset="pictures",namespace="n",state="Ready"}'] == 1
    assert metric_values['tdcs_dataset_copies{dataset="pictures",kind="spec",namespace="n"}'] == 1
    assert metric_values['tdcs_dataset_copies{dataset="pictures",kind="clone",namespace="n"}'] == 2
    assert metric_values['tdcs_trainingjob_locality{namespace="n",trainingjob="train"}'] == 0.5
    assert metric_values['tdcs_worker_used_bytes{cachecluster="default",node="a"}'] == 5
    assert metric_values['tdcs_cachecluster_wanted_bytes{cachecluster="default"}'] == 12
    assert metric_values['tdcs_worker_ready{cachecluster="default",node="b"}'] == 0
    assert metric_values["tdcs_operator_queued"] == 3


def test_what_has_no_status_yet_is_left_out() -> None:
    metric_values = values_of(metrics_of(datasets={("n", "pictures"): dataset_object()}))
    assert not [name for name in metric_values if name.startswith("tdcs_dataset")]


def test_metrics_have_loads_and_listings_of_the_source() -> None:
    status = {
        "wantedBytes": 20,
        "loadedBytes": 5,
        "bytesPerSecond": 7,
        "lastSourceCheckTime": "1970-01-01T00:01:00Z",
    }
    preload = {
        "metadata": {"name": "warm", "namespace": "n"},
        "status": {"state": "Loading", "bytesTotal": 9, "bytesDone": 3},
    }
    metric_values = values_of(
        metrics_of(
            datasets={("n", "pictures"): {**dataset_object(), "status": status}},
            preloads={("n", "warm"): preload},
        )
    )
    assert metric_values['tdcs_dataset_loaded_bytes{dataset="pictures",namespace="n"}'] == 5
    assert (
        metric_values['tdcs_dataset_source_checked_timestamp_seconds{dataset="pictures",namespace="n"}'] == 60
    )
    assert metric_values['tdcs_preload_done_bytes{namespace="n",preload="warm"}'] == 3
    assert metric_values['tdcs_preload_state{namespace="n",preload="warm",state="Loading"}'] == 1


def test_passes_and_failures_are_counted_by_kind() -> None:
    metrics = metrics_of()
    with metrics.timed(kind="Dataset"):
        pass
    with pytest.raises(ValueError, match="broken"), metrics.timed(kind="Dataset"):
        raise ValueError("broken")
    metric_values = values_of(metrics)
    assert metric_values['tdcs_operator_pass_seconds_count{kind="Dataset"}'] == 2
    assert metric_values['tdcs_operator_pass_failures_total{kind="Dataset"}'] == 1


def test_how_long_reads_of_a_job_waited_is_there_by_what_for() -> None:
    job = {
        "metadata": {"name": "train", "namespace": "n"},
        "status": {
            "dataStall": {
                "observedSeconds": 200,
                "sourceSeconds": 60,
                "peerSeconds": 2,
                "loopSeconds": 90,
                "loopWaitSeconds": 9,
            }
        },
    }
    metric_values = values_of(metrics_of(training_jobs={("n", "train"): job}))
    waits = "tdcs_trainingjob_read_wait_seconds"
    assert metric_values[f'{waits}{{namespace="n",origin="source",trainingjob="train"}}'] == 60
    assert metric_values[f'{waits}{{namespace="n",origin="peer",trainingjob="train"}}'] == 2
    assert f'{waits}{{namespace="n",origin="disk",trainingjob="train"}}' not in metric_values
    assert metric_values['tdcs_trainingjob_read_observed_seconds{namespace="n",trainingjob="train"}'] == 200
    assert metric_values['tdcs_trainingjob_loop_seconds{namespace="n",trainingjob="train"}'] == 90
    assert metric_values['tdcs_trainingjob_loop_wait_seconds{namespace="n",trainingjob="train"}'] == 9


def test_failures_are_counted_on_by_the_process_that_follows_a_lost_lease() -> None:
    first = OperatorMetrics()
    for kind in ("Dataset", "Dataset"):
        with suppress(ValueError), first.timed(kind=kind):
            raise ValueError
    with suppress(ValueError), first.timed_schedule():
        raise ValueError
    second = OperatorMetrics(lease_losses=1, earlier_failures=first.failures())
    with suppress(ValueError), second.timed(kind="Dataset"):
        raise ValueError
    metric_values = values_of(second)
    assert metric_values['tdcs_operator_pass_failures_total{kind="Dataset"}'] == 3
    assert metric_values["tdcs_operator_schedule_failures_total"] == 1
    assert metric_values["tdcs_operator_lease_losses_total"] == 1
    assert metric_values["tdcs_operator_start_timestamp_seconds"] > 1.7e9


def test_metrics_have_restarts_requeues_and_waiting_times_of_jobs() -> None:
    def condition(kind: str, status: str, minute: int) -> dict[str, str]:
        return {"type": kind, "status": status, "lastTransitionTime": f"1970-01-01T00:{minute:02}:00Z"}

    waits = [
        condition("DataReady", "True", 1),
        condition("Queued", "True", 2),
        condition("Admitted", "False", 3),
    ]
    grows = [condition("Queued", "True", 2), condition("Admitted", "True", 3)]
    jobs = {
        "new": {"conditions": waits},
        "again": {"conditions": waits, "startTime": "1970-01-01T00:01:30Z", "queue": {"attempts": 3}},
        "grows": {"conditions": grows, "restarts": 2},
        "fresh": {},
    }
    metric_values = values_of(
        metrics_of(
            training_jobs={
                ("n", name): {"metadata": {"name": name, "namespace": "n"}, "status": status}
                for name, status in jobs.items()
            }
        )
    )

    def of(metric: str) -> dict[str, float]:
        prefix = f"tdcs_trainingjob_{metric}{{"
        return {
            name.rpartition('trainingjob="')[2].removesuffix('"}'): value
            for name, value in metric_values.items()
            if name.startswith(prefix)
        }

    assert of("waiting_since_timestamp_seconds") == {"new": 60, "again": 120}
    assert of("give_backs") == {"new": 0, "again": 3, "grows": 0}
    assert of("restarts") == {"new": 0, "again": 0, "grows": 2}


def test_metrics_have_the_end_of_each_certificate() -> None:
    metrics = OperatorMetrics()
    in_a_day = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    metrics.show(
        stores=Stores(),
        queue=KeyedQueue(),
        schedule_overdue_seconds=lambda: 0,
        certificates=lambda: [("tdcs-trust-monitor", "monitor", in_a_day)],
    )
    seconds = values_of(metrics)[
        'tdcs_certificate_expiry_seconds{role="monitor",secret="tdcs-trust-monitor"}'
    ]
    assert 86_300 < seconds <= 86_400
