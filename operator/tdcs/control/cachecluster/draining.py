"""Taking workers out of the cache: first what only they hold goes to the others, then they go.

The Datasets' controller does the moving: the status lists the worker as Draining, so it plans without it. That a
worker leaves, and since when, is an annotation of its StatefulSet, so a restart of the operator forgets nothing.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tdcs.api import names
from tdcs.api.cachecluster import CacheWorker
from tdcs.control.cachecluster import cleaning
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.control.context import Context
from tdcs.decide import leaving_workers
from tdcs.decide.cache.mount_standing import EPOCH
from tdcs.decide.leaving_workers import DrainStep, ScaleInInput
from tdcs.decide.node_departure import Departure, departure
from tdcs.engine.holder_table import table_seconds
from tdcs.model.cache_engine import EngineError, NoSuchWorkerError, WorkerInfo
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import STATEFUL_SETS


def node_of(worker_set: Object) -> str:
    return str((worker_set["metadata"].get("annotations") or {}).get(names.ANNOTATION_NODE, ""))


def since_when(worker_set: Object) -> str:
    """When a worker began to drain; empty when it does not."""
    return str((worker_set["metadata"].get("annotations") or {}).get(names.ANNOTATION_DRAINING, ""))


def asked_for_at(worker_set: Object) -> str:
    """When a worker was last asked for: made, or wanted again after it had begun to leave."""
    metadata = worker_set["metadata"]
    again = str((metadata.get("annotations") or {}).get(names.ANNOTATION_WANTED, ""))
    return max(again, str(metadata.get("creationTimestamp") or EPOCH))


def is_leaving(worker_set: Object) -> bool:
    """Whether a worker has begun to leave: it drains, or had nothing to hand over and ends."""
    return bool(since_when(worker_set)) or worker_set["spec"].get("replicas", 1) == 0


RETIRE_SECONDS = 10.0
"""How long a pass waits for a worker to be taken out of service."""


def is_dead(worker_set: Object, info: WorkerInfo | None) -> bool:
    """Whether no worker answers on a node. An operator that has just started does not know all workers yet, so one
    that it does not know counts while its pod is ready."""
    if info is None:
        return not (worker_set.get("status") or {}).get("readyReplicas")
    return not info.live


def cut_off(
    workers: Iterable[CacheWorker], *, present: Collection[str], nodes: Mapping[tuple[str, str], Object]
) -> list[CacheWorker]:
    """The workers that drained, as the status says, without a StatefulSet now: somebody has deleted it.

    Args:
        workers: those that the status lists.
        present: nodes that have, or shall have, a StatefulSet.
    """
    return [
        worker
        for worker in workers
        if worker.state == "Draining" and worker.node not in present and ("", worker.node) in nodes
    ]


class HeldSince:
    """For how long something has held of places without a break."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}

    def seconds(self, place: tuple[str, str], *, holds: bool) -> float:
        """It holds of this place now, or does not; gives for how long it has."""
        if not holds:
            self._since.pop(place, None)
            return 0.0
        now = self._clock()
        return now - self._since.setdefault(place, now)

    def drop_nodes(self, cluster: str, *, but: Collection[str] = ()) -> None:
        """Places of a cluster are gone, all but these nodes."""
        for place in [key for key in self._since if key[0] == cluster and key[1] not in but]:
            del self._since[place]


class Drain:
    """The workers that leave a cache cluster in one pass.

    Args:
        staying: the nodes that shall have a worker.
        holdings: what is where.
        workers: what the engine knows of the workers; None when it does not answer.
        dead: seconds for which no worker has answered on a node, by node.
        drained: for how long nothing has been left to move away from nodes.
    """

    def __init__(
        self,
        *,
        context: Context,
        plan: Blueprint,
        staying: Collection[str],
        holdings: ScaleInInput,
        workers: Sequence[WorkerInfo] | None,
        dead: Mapping[str, float],
        drained: HeldSince,
    ) -> None:
        self._drained = drained
        self._context = context
        self._plan = plan
        self._staying = frozenset(staying)
        self._holdings = holdings
        self._dead = dead
        self._workers: Mapping[str, WorkerInfo] | None = (
            None if workers is None else {worker.name: worker for worker in workers}
        )

    async def proceed(self, worker_sets: Sequence[Object]) -> list[CacheWorker]:
        """One step for each worker that is not wanted any more; gives those that are still there."""
        leaving = frozenset(node_of(worker_set) for worker_set in worker_sets)
        self._drained.drop_nodes(self._plan.cluster, but=leaving)
        workers = []
        for worker_set in worker_sets:
            last_copy_bytes = leaving_workers.remaining(
                node=node_of(worker_set), draining=leaving, mounts=self._holdings.mounts
            )
            if await self._may_go(
                worker_set, leaving=leaving, last_copy_bytes=last_copy_bytes
            ) and await cleaning.remove_worker(
                context=self._context, plan=self._plan, worker_set=worker_set, views_too=False
            ):
                continue
            workers.append(self._described(node_of(worker_set), last_copy_bytes=last_copy_bytes))
        return workers

    async def stay(self, worker_set: Object) -> None:
        """A worker that drained is wanted again."""
        if not since_when(worker_set):
            return
        marks = {names.ANNOTATION_DRAINING: None, names.ANNOTATION_WANTED: self._context.now()}
        patch: Object = {"metadata": {"annotations": marks}}
        info = (self._workers or {}).get(node_of(worker_set))
        retired = info is not None and not info.live
        if retired and worker_set["spec"].get("replicas", 1):
            # It was retired already, and only a new process registers again.
            again = {names.ANNOTATION_RESTARTED: self._context.now()}
            patch["spec"] = {"template": {"metadata": {"annotations": again}}}
        await self._merge(worker_set, patch)
        goes_on = "starts again, after it was drained" if retired else "stays"
        text = f"the worker of node {node_of(worker_set)} {goes_on}: it is wanted again"
        await self._tell(reason="DrainCancelled", message=text)

    async def _may_go(self, worker_set: Object, *, leaving: frozenset[str], last_copy_bytes: int) -> bool:
        node, timeout = node_of(worker_set), self._plan.spec.scaling.drain_timeout
        goes = leaving_workers.goes_without_drain(
            is_ending=worker_set["spec"].get("replicas", 1) == 0
            or bool(worker_set["metadata"].get("deletionTimestamp")),
            has_node=("", node) in self._context.stores.nodes,
            dead_for=self._dead.get(node),
            return_seconds=self._context.settings.return_seconds,
        )
        if goes is not None:
            return goes
        drained = self._workers is not None and leaving_workers.is_drained(
            node=node, draining=leaving, staying=self._staying, holdings=self._holdings
        )
        drained_for = self._drained.seconds((self._plan.cluster, node), holds=drained)
        step = leaving_workers.drain_step(
            began=since_when(worker_set),
            timeout=timeout,
            drained_for=drained_for if drained else None,
            handover_seconds=self._handover_seconds(node),
            now=self._context.now(),
        )
        leaves = self._departure(node)
        if step is DrainStep.BEGIN:
            await self._begin(worker_set, leaving=leaving, why=leaves.why if leaves is not None else "")
        if leaves is not None and leaves.may_return:
            return False  # what it holds is on its disk, and is used again should the node be back
        late = step is DrainStep.TIME_OUT
        if not (late or step is DrainStep.FINISH) or not await self._retired(node, forced=late):
            return False
        hurt = sum(len(mount.readers) for mount in self._holdings.mounts if mount.bytes_on(node))
        text = leaving_workers.farewell(
            node=node, lost=last_copy_bytes, readers=hurt, timeout=timeout if late else ""
        )
        await self._tell(
            reason="DataLeftBehind" if last_copy_bytes else "Drained", message=text, warn=last_copy_bytes > 0
        )
        return True

    def _handover_seconds(self, node: str) -> float:
        """How long readers may ask a node for what is elsewhere by now."""
        if not any(mount.bytes_on(node) for mount in self._holdings.mounts):
            return 0.0
        return self._context.settings.handover_seconds * table_seconds(len(self._workers or ()))

    def _departure(self, node: str) -> Departure | None:
        live = self._context.stores.nodes.get(("", node))
        return departure(live) if live is not None else None

    async def _begin(self, worker_set: Object, *, leaving: frozenset[str], why: str) -> None:
        annotations = {names.ANNOTATION_DRAINING: self._context.now()}
        await self._merge(worker_set, {"metadata": {"annotations": annotations}})
        if self._workers is not None:
            text = leaving_workers.forecast(
                node=node_of(worker_set), draining=leaving, holdings=self._holdings, why=why
            )
            await self._tell(reason="Draining", message=text)

    async def _retired(self, node: str, *, forced: bool) -> bool:
        try:
            async with asyncio.timeout(RETIRE_SECONDS):
                await self._context.caches.get(cluster=self._plan.cluster).engine.retire(worker=node)
        except NoSuchWorkerError:
            return True
        except (EngineError, TimeoutError):
            return forced  # the cache does not answer: it will, or the time is over
        return True

    def _described(self, node: str, *, last_copy_bytes: int) -> CacheWorker:
        info = (self._workers or {}).get(node)
        return CacheWorker(
            node=node,
            state="Draining",
            capacity_bytes=info.capacity_bytes if info else 0,
            used_bytes=info.used_bytes if info else 0,
            last_copy_bytes=last_copy_bytes,
            target=info.target if info and info.target else None,
        )

    async def _merge(self, worker_set: Object, patch: Object) -> None:
        metadata = worker_set["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        await self._context.api.merge(STATEFUL_SETS, name=name, namespace=namespace, patch=patch)

    async def _tell(self, *, reason: str, message: str, warn: bool = False) -> None:
        await self._context.recorder.record(
            about=self._plan.owner, reason=reason, message=message, type_="Warning" if warn else "Normal"
        )
