"""The engines of all cache clusters, made when they are first asked for."""

from collections.abc import Callable

from tdcs.api import names
from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.protocol import Engine

PATIENCE = 5.0
"""Seconds that one engine call waits for a master that is away; then the pass reports it and comes again."""


class EnginePool:
    """One engine a cache cluster."""

    def __init__(self, *, make: Callable[[str], Engine]) -> None:
        self._make = make
        self._engines: dict[str, Engine] = {}

    def get(self, *, cluster: str) -> Engine:
        """The engine of this cache cluster; the same object each time."""
        if cluster not in self._engines:
            self._engines[cluster] = self._make(cluster)
        return self._engines[cluster]

    async def close(self) -> None:
        """Close all of them."""
        for engine in self._engines.values():
            await engine.close()


def alluxio_engines(*, namespace: str) -> EnginePool:
    """Engines that talk to the masters of the cache clusters in this namespace."""

    def make(cluster: str) -> Engine:
        return AlluxioEngine(
            master=names.master_address(cluster=cluster, namespace=namespace), patience=PATIENCE
        )

    return EnginePool(make=make)
