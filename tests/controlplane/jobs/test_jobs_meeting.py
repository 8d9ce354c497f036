"""A job whose data is where there is no room for it: the copy comes to the job, once, or the job waits for room; and
a copy comes to the nodes of jobs that wait for it."""

from __future__ import annotations

from typing import Any

from tests.controlplane.data.test_operator_data import nodes_of
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.jobs.test_jobs_gang import stranger
from tests.controlplane.operator_world import TOTAL, message_of, reason_of
from tests.support.kube import Object, condition

from tdcs.api.durations import seconds_between

__all__ = ["jobs"]

READS = [{"name": "pictures", "mountPath": "/data"}]


def meeting(jobs: JobWorld) -> Object:
    copies = jobs.status_of("train").get("copies") or [{}]
    return dict(copies[0].get("meeting") or {})


def test_a_job_away_from_its_data_ends_at_locality_1_and_the_source_is_read_once(jobs: JobWorld) -> None:
    jobs.create_cluster()
    jobs.create_dataset(placement={"mode": "Auto"})
    with jobs.operator():
        jobs.wait(lambda: condition(jobs.dataset(), "Loaded") == "True")
        (first,) = nodes_of(jobs.dataset())
        (second,) = {*jobs.nodes} - {first}
        stranger(jobs, node=first, gpus=4)  # all that the data's node has
        with jobs.plane.process("kube-scheduler").away():  # no pod gets a node
            jobs.gpu_job("train", pods=1, framework="PyTorch", datasets=READS)
            # The load begins when the job is admitted, before its pods start.
            jobs.wait(lambda: nodes_of(jobs.dataset()).get(second) == TOTAL)
            assert (meeting(jobs)["way"], meeting(jobs)["nodes"]) == ("Grow", [second])
            assert jobs.bound() == 0
        jobs.run_pods(count=1)
        jobs.wait(lambda: jobs.status_of("train").get("locality") == 1)
        jobs.wait(lambda: "metTime" in meeting(jobs))
    assert jobs.engine.source_bytes_read == TOTAL


def data_wait(jobs: JobWorld) -> Object:
    return dict((jobs.status_of("train").get("queue") or {}).get("dataWait") or {})


def whole_node(jobs: JobWorld, name: str, **spec: Any) -> None:
    """A job of one pod that takes all GPUs of a node and reads the Dataset."""
    jobs.gpu_job(name, pods=1, gpus=4, framework="PyTorch", datasets=READS, **spec)


def test_a_job_waits_for_the_job_on_its_datas_node_to_end_and_starts_there_at_locality_1(
    jobs: JobWorld,
) -> None:
    jobs.create_cluster()
    jobs.create_dataset(placement={"mode": "Auto", "nodeCount": 1})
    with jobs.operator():
        jobs.wait(lambda: condition(jobs.dataset(), "Loaded") == "True")
        (at_data,) = nodes_of(jobs.dataset())
        (second,) = {*jobs.nodes} - {at_data}
        blocker = stranger(jobs, node=second, gpus=4)
        whole_node(jobs, "first", runPolicy={"activeDeadlineSeconds": 300})
        (running,) = jobs.run_pods("first", count=1)
        assert running["spec"]["nodeName"] == at_data
        jobs.kube.delete("Pod", blocker["metadata"]["name"], namespace=jobs.namespace)
        jobs.wait(lambda: jobs.status_of("first").get("state") == "Running")
        # It could start on the other node, and would read from there for up to an hour.
        whole_node(jobs, "train", runPolicy={"activeDeadlineSeconds": 3600})
        jobs.wait(lambda: data_wait(jobs))
        chosen = data_wait(jobs)
        assert chosen["nodes"] == [at_data]
        assert 0 < chosen["expectedSeconds"] <= chosen["waitSeconds"] < chosen["otherSeconds"]
        assert chosen["otherWay"] == "Remote"
        assert chosen["expectedSeconds"] <= seconds_between(chosen["since"], chosen["until"]) <= 1800
        jobs.wait(lambda: reason_of(jobs.job(), "Queued") == "AwaitsRoomAtData")
        assert f"room on the nodes with Dataset pictures ({at_data})" in message_of(jobs.job(), "Queued")
        assert not jobs.pods("train")
        stranger(jobs, node=second, gpus=4)  # others use what it leaves free
        jobs.end_pod(running)
        (started,) = jobs.run_pods("train", count=1)
        assert started["spec"]["nodeName"] == at_data
        jobs.wait(lambda: jobs.status_of("train").get("locality") == 1)
        jobs.wait(lambda: not data_wait(jobs))
        came = meeting(jobs)
        assert (came["way"], came["nodes"]) == ("Wait", [at_data])
        assert came["expectedSeconds"] == chosen["expectedSeconds"]
        assert came["remoteSeconds"] == chosen["otherSeconds"]
        assert 0 <= came["waitedSeconds"] <= came["expectedSeconds"]
        assert came["metTime"] >= came["decidedTime"] == chosen["since"]
    assert jobs.engine.source_bytes_read == TOTAL


def test_a_copy_is_on_the_nodes_of_the_job_that_waits_for_it_and_is_read_from_the_source_once(
    jobs: JobWorld,
) -> None:
    jobs.create_cluster()
    # Both nodes are free, and the job is there before the Dataset is.
    jobs.gpu_job("train", pods=2, gpus=4, framework="PyTorch", datasets=READS)
    with jobs.operator():
        jobs.wait(lambda: reason_of(jobs.job(), "Admitted") == "DatasetNotFound")
        jobs.create_dataset(placement={"mode": "Auto"})
        jobs.wait(lambda: condition(jobs.dataset(), "Loaded") == "True")
        assert nodes_of(jobs.dataset()) == dict.fromkeys(jobs.nodes, TOTAL)
        jobs.run_pods(count=2)
        jobs.wait(lambda: jobs.status_of("train").get("locality") == 1)
    assert jobs.engine.source_bytes_read == TOTAL
