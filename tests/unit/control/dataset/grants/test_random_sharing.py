"""Random walks over a shared cache that grows and shrinks, with operators that die at random writes.

`TDCS_SHARING_WALKS` is the number of walks (2), `TDCS_SHARING_FIRST` the seed of the first: `make walks`.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.control.dataset.grants.test_cache_manager_stories import ends, job
from tests.unit.control.server import Server
from tests.unit.control.workers import WorkersCluster

from tdcs.api import names
from tdcs.api.conditions import EVICTED, NOT_ALL_FITS, is_true
from tdcs.control.status_publisher import conditions_of
from tdcs.decide.cache.grants import Grants, GrantTier
from tdcs.decide.place.copy_nodes import Mode
from tdcs.decide.place.slot_nodes import RESERVE_RATIO, PlacedCopy, WantPlacement
from tdcs.model import slots
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, TRAINING_JOBS

WALKS = int(os.environ.get("TDCS_SHARING_WALKS", "2"))
FIRST = int(os.environ.get("TDCS_SHARING_FIRST", "0"))
STEPS = 25
NODES = "abcd"
MB = 1_000_000
SIZES = {"small": 12, "middle": 30, "large": 70, "other": 24}
CAPACITY = 40 * MB
"""All four together do not fit on four nodes, and the largest not on one."""
QUIET_SECONDS = 1.3
QUOTAS = (20 * MB, 90 * MB)
MANY = 20
"""So many walks of one process reach everything that they check."""

EVICTIONS: list[Object] = [
    {"policy": "LRU"},
    {"policy": "LRFU"},
    {"policy": "NextUse"},
    {"policy": "Pin"},
    {"policy": "Timed", "ttl": "1s"},
    {"policy": "Timed", "ttl": "1h"},
    {"policy": "Timed", "schedule": "0 3 1 1 *"},
    {"policy": "Gone"},
]
PLACEMENTS: list[Object] = [
    {},
    {"mode": "Partition", "nodeCount": 2},
    {"mode": "Replicate", "nodeCount": 2},
    {"mode": "Replicate"},
    {"mode": "Partition", "copies": 2},
]


class Walk:
    """One walk.

    Args:
        cluster: where it goes.
        seed: another one, another walk.
        reached: counts what was there to be checked.
    """

    def __init__(self, cluster: WorkersCluster, *, seed: int, reached: Counter[str]) -> None:
        self.cluster = cluster
        self.reached = reached
        self.random = random.Random(seed)
        self.bounds = (len(NODES), len(NODES))
        self.done: list[str] = []
        self.quota: int | None = None
        self.jobs = 0

    async def go(self) -> None:
        """All steps, with a look at what holds at any time after each."""
        steps: list[Callable[[], Any]] = [self.scale, self.follow, self.dataset, self.dataset, self.delete]
        steps += [
            self.job,
            self.job,
            self.end,
            self.end,
            self.pod,
            self.pod,
            self.leave,
            self.quotas,
            self.kill,
        ]
        for _ in range(STEPS):
            step = self.random.choice(steps)
            self.done.append(step.__name__)
            await step()
            await asyncio.sleep(self.random.choice([0.0, 0.02, 0.1]))
            if self.cluster.mortal.dead.is_set():
                await self.cluster.restart()
            self.check()
        await self.cluster.restart()

    async def scale(self) -> None:
        count = self.random.randint(1, len(NODES) + 1)
        workers = min(count, len(NODES))
        self.bounds = (workers, workers)
        off = {"followJobs": False, "minReplicas": None, "maxReplicas": None, "scaleDownDelay": None}
        await self.cluster.scale(replicas=count, scaling=off)

    async def follow(self) -> None:
        least = self.random.randint(1, 3)
        most = self.random.choice([None, self.random.randint(least, len(NODES))])
        self.bounds = (least, most or len(NODES))
        await self.cluster.scale(
            replicas=None,
            scaling={
                "followJobs": True,
                "minReplicas": least,
                "maxReplicas": most,
                "scaleDownDelay": self.random.choice(["0s", "1s"]),
            },
        )

    async def dataset(self) -> None:
        name = self.random.choice([*SIZES])
        if ("n", name) in self.cluster.server.store(DATASETS):
            return
        await self.cluster.create_dataset(
            name,
            source={"uri": f"s3://{name}"},
            placement=self.random.choice(PLACEMENTS),
            eviction=self.random.choice(EVICTIONS),
            **self.random.choice([{}, {}, {"access": {"maxConcurrentJobs": 1, "onLimit": "Clone"}}]),
        )

    async def delete(self) -> None:
        datasets = sorted(name for _, name in self.cluster.server.store(DATASETS))
        if datasets and self.random.random() < 0.5:
            name = self.random.choice(datasets)
            for pod in [key[1] for key in self.cluster.pods if key[1].endswith(name)]:
                self.cluster.end(pod)
            await Server.delete(self.cluster.server, DATASETS, name=name, namespace="n")

    async def job(self) -> None:
        self.jobs += 1
        copy = self.random.choice([None, "0"])
        job(self.cluster, f"job{self.jobs}", self.random.choice([*SIZES]), copy=copy)

    async def end(self) -> None:
        jobs = sorted(name for _, name in self.cluster.server.store(TRAINING_JOBS))
        if jobs:
            ends(self.cluster, self.random.choice(jobs))

    async def pod(self) -> None:
        name, node = self.random.choice([*SIZES]), self.random.choice(NODES)
        if ("n", name) in self.cluster.server.store(DATASETS):
            self.cluster.read(f"{self.random.randint(1, 3)}-{name}", name, node=node)

    async def leave(self) -> None:
        if self.cluster.pods:
            self.cluster.end(self.random.choice(sorted(self.cluster.pods))[1])

    async def quotas(self) -> None:
        self.quota = self.random.choice([None, *QUOTAS])
        quotas = [{"name": "all", "bytes": self.quota}] if self.quota else []
        await self.cluster.scale(quotas=quotas)

    async def kill(self) -> None:
        self.cluster.mortal.kill_after(self.random.randint(1, 12))

    def check(self) -> None:
        """What holds at any time."""
        for name, worker in self.cluster.engine.state.workers.items():
            assert worker.used <= worker.capacity, f"node {name} holds more than it may"
        for free in self.grants().quotas.values():
            pinned, unpinned = self.charged(known_to_pay=True)
            # Less than the quota of the spec while a new operator does not know yet what all mounts ask for.
            total = free + pinned + unpinned
            assert total <= max(QUOTAS)
            assert unpinned <= max(total - pinned, 0), (
                f"{unpinned} are granted of {total} next to {pinned} pinned"
            )
            self.reached["a quota that keeps something out"] += free <= 0

    def grants(self) -> Grants:
        """What the operator grants now."""
        return self.cluster.mounts.manager.grants(names.DEFAULT_CACHE_CLUSTER)

    def charged(self, *, known_to_pay: bool = False) -> tuple[int, int]:
        """Bytes that are granted to what is pinned, and to the rest; if wanted only of mounts of which the last pass
        knew that the quota counts them."""
        charges = {True: 0, False: 0}
        for placed in self.grants().placed.values():
            payers = placed.demand.payers
            charges[placed.grant.tier is GrantTier.PINNED] += sum(
                sum(placement.charges.values())
                if payers.get(placement.want.key)
                else sum(placement.added_bytes.values())
                for placement in placed.grant.placements
                if payers.get(placement.want.key) or not known_to_pay
            )
        return charges[True], charges[False]

    async def rest(self) -> None:
        """Until nothing is written for a while, and the disks hold, and statuses say, what was granted."""
        deadline, last, count = time.monotonic() + 45, time.monotonic(), -1
        while (
            time.monotonic() - last < QUIET_SECONDS
            or self.unfinished()
            or self.used_bytes() != self.granted_bytes()
        ):
            assert time.monotonic() < deadline, (
                f"it does not come to rest: {self.cluster.server.writes[-12:]}, the disks hold {self.used_bytes()}, "
                f"granted are {self.granted_bytes()}, unfinished are {self.unfinished()}"
            )
            if len(self.cluster.server.writes) != count:
                count, last = len(self.cluster.server.writes), time.monotonic()
            self.check()
            await asyncio.sleep(0.05)
        assert not self.cluster.defects, self.cluster.defects

    def check_at_rest(self) -> None:
        """What holds when nothing changes any more."""
        workers = self.cluster.worker_nodes()
        least, most = self.bounds
        assert least <= len(workers) <= most, (workers, self.bounds)
        assert self.cluster.workers() == dict.fromkeys(sorted(workers), "Ready")
        for node, worker in self.cluster.engine.state.workers.items():
            assert worker.live is (node in workers)
            assert worker.live or not worker.blocks, f"the disk of node {node} is not clean"
        for key, obj in self.cluster.server.store(DATASETS).items():
            status = obj.get("status") or {}
            reasons = {condition["type"]: condition["reason"] for condition in status.get("conditions", ())}
            assert status.get("loadedRatio") == 1 or not status.get("wantedBytes"), (key, status)
            if reasons.get("Granted") == "Granted":
                assert status["cachedBytes"] == status["totalBytes"], key
            if reasons.get("Granted") in {NOT_ALL_FITS, EVICTED}:
                self.reached["a dataset without room"] += 1
        used = self.used_bytes()
        assert used == self.granted_bytes()
        free = {node: int(CAPACITY * (1 - RESERVE_RATIO)) - size for node, size in used.items()}
        for path, grant in self.grants().mounts.items():
            for placement in grant.placements:
                self.check_full(path, placement, free)
        if self.quota is not None and self.grants().mounts:
            pinned, unpinned = self.charged()
            assert self.grants().quotas == {"all": self.quota - pinned - unpinned}
            assert unpinned <= max(self.quota - pinned, 0), "more is granted than the quota allows"

    def unfinished(self) -> list[str]:
        """The Datasets that are new, are being loaded, or leave in a moment because their time is over."""
        mounts, pending = self.grants().mounts, []
        for (_, name), obj in self.cluster.server.store(DATASETS).items():
            status = obj.get("status") or {}
            grant = mounts.get(status.get("mountPath", ""))
            loads = status.get("wantedBytes") and status["loadedRatio"] < 1
            # Its time begins when all that found room is loaded; while nothing finds room it does not begin.
            soon = (
                obj["spec"]["eviction"].get("ttl") == "1s"
                and grant is not None
                and grant.tier is GrantTier.KEPT
                and is_true(conditions_of(obj), names.LOADED)
            )
            if not status.get("grant") or loads or soon:
                pending.append(name)
        return pending

    def used_bytes(self) -> dict[str, int]:
        """Bytes on the disk of each node with a worker."""
        return {
            node: self.cluster.engine.state.workers[node].used for node in sorted(self.cluster.worker_nodes())
        }

    def granted_bytes(self) -> dict[str, int]:
        """Bytes that are granted on each of these nodes."""
        sizes = Counter[str]()
        for grant in self.grants().mounts.values():
            sizes.update(grant.node_bytes)
        return {node: sizes[node] for node in sorted(self.cluster.worker_nodes())}

    def check_full(self, path: str, placement: WantPlacement, free: dict[str, int]) -> None:
        """A slot has no holder only where there is no room for it, or a quota keeps it out."""
        if not placement.unplaced_bytes or placement.short_of or placement.want.alongside:
            return
        slot = int(placement.totals.sizes.max())
        if not placement.wanted_bytes:
            self.reached["a dataset of which nothing has room"] += 1
            assert all(size < slot for size in free.values()), (
                f"nothing of {path} is granted: {free} are free"
            )
        for copy in placement.copies:
            for node in lacking(copy, placement):
                self.reached["a node without room"] += 1
                assert free[node] < slot, (
                    f"{path} lacks slots on {node}, and {free[node]} bytes are free there"
                )

    def state(self) -> Object:
        """What a fresh operator must find, and leave, as it is."""
        datasets = {}
        for key, obj in self.cluster.server.store(DATASETS).items():
            status = obj.get("status") or {}
            fields = (
                "copies",
                "grant",
                "wantedBytes",
                "loadedBytes",
                "cachedBytes",
                "physicalBytes",
                "state",
            )
            datasets[key[1]] = {
                **{field: status.get(field) for field in fields},
                "conditions": sorted(
                    (condition["type"], condition["status"], condition["reason"])
                    for condition in status.get("conditions", ())
                ),
            }
        return {"datasets": datasets, "workers": self.cluster.workers(), "held": self.cluster.held()}


def lacking(copy: PlacedCopy, placement: WantPlacement) -> list[str]:
    """The nodes of a copy that lack some of what they are meant to hold; of a partition all of them, when any slot has
    no holder."""

    def whole(*held: bytes) -> bool:
        return slots.bytes_in(slots.union(*held), placement.totals.sizes) >= placement.subset_bytes

    if copy.mode is Mode.PARTITION:
        return [] if whole(*copy.nodes.values()) else [*copy.nodes]
    return [node for node, held in copy.nodes.items() if not whole(held)]


@pytest.fixture(scope="module")
def reached() -> Iterator[Counter[str]]:
    """Counts what the walks had to check. Many walks that never reached it would prove nothing."""
    counts = Counter[str]()
    yield counts
    print(f"reached: {dict(counts)}")
    if counts["walks"] >= MANY:
        for event in (
            "a quota that keeps something out",
            "a dataset without room",
            "a node without room",
        ):
            assert counts[event] >= counts["walks"] // 10, f"{event}: reached too seldom: {counts}"


@pytest.mark.parametrize("seed", range(FIRST, FIRST + WALKS))
async def test_a_shared_cache_keeps_its_bounds_and_comes_to_rest_whatever_happens(
    seed: int, reached: Counter[str]
) -> None:
    sources = {f"s3://{name}": {f"{n:02}": MB for n in range(size)} for name, size in SIZES.items()}
    async with WorkersCluster(sources=sources, nodes=NODES, capacity=CAPACITY) as cluster:
        await cluster.create_cache(nodeSelector={"cache": "yes"})
        walk = Walk(cluster, seed=seed, reached=reached)
        try:
            await walk.go()
            await walk.rest()
            walk.check_at_rest()
            before = walk.state()
            read = cluster.engine.source_bytes_read
            await cluster.restart()
            await walk.rest()
            walk.check_at_rest()
            assert walk.state() == before
            assert cluster.engine.source_bytes_read == read
            reached["walks"] += 1
        except AssertionError as error:
            spec = cluster.server.store(CACHE_CLUSTERS)[names.SYSTEM_NAMESPACE, "default"]["spec"]
            raise AssertionError(
                f"seed {seed}: {walk.done}\n{spec}\n{error}\n{cluster._describe()}"
            ) from error
