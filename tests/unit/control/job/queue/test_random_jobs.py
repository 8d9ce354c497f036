"""Random TrainingJobs, from the schema and beyond it: nothing fails by them, and the jobs next to them are admitted.

``TDCS_RANDOM_JOBS=10000`` draws so many.
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.support.documents import document
from tests.support.generators.random_objects import from_schema
from tests.support.kube.objects import with_roles
from tests.unit.control.jobs import Jobs, role

from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.control.context import Stores
from tdcs.control.job import job_children
from tdcs.control.job.framework_rendezvous import too_long
from tdcs.control.job.queue.pod_demand import PodDemands
from tdcs.control.job.queue.queue_entries import Collector
from tdcs.control.job.queue.queue_snapshot import NodeRoom
from tdcs.control.job.queue.turns import Turns
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import TRAINING_JOBS

COUNT = int(os.environ.get("TDCS_RANDOM_JOBS", "300"))
BATCH = 50
CRD = Path(__file__).parents[5] / "crds" / "tdcs.io_trainingjobs.yaml"
VERSION = document(CRD.read_text())["spec"]["versions"][0]
SPEC = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]

READY = {"type": "DataReady", "status": "True", "reason": "DatasetsReady"}


def random_spec(seed: int) -> Any:
    """A spec; in some only few values are odd, so that what is inside is reached."""
    draw = random.Random(seed)
    return from_schema(SPEC, draw, odd=draw.choice((0.0, 0.005, 0.05)))


def job_object(name: str, spec: Any) -> Object:
    """A job with ready data as the queue sees it."""
    return {
        "apiVersion": "tdcs.io/v1alpha2",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec,
        "status": {"conditions": [READY]},
    }


def good_spec() -> Object:
    """A job that fits on the node `good`, whatever runs elsewhere."""
    good = role(1)
    good["template"]["spec"]["containers"][0]["resources"]["limits"] = {"example.com/good": "1"}
    return with_roles({"roles": {"Worker": good}})


def node(**amounts: str) -> Object:
    return {"metadata": {"name": "x", "labels": {"a": "main"}}, "status": {"allocatable": amounts}}


@settings(max_examples=COUNT, deadline=None)
@given(seed=st.integers(min_value=0, max_value=1 << 40))
@pytest.mark.failure_mode("job-values-random")
@pytest.mark.threat("random-objects")
def test_whatever_a_job_asks_for_the_queue_admits_the_one_next_to_it(seed: int) -> None:
    spec = random_spec(seed)
    stores = Stores(
        training_jobs={
            ("n", "odd"): job_object("odd", spec),
            ("n", "good"): job_object("good", good_spec()),
        },
        nodes={
            ("", "x"): node(**{"cpu": "8", "pods": "20", "nvidia.com/gpu": "4"}),
            ("", "good"): node(**{"cpu": "1000000", "pods": "100000", "example.com/good": "1"}),
        },
    )
    demands, room, turns = PodDemands(stores=stores), NodeRoom(stores=stores), Turns()
    collector = Collector(stores=stores, demands=demands, room=room, turns=turns)
    entries = collector.collect()
    decision = schedule(
        waiting=entries.waiting,
        occupants=entries.occupants,
        nodes=Nodes(free=room.free(), capacity=room.capacity(), lasting=room.lasting()),
        allowances=entries.allowances,
    )
    assert "uid-good" in [job.uid for job in decision.admitted]
    assert not any(turn.unreadable for _, turn in turns), list(
        turns
    )  # what cannot be understood was found before
    try:
        parsed = TrainingJobSpec.model_validate(spec)
    except (ValidationError, RecursionError):
        return
    too_long(job="odd", namespace="n", spec=parsed)
    owner = job_object("odd", spec)
    for role_name in parsed.by_role():
        job = job_children.job(owner=owner, spec=parsed, role=role_name, suspended=True)
        job_children.changes(live=job, spec=parsed, role=role_name, suspended=False)


@pytest.mark.failure_mode("job-values-random")
@pytest.mark.threat("random-objects")
async def test_random_jobs_are_each_reported_and_delay_no_good_one() -> None:
    for begin in range(0, max(COUNT // 3, BATCH), BATCH):
        async with Jobs(gpus={"a": 4}) as jobs:
            for seed in range(begin, begin + BATCH):
                spec = random_spec(seed)
                if isinstance(spec, dict):  # the server takes no other
                    await jobs.server.create(
                        TRAINING_JOBS, obj={**job_object(f"odd-{seed}", spec), "status": {}}
                    )
            await jobs.create("good", workers=1, scheduling={"gang": False})
            await jobs.until(lambda: jobs.condition("Admitted", "good").get("status") == "True", play=False)

            def reported() -> bool:
                every = jobs.server.store(TRAINING_JOBS).values()
                return all((obj.get("status") or {}).get("conditions") for obj in every)

            await jobs.until(reported, play=False)
