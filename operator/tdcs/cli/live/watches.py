"""Follows what the views show, with the rights of whoever looks: what may not be read of all namespaces is read of one,
and what may not be read at all is said."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tdcs.api import names
from tdcs.cli.explain.live_pods import kept_pod
from tdcs.cli.live.document import LiveObjects, trimmed_node
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ForbiddenError, KubeError, NotFoundError
from tdcs.kube.informer import Informer
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    NAMESPACES,
    NODES,
    PODS,
    PRELOADS,
    TRAINING_JOBS,
    Resource,
)

_log: Final = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.2
"""Changes come together for so long: pods come and go in bursts."""

ASK_AGAIN_SECONDS: Final = 30.0
"""How soon what may not be read, or is not installed, is asked for again."""

CONTACT_SECONDS: Final = 3.0
"""How often the API server is asked whether it is there: a watch that says nothing may be one that is broken."""

KINDS: Final[tuple[tuple[Resource, Callable[[Object], Object] | None], ...]] = (
    (NODES, trimmed_node),
    (PODS, kept_pod),
    (CACHE_CLUSTERS, None),
    (DATASETS, None),
    (PRELOADS, None),
    (TRAINING_JOBS, None),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contact:
    """Whether the API server answers: since when it does not (Unix seconds; 0: it does), and what was said instead."""

    lost_since: float = 0.0
    problem: str = ""


class Watches:
    """Live views of all kinds.

    Args:
        api: as whoever looks.
        namespace: the only one to look at; None: all that may be read, else `fallback`.
        fallback: the namespace for those who may not read all.
        on_change: called when anything changed; must not block.
    """

    def __init__(
        self, *, api: KubeApi, namespace: str | None, fallback: str, on_change: Callable[[], None]
    ) -> None:
        self._api: Final = api
        self._namespace: Final = namespace
        self._fallback: Final = fallback
        self._on_change: Final = on_change
        self._informers: Final[dict[Resource, Informer]] = {}
        self._limits: Final[dict[str, str]] = {}
        self._settled: Final = {resource: asyncio.Event() for resource, _ in KINDS}
        self.contact = Contact()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_contact())
            for resource, keep in KINDS:
                group.create_task(self._follow(resource, keep))

    async def settled(self) -> None:
        """Until of each kind its objects are known, or why they cannot be."""
        for event in self._settled.values():
            await event.wait()

    def is_settled(self) -> bool:
        """Whether of each kind its objects are known, or why they cannot be."""
        return all(event.is_set() for event in self._settled.values())

    def world(self) -> LiveObjects:
        pods = self._stored(PODS)
        revoked = {
            resource.plural: f"you may not list {resource.plural} any more; what is shown is old"
            for resource, informer in self._informers.items()
            if isinstance(informer.problem, ForbiddenError)
        }
        return LiveObjects(
            nodes=self._stored(NODES),
            pods=None if pods is None else [pod["row"] for pod in pods],
            clusters=self._stored(CACHE_CLUSTERS) or (),
            datasets=self._stored(DATASETS) or (),
            preloads=self._stored(PRELOADS) or (),
            jobs=self._stored(TRAINING_JOBS) or (),
            limits={**self._limits, **revoked},
        )

    def _stored(self, resource: Resource) -> list[Object] | None:
        informer = self._informers.get(resource)
        return None if informer is None else list(informer.store.values())

    async def _follow(self, resource: Resource, keep: Callable[[Object], Object] | None) -> None:
        while True:
            informer = None
            for scope in self._scopes(resource):
                informer = await self._begin(resource, keep, scope)
                if informer is not None:
                    break
            if informer is None:
                self._settle(resource)
                await asyncio.sleep(ASK_AGAIN_SECONDS)
                continue
            self._informers[resource] = informer
            async with asyncio.TaskGroup() as group:
                group.create_task(self._settle_once_listed(resource, informer))
                group.create_task(informer.run())

    def _scopes(self, resource: Resource) -> list[str | None]:
        """The namespaces to ask for in turn, until one may be read; None is all."""
        if not resource.namespaced:
            return [None]
        if resource is CACHE_CLUSTERS:  # they live in the release's, whichever is looked at
            return [None, names.SYSTEM_NAMESPACE]
        return [self._namespace] if self._namespace else [None, self._fallback]

    async def _settle_once_listed(self, resource: Resource, informer: Informer) -> None:
        await informer.synced.wait()
        self._settle(resource)

    def _settle(self, resource: Resource) -> None:
        self._settled[resource].set()
        self._on_change()

    async def _begin(
        self, resource: Resource, keep: Callable[[Object], Object] | None, scope: str | None
    ) -> Informer | None:
        """An informer of this scope if it may be read; else the reason is noted."""
        while True:
            try:
                await self._api.list(resource, namespace=scope, fields="metadata.name=tdcs-may-i")
            except ForbiddenError:
                self._limits[resource.plural] = f"you may not list {resource.plural}"
                return None
            except NotFoundError:
                self._limits[resource.plural] = (
                    f"the cluster does not know {resource.kind}s: TDCS is not installed"
                )
                return None
            except KubeError as error:
                _log.info("%s", error)
                await asyncio.sleep(CONTACT_SECONDS)
            else:
                break
        self._limits.pop(resource.plural, None)
        if scope is not None and self._namespace is None and resource is not CACHE_CLUSTERS:
            self._limits[resource.plural] = f"you may list {resource.plural} of namespace {scope} only"
        return Informer(
            api=self._api,
            resource=resource,
            namespace=scope,
            keep=keep,
            on_change=lambda *_: self._on_change(),
            gather=GATHER_SECONDS,
        )

    async def _keep_contact(self) -> None:
        while True:
            now = Contact()
            try:
                await self._api.get(NAMESPACES, name="default")
            except ForbiddenError:
                pass  # an answer all the same
            except KubeError as error:
                now = Contact(lost_since=self.contact.lost_since or time.time(), problem=str(error))
            if now != self.contact:
                self.contact = now
                self._on_change()
            await asyncio.sleep(CONTACT_SECONDS)
