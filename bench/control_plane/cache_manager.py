"""One pass of the cache manager: 100 datasets and 500 jobs on 200 nodes.

    python bench/control_plane/cache_manager.py [--datasets 100] [--jobs 500] [--nodes 200] [--limit 0.5]

Prints one JSON line: seconds of the first pass of a new operator (nothing is known), of one after a job began to read
another dataset (one dataset moves up), and of one after nothing. With --limit it fails when the first takes longer.
The datasets take one and a half times the cache, so that some have to leave.
"""

import argparse
import asyncio
import json
import sys
import time

import numpy as np

from tdcs.api.dataset import Dataset
from tdcs.control.dataset.cache_manager import CacheManager
from tdcs.decide.cache.dataset_demand import jobs_of
from tdcs.decide.cache.eviction_order import lru
from tdcs.decide.cache.grants import MountDemand
from tdcs.decide.cache.mount_standing import CacheUser, UsersOfDataset, standing
from tdcs.decide.cache.node_room import NodeSpace
from tdcs.decide.cache.wants import Want, dataset_key
from tdcs.decide.place.copy_nodes import CacheNode
from tdcs.decide.place.slot_nodes import Candidate
from tdcs.model import slots
from tdcs.model.agent_state import AgentState
from tdcs.model.manifest_format import Totals

NODE_BYTES = 1_000_000_000_000
NOW = "2026-03-01T12:00:00Z"


def totals_of(size: int) -> Totals:
    """A dataset of so many bytes, spread evenly over the slots."""
    sizes = np.full(slots.SLOTS, size // slots.SLOTS, dtype="<i8")
    counts = np.full(slots.SLOTS, 10, dtype="<u4")
    total = int(sizes.sum())
    return Totals(
        files=int(counts.sum()),
        blocks=int(counts.sum()),
        block_bytes=total,
        largest_block=size // slots.SLOTS,
        slot_bytes=sizes.tobytes(),
        slot_files=counts.tobytes(),
    )


def job(number: int, *, dataset: str, active: bool) -> dict[str, object]:
    """A TrainingJob as the API server has it."""
    condition = {"type": "Admitted", "status": "True" if active else "False", "reason": "x"}
    return {
        "metadata": {"name": f"job-{number}", "namespace": "n", "creationTimestamp": NOW},
        "spec": {"datasets": [{"name": dataset, "mountPath": "/data"}]},
        "status": {"conditions": [condition]},
    }


class World:
    """Datasets, jobs and nodes."""

    def __init__(self, *, datasets: int, jobs: int, nodes: int) -> None:
        generator = np.random.default_rng(7)
        weights = generator.lognormal(sigma=1.0, size=datasets)
        sizes = weights / weights.sum() * nodes * NODE_BYTES * 1.5
        self.totals = {f"d{number}": totals_of(int(size)) for number, size in enumerate(sizes)}
        self.jobs = {
            ("n", f"job-{number}"): job(
                number, dataset=f"d{generator.integers(datasets)}", active=number % 3 == 0
            )
            for number in range(jobs)
        }
        self.nodes = [
            Candidate(
                node=CacheNode(name=f"node-{number:03}", capacity_bytes=NODE_BYTES, free_bytes=0, free_gpus=8)
            )
            for number in range(nodes)
        ]
        self.spaces = {
            placed.node.name: NodeSpace(
                capacity=NODE_BYTES,
                state=AgentState(
                    node=placed.node.name, instance="i", revision=1, capacity_bytes=NODE_BYTES, mounts={}
                ),
            )
            for placed in self.nodes
        }
        self.dataset = Dataset.model_validate({"spec": {"source": {"uri": "file:///data/x"}}})

    def demand(self, name: str) -> MountDemand:
        """What one dataset asks for now."""
        jobs = jobs_of(namespace="n", dataset=name, jobs=self.jobs)
        cache_user = CacheUser(dataset=self.dataset, created=NOW, use=UsersOfDataset(jobs=jobs))
        totals = self.totals[name]
        stands = standing([cache_user], size=totals.block_bytes, policies={"LRU": lru}, now=NOW)
        want = Want(key=dataset_key(namespace="n", name=name))
        return MountDemand(
            path=f"/{name}",
            manifest=name,
            wants=(want,),
            totals={(): totals},
            candidates=tuple(self.nodes),
            tier=stands.tier,
            value=stands.value,
        )


async def measured(world: World) -> dict[str, float]:
    """Seconds of each kind of pass."""
    manager = CacheManager(on_change=lambda cluster, path: None)
    names = list(world.totals)

    async def ask(name: str) -> float:
        begin = time.perf_counter()
        await manager.grant(cluster="c", demand=world.demand(name), nodes=world.spaces, quotas={})
        return time.perf_counter() - begin

    demands = {name: world.demand(name) for name in names}
    manager.register(cluster="c", demands=demands.values())
    seconds = {"first": await ask(names[0])}
    seconds["nothing new"] = await ask(names[0])
    idle = next(name for name, demand in demands.items() if demand.tier.name != "ACTIVE")
    number = len(world.jobs)
    world.jobs["n", f"job-{number}"] = job(number, dataset=idle, active=True)
    seconds["a job began"] = await ask(idle)
    return {key: round(value, 4) for key, value in seconds.items()}


def main() -> int:
    """Measure, and compare with the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--limit", type=float, default=None, help="seconds that the first pass may take")
    options = parser.parse_args()
    world = World(datasets=options.datasets, jobs=options.jobs, nodes=options.nodes)
    seconds = asyncio.run(measured(world))
    sizes = {"datasets": options.datasets, "jobs": options.jobs, "nodes": options.nodes}
    print(json.dumps({"benchmark": "cache_manager", **sizes, "seconds": seconds}))
    return int(options.limit is not None and max(seconds.values()) > options.limit)


if __name__ == "__main__":
    sys.exit(main())
