"""Random walks over a shared cache that grows and shrinks, with operators that die at random writes.

`TDCS_SHARING_WALKS` is the number of walks (2), `TDCS_SHARING_FIRST` the seed of the first.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.controllers.cluster import Server
from tests.unit.controllers.test_cache_manager_stories import ends, job
from tests.unit.controllers.workers import WorkersCluster

from tdcs.api import names
from tdcs.kube.api import Object
from tdcs.kube.resources import CACHE_CLUSTERS, DATASETS, TRAINING_JOBS
from tdcs.planning.placement import RESERVE_RATIO

WALKS = int(os.environ.get("TDCS_SHARING_WALKS", "2"))
FIRST = int(os.environ.get("TDCS_SHARING_FIRST", "0"))
STEPS = 25
NODES = "abcd"
MB = 1_000_000
SIZES = {"small": 12, "middle": 30, "large": 70, "other": 24}
CAPACITY = 60 * MB
QUIET_SECONDS = 1.3

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
    """

    def __init__(self, cluster: WorkersCluster, *, seed: int) -> None:
        self.cluster = cluster
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
        wanted = min(count, len(NODES))
        self.bounds = (wanted, wanted)
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
        there = sorted(name for _, name in self.cluster.server.store(DATASETS))
        if there and self.random.random() < 0.5:
            name = self.random.choice(there)
            for pod in [key[1] for key in self.cluster.pods if key[1].endswith(name)]:
                self.cluster.end(pod)
            await Server.delete(self.cluster.server, DATASETS, name=name, namespace="n")

    async def job(self) -> None:
        self.jobs += 1
        copy = self.random.choice([None, "0"])
        job(self.cluster, f"job{self.jobs}", self.random.choice([*SIZES]), copy=copy)

    async def end(self) -> None:
        there = sorted(name for _, name in self.cluster.server.store(TRAINING_JOBS))
        if there:
            ends(self.cluster, self.random.choice(there))

    async def pod(self) -> None:
        name, node = self.random.choice([*SIZES]), self.random.choice(NODES)
        if ("n", name) in self.cluster.server.store(DATASETS):
            self.cluster.read(f"{self.random.randint(1, 3)}-{name}", name, node=node)

    async def leave(self) -> None:
        if self.cluster.pods:
            self.cluster.end(self.random.choice(sorted(self.cluster.pods))[1])

    async def quotas(self) -> None:
        self.quota = self.random.choice([None, 20 * MB, 90 * MB])
        quotas = [{"name": "all", "bytes": self.quota}] if self.quota else []
        await self.cluster.scale(quotas=quotas)

    async def kill(self) -> None:
        self.cluster.mortal.kill_after(self.random.randint(1, 12))

    def check(self) -> None:
        """What holds at any time."""
        for name, worker in self.cluster.engine.state.workers.items():
            assert worker.used <= worker.capacity, f"node {name} holds more than it may"

    async def rest(self) -> None:
        """Until nothing is written for a while."""
        deadline, last, count = time.monotonic() + 45, time.monotonic(), -1
        while time.monotonic() - last < QUIET_SECONDS:
            assert time.monotonic() < deadline, (
                f"it does not come to rest: {self.cluster.server.writes[-12:]}"
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
        room = len(workers) * CAPACITY * (1 - RESERVE_RATIO) - self.cluster.engine_used()
        for key, obj in self.cluster.server.store(DATASETS).items():
            status = obj.get("status") or {}
            reasons = {one["type"]: one["reason"] for one in status.get("conditions", ())}
            assert status.get("loadedRatio") == 1 or not status.get("wantedBytes"), (key, status)
            if reasons.get("Granted") in {"NotAllFits", "Evicted"} and self.quota is None:
                size = SIZES[key[1]] * MB
                assert room < size * len(workers) * 2, (
                    f"{key} has {status['grant']} while {room} bytes are free"
                )
            if reasons.get("Granted") == "Granted":
                assert status["cachedBytes"] == status["totalBytes"], key
        if self.quota is not None and not self.pinned():
            granted = sum(
                (obj.get("status") or {}).get("grant", {}).get("bytes", 0)
                for obj in self.cluster.server.store(DATASETS).values()
            )
            assert granted <= self.quota, "more is granted than the quota allows"

    def pinned(self) -> bool:
        """Whether something is pinned, which a quota does not evict."""
        policies = {obj["spec"]["eviction"]["policy"] for obj in self.cluster.server.store(DATASETS).values()}
        return bool(policies & {"Pin", "Gone"})

    def state(self) -> Object:
        """What a fresh operator must find, and leave, as it is."""
        datasets = {}
        for key, obj in self.cluster.server.store(DATASETS).items():
            status = obj.get("status") or {}
            kept = ("copies", "grant", "wantedBytes", "loadedBytes", "cachedBytes", "physicalBytes", "state")
            datasets[key[1]] = {
                **{field: status.get(field) for field in kept},
                "conditions": sorted(
                    (one["type"], one["status"], one["reason"]) for one in status.get("conditions", ())
                ),
            }
        return {"datasets": datasets, "workers": self.cluster.workers(), "held": self.cluster.held()}


@pytest.mark.parametrize("seed", range(FIRST, FIRST + WALKS))
async def test_a_shared_cache_keeps_its_bounds_and_comes_to_rest_whatever_happens(seed: int) -> None:
    sources = {f"s3://{name}": {f"{n:02}": MB for n in range(size)} for name, size in SIZES.items()}
    async with WorkersCluster(sources=sources, nodes=NODES, capacity=CAPACITY) as cluster:
        await cluster.create_cache(nodeSelector={"cache": "yes"})
        walk = Walk(cluster, seed=seed)
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
        except AssertionError as error:
            spec = cluster.server.store(CACHE_CLUSTERS)[names.SYSTEM_NAMESPACE, "default"]["spec"]
            raise AssertionError(
                f"seed {seed}: {walk.done}\n{spec}\n{error}\n{cluster._describe()}"
            ) from error
