"""One resource of several namespaces as one view, for an operator that may not look into all of them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tdcs.kube.api import KubeApi
from tdcs.kube.errors import KubeError
from tdcs.kube.informer import Informer
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import Resource


class InformerSet:
    """An `Informer` for each namespace, all over one `store`.

    Args:
        namespaces: in which the resource is followed; None among them: in all.
        store: where the objects are kept; a new one when it is not given.
        options: as for `Informer`.

    Attributes:
        store: the objects by (namespace, name). Read only.
    """

    def __init__(
        self,
        *,
        api: KubeApi,
        resource: Resource,
        namespaces: Sequence[str | None] = (None,),
        store: dict[Key, Object] | None = None,
        **options: Any,
    ) -> None:
        self.store: dict[Key, Object] = {} if store is None else store
        self._informers = [
            Informer(api=api, resource=resource, namespace=namespace, store=self.store, **options)
            for namespace in namespaces
        ]

    async def wait_synced(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()

    def silent_seconds(self) -> float:
        """As `Informer.silent_seconds`, of the namespace that has been silent for the longest."""
        return max(informer.silent_seconds() for informer in self._informers)

    def problem(self) -> KubeError | None:
        """Why the server was not heard when it was last asked about one of the namespaces; None when it was."""
        return next((informer.problem for informer in self._informers if informer.problem is not None), None)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
