"""The networks of Services are followed: a cluster can be given more of them while the operator runs."""

import asyncio
from typing import Any

import pytest
from tests.support.waiting import eventually_async
from tests.unit.control.server import Server
from tests.unit.kube.fake import error

from tdcs.control.context import Settings
from tdcs.control.dataset.access import cluster_networks as module
from tdcs.control.dataset.access.cluster_networks import ClusterNetworks
from tdcs.kube.api import ObjectList
from tdcs.kube.errors import ForbiddenError, KubeError, NotFoundError, UnavailableError
from tdcs.model.kube_resources import SERVICE_CIDRS, Resource


async def test_a_network_that_is_added_later_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH_SECONDS", 0.005)
    server = Server()
    server.store(SERVICE_CIDRS)["", "kubernetes"] = {"spec": {"cidrs": ["10.96.0.0/12", "fd00::/108"]}}
    networks = ClusterNetworks(api=server, settings=Settings(), nodes={})
    await networks.read()
    assert networks.texts == ("10.96.0.0/12", "fd00::/108")
    task = asyncio.create_task(networks.follow())
    server.store(SERVICE_CIDRS)["", "more"] = {"spec": {"cidrs": ["172.31.0.0/16"]}}
    await eventually_async(lambda: "172.31.0.0/16" in networks.texts, deadline=20)
    task.cancel()


async def test_networks_that_only_the_beta_version_names_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    server.store(SERVICE_CIDRS)["", "kubernetes"] = {"spec": {"cidrs": ["10.96.0.0/12"]}}
    listed = server.list

    async def beta_only(resource: Resource, **more: Any) -> ObjectList:
        if resource.version == "v1":
            raise error(NotFoundError)
        return await listed(resource, **more)

    monkeypatch.setattr(server, "list", beta_only)
    networks = ClusterNetworks(api=server, settings=Settings(), nodes={})
    await networks.read()
    assert networks.texts == ("10.96.0.0/12",)


@pytest.mark.parametrize("reason", [NotFoundError, ForbiddenError, UnavailableError])
async def test_an_api_server_that_does_not_say_leaves_what_is_known(
    reason: type[KubeError], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FRESH_SECONDS", 0.001)
    server, requests = Server(), 0
    server.store(SERVICE_CIDRS)["", "kubernetes"] = {"spec": {"cidrs": ["10.96.0.0/12"]}}
    networks = ClusterNetworks(api=server, settings=Settings(), nodes={})
    await networks.read()

    async def fails(*_: object, **__: object) -> ObjectList:
        nonlocal requests
        requests += 1
        raise error(reason)

    monkeypatch.setattr(server, "list", fails)
    task = asyncio.create_task(networks.follow())
    await eventually_async(lambda: requests > 3, deadline=20)
    assert networks.texts == ("10.96.0.0/12",)
    assert not task.done()
    assert sum("internalNetworks" in text for text in caplog.messages) == (reason is not UnavailableError)
    task.cancel()
