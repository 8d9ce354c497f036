"""An agent goes: what it has leaves the table of copies at once, and its slots and the Dataset's state wait for it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import msgspec
import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster
from tests.unit.control.jobs import Jobs
from tests.unit.decide.builders import candidate, placed, totals_of

from tdcs.control.context import WorkKey
from tdcs.decide.cache.load_order import Subset
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.placement_input import Hosts, informed
from tdcs.model import slots
from tdcs.model.agent_state import AgentState, MountState, Part
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, TRAINING_JOBS, Resource

MB = 1_000_000
SIZE = 20 * MB
ABSENCE, PATIENCE = 1 / 32, 1 / 4
"""On the clock of the decisions, which stands still unless a test moves it."""


@dataclass
class Clock:
    """Seconds that pass when a test says so."""

    now: float = 1024.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def cluster(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """A Dataset that is Ready on two of three nodes."""
    monkeypatch.setattr("tests.support.twins.agents.RATE_SECONDS", 0.01)
    engine = MemoryEngine(
        sources={"s3://pictures": {f"{number:03d}.jpg": MB for number in range(20)}},
        workers=dict.fromkeys("abc", 10 * SIZE),
    )
    settings = replace(QUICK, absence_seconds=ABSENCE, return_seconds=PATIENCE)
    async with Cluster(
        engine=engine, nodes={name: {} for name in "abc"}, settings=settings, clock=clock
    ) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset(placement={"mode": "Replicate", "nodeCount": 2})
        await cluster.until_state("Ready")
        await cluster.until(lambda: not cluster.status().get("bytesPerSecond"))
        await passed(cluster)  # after the load, the status names its claim, too
        await cluster.until(lambda: cluster.status().get("claimName"))
        yield cluster


async def passed(cluster: Cluster) -> None:
    """Until a pass that began after this has ended."""
    before = cluster.passes
    cluster.context.queue.add(WorkKey(DATASETS, "n", "pictures"))
    await cluster.until(lambda: cluster.passes > before)
    await cluster.until(lambda: len(cluster.context.queue) == 0)


async def leave(cluster: Cluster, node: str) -> None:
    """The agent of a node goes, with its worker, and the operator has heard of it."""
    cluster.engine.set_worker(name=node, live=False)
    await cluster.until(lambda: node in cluster.observer.view("default").away)
    await passed(cluster)


async def come_back(cluster: Cluster, node: str) -> None:
    """They are there again."""
    cluster.engine.set_worker(name=node, live=True)
    cluster.agents.restart(node)
    await cluster.until(lambda: node in cluster.observer.view("default").agents)
    await passed(cluster)


def states_of(cluster: Cluster) -> set[tuple[str, ...]]:
    """What the conditions and the state say from now on, also what they say for a moment only."""
    states: set[tuple[str, ...]] = set()
    before = cluster.server.on_change

    def note(resource: Resource, obj: Object, deleted: bool) -> None:
        if resource is DATASETS:
            status = obj["status"]
            states.add(("state", status["state"], status["loaded"], str(status["loadedRatio"])))
            states.update(
                (condition["type"], condition["status"], condition["reason"], condition["lastTransitionTime"])
                for condition in status["conditions"]
                if condition["type"] in {"Loaded", "Ready"}
            )
        before(resource, obj, deleted)

    cluster.server.on_change = note
    return states


def status_writes(cluster: Cluster) -> int:
    """How often the status of a Dataset was written."""
    return sum(write.startswith("status Dataset") for write in cluster.server.writes)


@pytest.mark.failure_mode("agent-gone")
async def test_what_an_agent_has_is_struck_seconds_after_it_went_and_its_slots_wait_for_it(
    cluster: Cluster, clock: Clock
) -> None:
    held, read = cluster.nodes(), cluster.engine.source_bytes_read
    absent, remaining = sorted(held)
    states = states_of(cluster)
    await leave(cluster, absent)
    clock.now += ABSENCE
    await cluster.until(lambda: cluster.nodes() == {absent: 0, remaining: SIZE})
    status = cluster.status()
    assert (status["loadedBytes"], status["physicalBytes"], status["copyCount"]) == (2 * SIZE, SIZE, 1)
    assert f"the agent of {absent} is away" in cluster.condition("Loaded")["message"]
    # Until it counts as lost nothing is brought elsewhere, and what is back with it counts at once.
    clock.now += PATIENCE - ABSENCE - 1 / 64
    await passed(cluster)
    assert set(cluster.nodes()) == {absent, remaining}
    await come_back(cluster, absent)
    await cluster.until(lambda: cluster.nodes() == held and cluster.status()["state"] == "Ready")
    assert "is away" not in cluster.condition("Loaded")["message"]
    assert cluster.engine.source_bytes_read == read
    assert set(cluster.held()) == {absent, remaining}
    # Neither jobs that wait for the data nor times that count from its load have noticed.
    since = {kind: cluster.condition(kind)["lastTransitionTime"] for kind in ("Loaded", "Ready")}
    assert states == {
        ("state", "Ready", "100%", "1.0"),
        *((kind, "True", "Loaded", time) for kind, time in since.items()),
    }
    # One that stays away is replaced.
    await leave(cluster, absent)
    clock.now += PATIENCE
    await cluster.until(lambda: ("Loaded", "True", "Reloading") in {state[:3] for state in states})
    await cluster.until(lambda: set(cluster.nodes()) == {"a", "b", "c"} - {absent})
    await cluster.until_state("Ready")


async def test_files_that_cannot_be_had_are_no_load_while_an_agent_is_away(
    cluster: Cluster, clock: Clock
) -> None:
    cluster.engine.sources["s3://second"] = {f"{number:03d}.jpg": MB for number in range(20)}
    cluster.engine.refuse = lambda _, uri: "permission denied" if uri.endswith("7.jpg") else None
    await cluster.create_dataset(
        "second", source={"uri": "s3://second"}, placement={"mode": "Replicate", "nodeCount": 2}
    )
    await cluster.until(lambda: cluster.condition("Ready", "second").get("reason") == "FilesFailed")
    failed_fields = {
        field: cluster.status("second")[field] for field in ("failedFileCount", "failedFiles", "loaded")
    }
    before = cluster.server.on_change
    states: set[tuple[str, str | None]] = set()

    def note(resource: Resource, obj: Object, deleted: bool) -> None:
        if resource is DATASETS and obj["metadata"]["name"] == "second":
            states.add((obj["status"]["state"], obj["status"].get("reason")))
        before(resource, obj, deleted)

    cluster.server.on_change = note
    nodes = sorted(cluster.nodes("second"))
    for node in nodes:
        await leave(cluster, node)
    clock.now += ABSENCE
    cluster.context.queue.add(WorkKey(DATASETS, "n", "second"))
    await cluster.until(lambda: not any(cluster.nodes("second").values()))
    assert {field: cluster.status("second")[field] for field in failed_fields} == failed_fields
    assert states == {("Degraded", "FilesFailed")}


@pytest.mark.failure_mode("agent-gone")
async def test_an_agent_that_restarts_at_once_changes_no_status(cluster: Cluster, clock: Clock) -> None:
    absent = min(cluster.nodes())
    before = status_writes(cluster)
    for _ in range(3):
        await leave(cluster, absent)
        clock.now += ABSENCE - 1 / 64
        await passed(cluster)
        await come_back(cluster, absent)
    assert status_writes(cluster) == before


@pytest.mark.failure_mode("agent-gone")
async def test_a_job_that_waits_for_nodes_keeps_them_while_an_agent_is_away(
    cluster: Cluster, clock: Clock
) -> None:
    reads = {"name": "pictures", "mountPath": "/data", "readiness": {"percent": 100}}
    jobs = Jobs(gpus={"x": 4, "y": 4}, max_passes=1)
    jobs.server.stores[DATASETS.plural] = cluster.server.store(DATASETS)
    absent, remaining = sorted(cluster.nodes())
    cluster.server.store(PERSISTENT_VOLUME_CLAIMS)["n", "pictures"]["status"] = {"phase": "Bound"}
    await passed(cluster)
    await cluster.until(lambda: cluster.status().get("claimName"))

    async def looked_at() -> None:
        before = jobs.passes
        jobs.context.queue.add(WorkKey(TRAINING_JOBS, "n", "big"))
        await jobs.until(lambda: jobs.passes > before)

    async with jobs:
        await jobs.create("long", workers=2, gpus=2)
        await jobs.until(lambda: jobs.bound("long") == 2)
        await jobs.create("big", workers=2, gpus=4, datasets=[reads])
        await jobs.until(lambda: jobs.status("big").get("state") == "Queued")
        await jobs.create("first", workers=1)
        await jobs.until(lambda: jobs.bound("first") == 1)
        await leave(cluster, absent)
        clock.now += 5 * ABSENCE / 3  # 5 s of 3
        await cluster.until(lambda: cluster.nodes() == {absent: 0, remaining: SIZE})
        await looked_at()
        assert jobs.status("big")["state"] == "Queued"
        await jobs.create("second", workers=1)
        await jobs.until(lambda: jobs.status("second").get("state") == "Queued")
        assert "set aside for n/big" in jobs.status("second")["message"]


async def test_a_load_time_is_not_that_of_an_agent_that_was_away(cluster: Cluster, clock: Clock) -> None:
    took = cluster.status().get("loadSeconds")
    for node in sorted(cluster.nodes()):
        await leave(cluster, node)
    clock.now += ABSENCE
    await cluster.until(lambda: not any(cluster.nodes().values()))
    clock.now += 5.0
    for node in sorted(cluster.nodes()):
        await come_back(cluster, node)
    await cluster.until_state("Ready")
    assert cluster.status().get("loadSeconds") == took


@pytest.mark.failure_mode("operator-restarts-while-agent-gone")
async def test_a_new_operator_leaves_struck_what_it_has_not_heard_of_and_moves_nothing(
    cluster: Cluster, clock: Clock
) -> None:
    held, read = cluster.nodes(), cluster.engine.source_bytes_read
    absent, remaining = sorted(held)
    await leave(cluster, absent)
    clock.now += ABSENCE
    await cluster.until(lambda: cluster.nodes() == {absent: 0, remaining: SIZE})
    await cluster.stop()
    await cluster.start()
    await passed(cluster)
    clock.now += PATIENCE - 1 / 64
    await passed(cluster)
    assert cluster.nodes() == {absent: 0, remaining: SIZE}
    await come_back(cluster, absent)
    await cluster.until(lambda: cluster.nodes() == held and cluster.status()["state"] == "Ready")
    assert cluster.engine.source_bytes_read == read


def test_a_last_state_counts_file_by_file_only_where_it_is_about_what_is_wanted_now() -> None:
    totals = totals_of([MB] * 8)
    (placement,) = placed(
        totals,
        Want(key="x", subset=Subset(paths=("a",))),
        below={("a",): totals},
        candidates=[candidate("n")],
    )
    mask = placement.copies[0].nodes["n"]
    part = Part(name="x", slots=mask, paths=("a",))

    def informed_of(*parts: Part, away: bool = False, is_present: bool = False) -> frozenset[str]:
        state = MountState(mount="/m", source_away=away)
        agents = (
            {"n": AgentState(node="n", instance="", revision=1, mounts={"/m": state})} if is_present else {}
        )
        hosts = Hosts(
            candidates=(),
            states={},
            agents=agents,
            draining=frozenset(),
            waiting=frozenset(),
            held={"n": state},
            readable={},
            spaces={},
        )
        return informed(hosts, [placement], parts={"n": parts} if parts else {})

    assert informed_of(part) == {"n"}
    assert informed_of(part, Part(name="y", slots=mask)) == {"n"}
    assert informed_of() == frozenset(), "of another operator's assignments nothing is known"
    assert informed_of(msgspec.structs.replace(part, paths=("b",))) == frozenset()
    assert informed_of(msgspec.structs.replace(part, slots=slots.bitmap([1]))) == frozenset()
    assert informed_of(part, away=True) == frozenset(), "the source may be back by now"
    assert informed_of(part, away=True, is_present=True) == {"n"}
