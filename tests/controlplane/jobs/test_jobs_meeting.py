"""A job whose data lies where there is no room for it: the copy comes to the job, once."""

from __future__ import annotations

from tests.controlplane.data.test_operator_data import nodes_of
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.jobs.test_jobs_gang import stranger
from tests.controlplane.operator_world import TOTAL
from tests.support.kube import Object, condition

__all__ = ["jobs"]


def meeting(jobs: JobWorld) -> Object:
    copies = jobs.status_of("train").get("copies") or [{}]
    return dict(copies[0].get("meeting") or {})


def test_a_job_away_from_its_data_ends_at_locality_1_and_the_source_is_read_once(jobs: JobWorld) -> None:
    jobs.create_cluster()
    jobs.create_dataset(placement={"mode": "Auto"})
    with jobs.operator():
        jobs.wait(lambda: condition(jobs.dataset(), "Loaded") == "True")
        (first,) = nodes_of(jobs.dataset())
        (other,) = {*jobs.nodes} - {first}
        stranger(jobs, node=first, gpus=4)  # all that the data's node has
        with jobs.plane.process("kube-scheduler").away():  # no pod gets a node
            jobs.gpu_job(
                "train",
                pods=1,
                framework="PyTorch",
                datasets=[{"name": "pictures", "mountPath": "/data"}],
            )
            # The load begins when the job is admitted, before its pods start.
            jobs.wait(lambda: nodes_of(jobs.dataset()).get(other) == TOTAL)
            assert (meeting(jobs)["way"], meeting(jobs)["nodes"]) == ("Grow", [other])
            assert jobs.bound() == 0
        jobs.run_pods(count=1)
        jobs.wait(lambda: jobs.status_of("train").get("locality") == 1)
        jobs.wait(lambda: "metTime" in meeting(jobs))
    assert jobs.engine.source_bytes_read == TOTAL
