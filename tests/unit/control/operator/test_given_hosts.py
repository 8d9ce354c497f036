"""Given certificates must have the names at which the processes of each cache cluster are reached."""

from __future__ import annotations

import datetime

import pytest
from tests.support.certificates import DAY, LOCAL, TestAuthority
from tests.unit.control.operator.test_certificates import OWNER, World

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.conditions import Finding
from tdcs.control.cachecluster import cache_certificates
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.trust.roles import Role
from tdcs.trust.settings import Provider, TrustSettings

NAMESPACE = "tdcs-system"
OF_DEFAULT: dict[Role, tuple[str, ...]] = {
    Role.OPERATOR: (),
    Role.READER: (),
    Role.MASTER: (*LOCAL, "default-master-0.default-master.tdcs-system.svc"),
    Role.WORKER: (*LOCAL, "*.default-workers.tdcs-system.svc"),
    Role.AGENT: (*LOCAL, "*.default-workers.tdcs-system.svc"),
}


async def trusted(
    hosts: dict[Role, tuple[str, ...]], *, cluster: str = "default", provider: Provider = "certManager"
) -> Finding:
    """What a cache cluster with two nodes says of certificates with these names."""
    world, authority = World(provider), TestAuthority()
    world.time = datetime.datetime.now(datetime.UTC)
    for role, hostnames in hosts.items():
        identity = authority.identity(role, hosts=hostnames, until=world.time + 50 * DAY)
        world.give(f"tdcs-trust-{role}", identity)
    owner = {**OWNER, "metadata": {"name": cluster, "uid": f"uid-of-{cluster}"}}
    settings = TrustSettings(provider=provider, prefix="tdcs-trust")
    plan = Blueprint(
        owner=owner,
        spec=CacheClusterSpec(),
        namespace=NAMESPACE,
        image="alluxio:1",
        agent_image="tdcs:1",
        trust=settings,
    )
    subjects = cache_certificates.subjects(plan, nodes=["a", "b"], fuse=False)
    return await world.certificates.provide(owner=owner, subjects=subjects)


@pytest.mark.parametrize("provider", ["certManager", "existing"])
async def test_certificates_with_the_names_of_a_cluster_are_valid(provider: Provider) -> None:
    condition = await trusted(OF_DEFAULT, provider=provider)
    assert (condition.status, condition.reason) == ("True", "CertificatesValid")


async def test_a_cluster_that_the_chart_does_not_name_is_said_with_the_value_to_change() -> None:
    condition = await trusted(OF_DEFAULT, cluster="second")
    assert (condition.status, condition.reason) == ("False", "CertificatesNotReady")
    assert "second-master-0.second-master.tdcs-system.svc" in condition.message
    assert "trust.certManager.cacheClusters" in condition.message
    assert "Secret tdcs-trust-worker" in condition.message
    assert "Secret tdcs-trust-agent" in condition.message


async def test_the_name_that_a_certificate_of_the_users_lacks_is_said() -> None:
    condition = await trusted(OF_DEFAULT, cluster="second", provider="existing")
    assert condition.status == "False"
    assert "*.second-workers.tdcs-system.svc" in condition.message
    assert "cacheClusters" not in condition.message


async def test_the_names_of_every_node_are_looked_for() -> None:
    for left_out in ("a", "b"):
        host = {
            node: names.worker_host(cluster="default", node=node, namespace=NAMESPACE) for node in ("a", "b")
        }
        remaining = tuple(name for node, name in host.items() if node != left_out)
        condition = await trusted({**OF_DEFAULT, Role.AGENT: (*LOCAL, *remaining)}, provider="existing")
        assert condition.status == "False"
        assert host[left_out] in condition.message
        assert not any(name in condition.message for name in remaining)


@pytest.mark.parametrize(
    "worker",
    [
        (*LOCAL, "*.tdcs-system.svc"),  # stands for one label only
        (*LOCAL, "default-workers.tdcs-system.svc"),
        ("*.default-workers.tdcs-system.svc",),  # its agent reaches it at 127.0.0.1
        ("*.default-workers.tdcs-system.svc", "localhost"),
    ],
)
async def test_a_name_that_stands_for_something_else_is_not_enough(worker: tuple[str, ...]) -> None:
    condition = await trusted({**OF_DEFAULT, Role.WORKER: worker}, provider="existing")
    assert (condition.status, condition.reason) == ("False", "CertificatesNotReady")


async def test_names_in_capitals_and_without_localhost_are_enough_as_tls_takes_them() -> None:
    worker = ("127.0.0.1", "*.DEFAULT-workers.tdcs-system.svc")
    master = ("default-master-0.default-master.tdcs-system.svc",)
    condition = await trusted({**OF_DEFAULT, Role.WORKER: worker, Role.MASTER: master}, provider="existing")
    assert condition.status == "True"
