"""What the operator makes of a cache is made under the chart's policies: with its own account's rights, by its code."""

from __future__ import annotations

import datetime
import operator
from functools import partial

import pytest
from tests.controlplane.operator_world import World, world
from tests.controlplane.rights.stolen_objects import job, metadata, owner
from tests.controlplane.rights.test_admission_operator import (
    Policies,
    policies,
    refusal,
    release,
    thief,
)
from tests.support.kube import Kube, Object

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.cachecluster import (
    cache_certificates,
    cache_children,
    cache_pods,
    cleaning,
    isolation_probe,
)
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.control.release_certificates import Certificates
from tdcs.kube.client import connect
from tdcs.trust.settings import TrustSettings

__all__ = ["policies", "release", "thief", "world"]

NODE = "node-a"


def blueprint(world: World, cluster: Object, settings: TrustSettings) -> Blueprint:
    return Blueprint(
        owner=cluster,
        spec=CacheClusterSpec(),
        namespace=world.namespace,
        image="x",
        agent_image="x",
        trust=settings,
    )


def objects_of(plan: Blueprint) -> list[Object]:
    """Every object of a cache but its certificates and the privileged FUSE clients."""
    worker = cache_children.worker(plan, node=NODE)
    worker_set = {"metadata": {**worker["metadata"], "uid": "x"}}
    return [
        cache_pods.config_map(plan),
        *cache_children.services(plan),
        cache_children.master(plan),
        worker,
        cleaning.job(plan, worker_set=worker_set, node=NODE, views_too=True),
        isolation_probe.job(plan, window=0),
    ]


@pytest.mark.threat("token-release-namespace")
async def test_the_operator_makes_a_cache_and_renews_its_certificates(
    world: World, release: str, thief: Kube, policies: Policies
) -> None:
    world.create_cluster()
    policies.enforce(job(metadata("kube-system", owner("TrainingJob"))), by=thief)
    cluster = world.kube.get("CacheCluster", world.cluster, namespace=world.namespace)
    settings = TrustSettings(provider="selfSigned", prefix=f"{release}-trust")
    plan = blueprint(world, cluster, settings)
    assert [answer for obj in objects_of(plan) if (answer := refusal(thief, world.kube, obj))] == []
    account = f"{release}-operator"
    api = await connect(
        kubeconfig=world.plane.kubeconfig_as(service_account=account, namespace=world.namespace)
    )
    subjects = cache_certificates.subjects(plan, nodes=[NODE], fuse=True)
    now = datetime.datetime.now(datetime.UTC)
    try:
        ends: list[dict[str, datetime.datetime]] = []
        for days in (0, 80):
            certificates = Certificates(
                api=api,
                namespace=world.namespace,
                settings=settings,
                now=partial(operator.add, now, datetime.timedelta(days=days)),
            )
            await certificates.provide(owner=cluster, subjects=subjects)
            finding = await certificates.provide(owner=cluster, subjects=subjects)
            assert finding.reason == "CertificatesValid", finding
            ends.append({name: end for name, _, end in certificates.ends()})
    finally:
        await api.close()
    assert subjects.keys() < ends[0].keys()
    assert all(ends[1][name] > ends[0][name] for name in subjects)
