"""The operator in a thread of the test, on a real API server, with an engine that the test can look into."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry
from tests.support.caches import MemoryCaches, caches_of
from tests.support.twins.engine import MemoryEngine, Operation
from tests.support.waiting import eventually_async

from tdcs.control.context import Settings
from tdcs.control.operator import kopf_adapter
from tdcs.control.operator.operator import Operator
from tdcs.control.operator.scaler_service import serve_scaler
from tdcs.kube.client import KubernetesClient
from tdcs.kube.configuration import ApiAccess, load_access
from tdcs.model.kube_resources import Resource

AGENTS: WeakKeyDictionary[MemoryEngine, MemoryCaches] = WeakKeyDictionary()
"""Agents outlive operators, as they do on nodes."""


class CountingApi(KubernetesClient):
    """Counts the requests that could change something."""

    def __init__(self, *, access: ApiAccess, killed_after: int | None = None) -> None:
        super().__init__(access=access)
        self.writes: list[str] = []
        self.last_write = time.monotonic()
        self.killed = threading.Event()
        self._killed_after = killed_after

    async def _ask(self, method: str, verb: str, resource: Resource, **more: Any) -> Any:
        if self.killed.is_set():
            await asyncio.Event().wait()  # a dead process neither asks nor hears any more
        if method == "GET":
            return await super()._ask(method, verb, resource, **more)
        self.last_write = time.monotonic()
        self.writes.append(f"{verb} {resource.kind} {more.get('namespace')}/{more.get('name')}")
        last = self._killed_after is not None and len(self.writes) >= self._killed_after
        if not last:
            return await super()._ask(method, verb, resource, **more)
        # The write reaches the server, and its answer reaches nobody.
        self.killed.set()
        await super()._ask(method, verb, resource, **more)
        return await asyncio.Event().wait()


class RunningOperator:
    """An operator with kopf around it, in its own thread and event loop; a context manager.

    Args:
        killed_after: the number of the write after which it does nothing any more, as if it had been killed.
        gang_patience: seconds that the pods of a gang have to find their places.
        kueue: whether Kueue decides about jobs that name a queue.
        scaler_port: at which it serves KEDA's external scaler on loopback; 0: it does not.
        settings: further ones of the operator.

    Attributes:
        engine: outlives the operator, as a cache does.
        registry: its metrics, once it has begun.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path,
        engine: MemoryEngine,
        namespace: str,
        killed_after: int | None = None,
        gang_patience: float = 60.0,
        kueue: bool = False,
        scaler_port: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = settings or {}
        self._kueue = kueue
        self._gang_patience = gang_patience
        self._scaler_port = scaler_port
        self._killed_after = killed_after
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self.engine = engine
        self._api: CountingApi | None = None
        self.registry: CollectorRegistry | None = None
        self.failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self.failure is not None and error is None:
            raise self.failure

    @property
    def writes(self) -> list[str]:
        """What was written to the API server so far."""
        return self._api.writes if self._api else []

    @property
    def killed(self) -> bool:
        """Whether the write after which it was to die has been made."""
        return self._api is not None and self._api.killed.is_set()

    def idle_seconds(self) -> float:
        """Seconds since the operator last wrote; 0 before it has started."""
        return time.monotonic() - self._api.last_write if self._api else 0.0

    def stop(self) -> None:
        """Stop in order, as on SIGTERM."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=30)
        if self._thread.is_alive():
            raise AssertionError("the operator did not stop within 30 s")

    def _run(self) -> None:
        try:
            asyncio.run(self._operate())
        except BaseException as error:  # told to the test by __exit__
            self.failure = error

    async def _operate(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        access = await load_access(kubeconfig=self._kubeconfig)
        api = self._api = CountingApi(access=access, killed_after=self._killed_after)
        settings = Settings(
            namespace=self._namespace,
            image="tdcs/alluxio:test",
            poll_seconds=0.5,
            progress_seconds=0.2,
            survey_seconds=2.0,
            return_seconds=0.5,
            learning_seconds=0.5,
            handover_seconds=0.5,
            gang_patience_seconds=self._gang_patience,
            kueue=self._kueue,
            **self._settings,
        )
        caches = caches_of(self.engine, AGENTS)
        caches.resume()
        operator = Operator(api=api, caches=lambda _: caches, settings=settings)
        self.registry = operator.metrics.registry
        try:
            async with serve_scaler(operator.context.stores, port=self._scaler_port, host="127.0.0.1"):
                await kopf_adapter.run(operator=operator, access=access, stop=self._stop)
        finally:
            await caches.pause()


class Gate:
    """Holds one kind of an engine's operations back while it is closed: what a test wants to see lasts until it has.

    Args:
        engine: its `before` hook is taken.
        operation: such as "put" or "copy".
        free: so many blocks pass a closed gate.

    Attributes:
        open: cleared, the gate is closed; it begins open.
    """

    def __init__(self, engine: MemoryEngine, *, operation: str, free: int = 0) -> None:
        self.open = threading.Event()
        self.open.set()
        self._operation = operation
        self._free = free
        self._numbers = itertools.count()
        engine.before = self._pass

    async def _pass(self, operation: Operation) -> None:
        # A portion is announced as a whole, without a length, and then block by block.
        if operation.name == self._operation and operation.length and next(self._numbers) >= self._free:
            await eventually_async(self.open.is_set, deadline=300)


def paced_engine(
    *,
    sources: Mapping[str, Mapping[str, int]],
    workers: Mapping[str, int],
    seconds_per_block: float = 0.0,
    block_size: int = 64 * 1024 * 1024,
) -> MemoryEngine:
    """An engine whose blocks take a while to load."""

    async def pace(operation: Operation) -> None:
        if operation.name == "put" and seconds_per_block:
            await asyncio.sleep(seconds_per_block)

    return MemoryEngine(sources=sources, workers=workers, before=pace, block_size=block_size)
