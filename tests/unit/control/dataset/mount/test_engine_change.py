"""A cache cluster that is made anew with another engine has other agents."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.control.cache_registry import Cache, CachePool
from tdcs.listing.folder import ManifestFolder
from tdcs.model.agent_state import AgentError, AgentState, Assignment
from tdcs.model.kube_resources import CACHE_CLUSTERS

PATH = "/datasets/1"


class OneAgent:
    """One agent, on node `a`."""

    def __init__(self) -> None:
        self.broken = False
        self.asked = 0
        self.assigned: list[str] = []

    def states(self) -> Mapping[str, AgentState]:
        return {"a": AgentState(node="a", instance="1", revision=1)}

    async def assign(self, *, node: str, assignments: Sequence[Assignment]) -> None:
        self.asked += 1
        if self.broken:
            raise AgentError(f"the agent of {node} does not answer", node=node)
        self.assigned += [each.mount for each in assignments]


async def test_the_agents_of_a_cluster_that_was_made_anew_with_another_engine_get_its_assignments(
    tmp_path: Path,
) -> None:
    earlier, later = OneAgent(), OneAgent()

    def cache(agents: OneAgent) -> Cache:
        given: Any = {"engine": MemoryEngine(sources={}, workers={}), "agents": agents, "lister": None}
        return Cache(**given)

    pool = CachePool(
        make=lambda _: cache(later),
        make_native=lambda _cluster, _objects: cache(earlier),
        folder=ManifestFolder(tmp_path),
    )
    async with Cluster(engine=cast(MemoryEngine, None), nodes={}, caches=pool) as cluster:
        clusters = cluster.server.store(CACHE_CLUSTERS)
        wanted = {"a": Assignment(mount=PATH, version=0, manifest="m")}
        place = (QUICK.namespace, "c")
        clusters[place] = {"metadata": {"name": "c"}, "spec": {"engine": "Native"}}
        before = cluster.mounts.assigner("c")
        assert cluster.mounts.assigner("c") is before
        before.put(path=PATH, assignments=wanted)
        await eventually_async(lambda: earlier.assigned == [PATH], deadline=60)
        earlier.broken = True
        before.put(path=PATH, assignments={"a": Assignment(mount=PATH, version=0, manifest="another")})
        await eventually_async(lambda: earlier.asked >= 2, deadline=60)
        del clusters[place]
        assert cluster.mounts.assigner("c") is before, "until it is there again it may be the same one"

        clusters[place] = {"metadata": {"name": "c"}, "spec": {"engine": "Alluxio"}}
        cluster.mounts.assigner("c").put(path=PATH, assignments=wanted)

        await eventually_async(lambda: later.assigned == [PATH], deadline=60)
        asked = earlier.asked
        await asyncio.sleep(0.2)  # several tries, if there were any
        assert earlier.asked == asked
