"""Operators that are killed with a write of theirs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from tests.unit.control.cluster import Cluster

from tdcs.model.kube_resources import Resource


class Killer:
    """Ends the operator with its write of a number: the write reaches the server, its answer reaches nobody."""

    WRITES = ("create", "apply", "apply_status", "merge", "delete")

    def __init__(self, cluster: Cluster, *, after: int) -> None:
        self.dead = asyncio.Event()
        self._server, self._writes_left = cluster.server, after
        self._real = {name: getattr(cluster.server, name) for name in self.WRITES}
        for name in self.WRITES:
            setattr(cluster.server, name, partial(self._write, name))

    async def _write(self, verb: str, resource: Resource, /, **options: Any) -> Any:
        if not self.dead.is_set():
            answer = await self._real[verb](resource, **options)
            self._writes_left -= 1
            if self._writes_left > 0:
                return answer
            self.dead.set()
        return await asyncio.Event().wait()

    def release(self) -> None:
        """The next operator's writes are answered."""
        for name, real in self._real.items():
            setattr(self._server, name, real)
