"""The networks of the cluster: of pods and nodes, as its nodes say, of Services, where the API server names them
(Kubernetes 1.33 and newer, or with its beta version), and those of the settings."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from tdcs.control.context import Settings, Store
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ForbiddenError, KubeError, NotFoundError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import SERVICE_CIDRS, SERVICE_CIDRS_BETA

_log: Final = logging.getLogger(__name__)

FRESH_SECONDS: Final = 10.0
"""The networks of Services are read again after so long."""


class ClusterNetworks:
    """The cluster's networks. Those of Services are read again and again: a cluster can be given more of them at any
    time.

    Args:
        settings: name networks, and addresses of the API server.
        nodes: a live view of the cluster's nodes.

    Attributes:
        texts: the networks of Services, as they were read last.
    """

    def __init__(self, *, api: KubeApi, settings: Settings, nodes: Store) -> None:
        self._api: Final = api
        self._nodes: Final = nodes
        self._settings: Final = settings
        self._is_warned = False
        self.texts: tuple[str, ...] = ()

    @property
    def services_known(self) -> bool:
        return bool(self._settings.internal_networks or self.texts)

    def all(self) -> tuple[str, ...]:
        """All networks and addresses that are the cluster's now, as texts."""
        named = (*self._settings.internal_networks, *self._settings.api_server_addresses, *self.texts)
        return (*named, *self._of_nodes())

    def _of_nodes(self) -> Iterator[str]:
        for node in self._nodes.values():
            spec, status = node.get("spec") or {}, node.get("status") or {}
            yield from (str(cidr) for cidr in spec.get("podCIDRs") or [spec.get("podCIDR")] if cidr)
            for address in status.get("addresses") or ():
                if address.get("type") in {"InternalIP", "ExternalIP"}:
                    yield str(address.get("address"))

    async def read(self) -> None:
        """Read them now. Those that were read last count where the API server names none; raises KubeError when it does
        not answer."""
        try:
            service_cidrs = await self._listed()
        except (NotFoundError, ForbiddenError) as error:
            if not self._is_warned:
                _log.warning(
                    "the networks of Services are not known: %s; name them (internalNetworks)", error
                )
            self._is_warned = True
            return
        self.texts = tuple(
            str(cidr)
            for service_cidr in service_cidrs
            for cidr in (service_cidr.get("spec") or {}).get("cidrs") or ()
        )

    async def _listed(self) -> list[Object]:
        try:
            return (await self._api.list(SERVICE_CIDRS)).items
        except NotFoundError:
            return (await self._api.list(SERVICE_CIDRS_BETA)).items

    async def follow(self) -> None:
        """Read them until cancelled; while the API server is away those that were read last count."""
        while True:
            await asyncio.sleep(FRESH_SECONDS)
            try:
                await self.read()
            except KubeError as error:
                _log.info("the networks of Services cannot be read: %s; it is tried again", error)
