"""Where a job and its data meet, from its admission to the time at which its nodes have the data."""

from typing import Any

import pytest
from tests.unit.control.jobs import Jobs

from tdcs.api.trainingjob_status import DataMeeting
from tdcs.cli.explain.explained_meeting import meeting_sentence
from tdcs.control.job.data_meetings import AGAIN_SECONDS, LOOK_SECONDS, due
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS

NOW = "2026-01-01T00:10:00Z"
SIZE = 55_000_000
READS = [{"name": "pictures", "mountPath": "/data"}]


def cache(jobs: Jobs, *nodes: str, capacity: int = 10 * SIZE) -> None:
    """A cache cluster with a worker on each of these nodes."""
    workers = [{"node": node, "state": "Ready", "capacityBytes": capacity, "usedBytes": 0} for node in nodes]
    jobs.server.store(CACHE_CLUSTERS)["tdcs-system", "default"] = {
        "metadata": {"name": "default", "namespace": "tdcs-system"},
        "spec": {},
        "status": {"workers": workers},
    }


def pictures(
    jobs: Jobs, *, held: dict[str, int], name: str = "pictures", placement: Object | None = None
) -> None:
    """A Dataset that is ready, with these bytes on these nodes."""
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": "x",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind in ("Ready", "Mounted", "Loaded")
    ]
    store = jobs.server.store(DATASETS)
    store["n", name] = {
        "metadata": {"name": name, "namespace": "n", "uid": name, "generation": 1},
        "spec": {"source": {"uri": f"file:///data/{name}"}, "placement": placement or {"mode": "Auto"}},
        "status": {
            "conditions": conditions,
            "claimName": name,
            "mountPath": f"/datasets/{name}",
            "loadedRatio": 1.0,
            "totalBytes": SIZE,
            "copies": [{"id": "0", "nodes": [{"name": node, "bytes": size} for node, size in held.items()]}],
        },
    }


def meeting(jobs: Jobs, name: str = "train") -> Any:
    copies = jobs.status(name).get("copies") or [{}]
    return copies[0].get("meeting") or {}


async def test_a_job_whose_data_has_no_room_next_to_it_has_the_copy_grow_and_ends_at_locality_1() -> None:
    async with Jobs(gpus={"a": 1, "b": 1, "c": 1}) as jobs:
        cache(jobs, *"abc")
        pictures(jobs, held={"a": SIZE})
        await jobs.stranger("other", node="a", gpus=1)
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: jobs.bound("train") == 1)
        await jobs.run()
        await jobs.until_state("Running")
        (pod,) = jobs.pods("train")
        node = pod["spec"]["nodeName"]
        await jobs.until(lambda: (meeting(jobs).get("way"), meeting(jobs).get("nodes")) == ("Grow", [node]))
        assert meeting(jobs)["bytes"] == SIZE
        assert meeting(jobs)["growSeconds"] <= meeting(jobs)["remoteSeconds"]
        assert jobs.status()["locality"] == 0
        pictures(jobs, held={"a": SIZE, node: SIZE})
        await jobs.until(lambda: jobs.status()["locality"] == 1)
        await jobs.until(lambda: "metTime" in meeting(jobs))


async def test_what_is_expected_stands_in_the_status_before_a_pod_has_a_node() -> None:
    async with Jobs(gpus={"a": 1, "b": 1}) as jobs:
        cache(jobs, *"ab")
        pictures(jobs, held={"a": SIZE})
        await jobs.stranger("other", node="a", gpus=1)
        jobs.refuses = lambda pod: True  # kube-scheduler is away
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: meeting(jobs).get("way") == "Grow")
        assert meeting(jobs)["nodes"] == ["b"]
        assert meeting(jobs)["expectedSeconds"] > 0
        assert jobs.bound("train") == 0


async def test_a_job_next_to_its_data_has_nothing_moved() -> None:
    async with Jobs(gpus={"a": 1, "b": 1}) as jobs:
        cache(jobs, *"ab")
        pictures(jobs, held={"a": SIZE})
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: meeting(jobs).get("way") == "Near")
        assert meeting(jobs)["nodes"] == ["a"]


@pytest.mark.parametrize(
    ("placement", "capacity", "reason"),
    [
        ({"mode": "Auto", "nodeCount": 1}, 10 * SIZE, "SpecFixesNodes"),
        ({"mode": "Partition"}, 10 * SIZE, "SpecFixesNodes"),
        ({"mode": "Auto"}, SIZE // 2, "NoRoomInCache"),
    ],
)
async def test_a_job_that_reads_from_other_nodes_says_why(
    placement: Object, capacity: int, reason: str
) -> None:
    async with Jobs(gpus={"a": 1, "b": 1}) as jobs:
        cache(jobs, *"ab", capacity=capacity)
        pictures(jobs, placement=placement, held={"a": SIZE})
        await jobs.stranger("other", node="a", gpus=1)
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: meeting(jobs).get("way") == "Remote")
        assert meeting(jobs)["reason"] == reason


async def test_data_that_others_use_is_not_driven_out_for_a_copy_that_grows() -> None:
    async with Jobs(gpus={"a": 1, "b": 1}) as jobs:
        cache(jobs, *"ab", capacity=2 * SIZE)
        pictures(jobs, held={"a": SIZE})
        pictures(jobs, name="used", held={"b": SIZE})
        status = jobs.server.store(DATASETS)["n", "used"]["status"]
        status["activeJobs"] = 1
        await jobs.stranger("other", node="a", gpus=1)
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: meeting(jobs).get("reason") == "NoRoomInCache")
        status["activeJobs"] = 0  # what nobody uses leaves for what is read
        jobs.advance(60)
        await jobs.change(runPolicy={"ttlSecondsAfterFinished": 3600})  # a pass, as the minute brings it
        await jobs.until(lambda: meeting(jobs).get("way") == "Grow")


async def test_a_copy_that_grows_onto_some_of_a_jobs_nodes_has_met_it_when_these_have_it() -> None:
    async with Jobs(gpus={"a": 1, "b": 1, "c": 1}) as jobs:
        cache(jobs, *"abc")
        workers = jobs.server.store(CACHE_CLUSTERS)["tdcs-system", "default"]["status"]["workers"]
        workers[2]["capacityBytes"] = SIZE // 2
        pictures(jobs, held={"a": SIZE})
        await jobs.stranger("other", node="a", gpus=1)
        await jobs.create(workers=2, datasets=READS)
        await jobs.until(lambda: meeting(jobs).get("way") == "Grow")
        assert (meeting(jobs)["nodes"], meeting(jobs)["nodesWithoutRoom"]) == (["b", "c"], ["c"])
        assert "metTime" not in meeting(jobs)
        pictures(jobs, held={"a": SIZE, "b": SIZE})
        await jobs.change(runPolicy={"ttlSecondsAfterFinished": 3600})  # a pass, as the next look brings it
        await jobs.until(lambda: "metTime" in meeting(jobs))
        data_meeting = DataMeeting.model_validate(meeting(jobs))
        assert due({"pictures": data_meeting}, now=NOW) is None
        assert "1 of these nodes have no room in their cache" in meeting_sentence("pictures", data_meeting)


async def test_no_copy_grows_where_the_dataset_may_not_be() -> None:
    async with Jobs(gpus={"a": 1, "b": 1}) as jobs:
        cache(jobs, *"ab")
        on_a = {"kubernetes.io/hostname": "a"}
        pictures(jobs, placement={"mode": "Auto", "nodeSelector": on_a}, held={"a": SIZE})
        await jobs.stranger("other", node="a", gpus=1)
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: meeting(jobs).get("reason") == "NoRoomInCache")


async def test_the_nodes_that_jobs_which_wait_for_a_dataset_need_are_those_with_room_for_their_pods() -> None:
    async with Jobs(gpus={"a": 4, "b": 4, "c": 4}) as jobs:
        pictures(jobs, held={})
        jobs.server.store(DATASETS)["n", "pictures"]["status"].pop("conditions")  # is loaded, they wait
        await jobs.stranger("other", node="a", gpus=4)
        await jobs.create("first", workers=1, gpus=3, datasets=READS)
        await jobs.create("second", workers=1, gpus=2, datasets=READS)
        await jobs.create("reads-nothing", workers=1, gpus=4)
        await jobs.until(lambda: jobs.status("second").get("state") == "Waiting", play=False)
        await jobs.until(lambda: jobs.gangs.awaited_nodes(("n", "pictures")) == {"b", "c"}, play=False)
        assert jobs.gangs.awaited_nodes(("n", "unknown")) == frozenset()


def test_growth_that_is_long_overdue_is_looked_at_less_often() -> None:
    begun = DataMeeting(
        way="Grow", nodes=["b"], expected_seconds=30, decided_time="2026-01-01T00:00:00Z", bytes=SIZE
    )
    assert due({"pictures": begun}, now="2026-01-01T00:01:00Z") == LOOK_SECONDS
    assert due({"pictures": begun}, now="2026-01-01T00:06:00Z") == AGAIN_SECONDS
    assert due({"pictures": begun.model_copy(update={"met_time": NOW})}, now=NOW) is None
