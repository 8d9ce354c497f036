"""The operator's answer to readers and node plugins: which agents hold the slots of a mount, and what is mounted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from aiohttp import web

from tdcs.engine.holder_table import (
    HOLDERS_PATH,
    LEAST_SECONDS,
    MOUNTS_PATH,
    ClusterMounts,
    HolderTable,
    table_of,
    table_seconds,
)
from tdcs.model.agent_state import AgentState
from tdcs.model.nearness import Place

MOST_WAIT_SECONDS: Final = 60.0


class KnownAgents(NamedTuple):
    """The last states of the agents of a cache cluster, and what is mounted there.

    Attributes:
        mounts: paths and versions of the mounts, empty for those that were not listed; None while that is not known.
    """

    states: Mapping[str, AgentState] = {}
    mounts: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Where nodes are.

    Attributes:
        place: of a node by its name.
        zone: the level of zones in a place; negative: places have none.
    """

    place: Callable[[str], Place]
    zone: int


NO_TOPOLOGY: Final = Topology(place=lambda _: (), zone=-1)
"""Of nothing but which node is which."""


Known = Callable[[str], KnownAgents]
"""The agents of a cache cluster; none of an unknown one."""


class HolderTables:
    """Tables by cluster and mount, each made at most once a second however many readers ask."""

    def __init__(
        self,
        agents_of: Known,
        *,
        topology: Topology = NO_TOPOLOGY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agents_of: Final = agents_of
        self._topology: Final = topology
        self._clock: Final = clock
        self._tables: dict[tuple[str, str], tuple[float, HolderTable]] = {}

    def get(self, *, cluster: str, mount: str) -> HolderTable:
        """The table as it is now, or was a moment ago."""
        now = self._clock()
        until, table = self._tables.get((cluster, mount), (0.0, HolderTable()))
        if now >= until:
            agents = self._agents_of(cluster)
            table = table_of(
                agents.states,
                mount=mount,
                place=self._topology.place,
                zone=self._topology.zone,
            )
            pause = table_seconds(len(table.holders))
            self._tables = {
                key: entry for key, entry in self._tables.items() if now < entry[0] + MOST_WAIT_SECONDS
            }
            self._tables[cluster, mount] = (now + pause, table)
        return table

    async def after(self, revision: int, *, cluster: str, mount: str, wait_seconds: float) -> HolderTable:
        """The table as soon as it has another revision, or after so many seconds."""
        until = self._clock() + wait_seconds
        while True:
            table = self.get(cluster=cluster, mount=mount)
            seconds_left = until - self._clock()
            if table.revision != revision or seconds_left <= 0:
                return table
            await asyncio.sleep(min(LEAST_SECONDS, seconds_left))


def holder_routes(agents_of: Known, *, topology: Topology = NO_TOPOLOGY) -> list[web.RouteDef]:
    tables = HolderTables(agents_of, topology=topology)

    async def get(request: web.Request) -> web.Response:
        try:
            revision = int(request.query.get("revision", "-1"))
            wait = min(float(request.query.get("wait", "0")), MOST_WAIT_SECONDS)
        except ValueError as error:
            raise web.HTTPBadRequest(text="revision and wait are numbers\n") from error
        table = await tables.after(
            revision,
            cluster=request.match_info["cluster"],
            mount=request.query.get("mount", ""),
            wait_seconds=wait,
        )
        place = topology.place(request.query.get("node", ""))
        table = msgspec.structs.replace(table, here=place)
        return web.Response(body=msgspec.msgpack.encode(table), content_type="application/msgpack")

    async def mounts(request: web.Request) -> web.Response:
        agents = agents_of(request.match_info["cluster"])
        if agents.mounts is None:
            raise web.HTTPServiceUnavailable(text="it is not known here yet what is mounted there\n")
        answer = ClusterMounts(versions=dict(agents.mounts))
        return web.Response(body=msgspec.msgpack.encode(answer), content_type="application/msgpack")

    return [web.get(HOLDERS_PATH + "{cluster}", get), web.get(MOUNTS_PATH + "{cluster}", mounts)]
