"""Statuses and volumes that others wrote, and names that were used before: none of them opens another's data."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.attacks.unit.victim import (
    ATTACKER,
    MB,
    OWNER,
    cluster,
    forged,
    put_dataset,
    reason,
)
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.kube.events import utc_now
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS

__all__ = ["cluster"]


def victims_volume(cluster: Cluster, *, uid: str) -> Object:
    """A volume that leads to the victim's data and is the attacker's Dataset's by its name and labels."""
    planted = copy.deepcopy(
        cluster.server.store(PERSISTENT_VOLUMES)["", names.volume_name(namespace="n", dataset="pictures")]
    )
    metadata = planted["metadata"]
    metadata.update(name="tdcs.stranger.stolen", uid="planted", creationTimestamp=utc_now())
    metadata["labels"] |= {
        names.LABEL_DATASET_NAMESPACE: "stranger",
        names.LABEL_DATASET_NAME: "stolen",
        names.LABEL_DATASET_UID: uid,
    }
    planted["spec"]["claimRef"] = {"namespace": "stranger", "name": "stolen"}
    return planted


@pytest.mark.threat("forged-status")
async def test_a_forged_status_without_keys_reads_nothing(cluster: Cluster) -> None:
    await put_dataset(cluster, status=forged(cluster))
    await reason(cluster, {"SecretNotFound"})


@pytest.mark.threat("forged-status")
async def test_a_forged_status_with_wrong_keys_reads_nothing(cluster: Cluster) -> None:
    wrong = {"data": {"accessKeyId": "bWU=", "secretAccessKey": "d3Jvbmc="}}
    await put_dataset(cluster, status=forged(cluster), secret=wrong)
    await reason(cluster, {"SourceRefused", "KeysDiffer"})


@pytest.mark.threat("forged-status")
async def test_a_forged_status_survives_no_restart_of_the_operator(cluster: Cluster) -> None:
    await cluster.stop()
    wrong = {"data": {"accessKeyId": "bWU=", "secretAccessKey": "d3Jvbmc="}}
    await put_dataset(cluster, status=forged(cluster), secret=wrong)
    await cluster.start()
    await reason(cluster, {"SourceRefused", "KeysDiffer"})
    assert cluster.condition("Ready")["status"] == "True"


@pytest.mark.threat("forged-status")
async def test_a_forged_path_of_another_source_is_replaced_by_the_own_one(cluster: Cluster) -> None:
    cluster.engine.sources["s3://own"] = {"mine": MB}
    secret = dict(cluster.server.store(SECRETS)["n", "keys"])
    cluster.server.store(SECRETS)["stranger", "keys"] = secret
    victim = cluster.status()["mountPath"]
    await cluster.server.create(
        DATASETS,
        obj={
            "apiVersion": names.API_VERSION,
            "kind": "Dataset",
            "metadata": {"name": "stolen", "namespace": "stranger"},
            "spec": {"source": {"uri": "s3://own", "secretRef": {"name": "keys"}}},
            "status": forged(cluster),
        },
    )

    def leads_to() -> str:
        volume = cluster.server.store(PERSISTENT_VOLUMES).get(("", "tdcs.stranger.stolen"))
        return str(volume["spec"]["csi"]["volumeAttributes"]["path"]) if volume else ""

    await cluster.until(leads_to)
    assert leads_to() != victim
    assert cluster.engine.state.mounts[leads_to()].uri == "s3://own"


@pytest.mark.threat("namespace-made-again")
async def test_a_namespace_that_is_made_again_inherits_no_volume(cluster: Cluster) -> None:
    volume_name = names.volume_name(namespace="n", dataset="pictures")
    volume = copy.deepcopy(cluster.server.store(PERSISTENT_VOLUMES)["", volume_name])
    await cluster.stop()
    # The namespace went with its objects, finalizers taken away; the volume, which is in no namespace, stayed.
    for resource in (DATASETS, PERSISTENT_VOLUME_CLAIMS, SECRETS):
        cluster.server.store(resource).clear()
    volume["status"] = {"phase": "Released"}
    cluster.server.store(PERSISTENT_VOLUMES)["", volume_name] = volume
    await cluster.start()
    await cluster.create_keys(key="of-the-next-tenant")
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.condition("Ready").get("reason") in {"SourceRefused", "KeysDiffer"})
    assert ("", volume_name) not in cluster.server.store(PERSISTENT_VOLUMES)


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "unbound"])
@pytest.mark.parametrize("labelled", [True, False], ids=["another-uid", "no-uid"])
@pytest.mark.parametrize("keys", [False, True], ids=["no-keys", "wrong-keys"])
@pytest.mark.threat("forged-volume")
async def test_a_volume_that_was_planted_for_a_dataset_to_come_is_not_its_own(
    cluster: Cluster, labelled: bool, bound: bool, keys: bool
) -> None:
    planted = victims_volume(cluster, uid="of-nothing")
    if not labelled:
        del planted["metadata"]["labels"][names.LABEL_DATASET_UID]
    if bound:
        planted["spec"]["claimRef"]["uid"] = "of-nothing"
    cluster.server.store(PERSISTENT_VOLUMES)["", "tdcs.stranger.stolen"] = planted
    wrong = {"data": {"accessKeyId": "bWU=", "secretAccessKey": "d3Jvbmc="}} if keys else None
    await put_dataset(cluster, status=forged(cluster), secret=wrong)
    await reason(cluster, {"SourceRefused", "KeysDiffer"} if keys else {"SecretNotFound"})


async def plant_volume(cluster: Cluster, *, status: Object | None = None, **source: Any) -> None:
    """The attacker's Dataset, without a Secret yet, and a volume with its uid that leads to the victim's data."""
    await put_dataset(cluster, status=status)
    if source:
        await cluster.server.merge(
            DATASETS, name="stolen", namespace="stranger", patch={"spec": {"source": source}}
        )
    uid = cluster.server.store(DATASETS)[ATTACKER]["metadata"]["uid"]
    planted = victims_volume(cluster, uid=uid)
    cluster.server.store(PERSISTENT_VOLUMES)["", "tdcs.stranger.stolen"] = planted


async def give_keys(cluster: Cluster, secret: Object) -> None:
    """The attacker's Secret, which has its Dataset looked at."""
    cluster.server.store(SECRETS)["stranger", "keys"] = secret
    await cluster.server.merge(
        DATASETS,
        name="stolen",
        namespace="stranger",
        patch={"metadata": {"annotations": {"tdcs.io/refresh": "1"}}},
    )


WRONG: Object = {"data": {"accessKeyId": "bWU=", "secretAccessKey": "d3Jvbmc="}}


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("status", [False, True], ids=["no-status", "forged-status"])
@pytest.mark.threat("forged-volume")
async def test_a_planted_volume_with_the_right_uid_opens_nothing_to_wrong_keys(
    cluster: Cluster, status: bool, restarted: bool
) -> None:
    if restarted:
        await cluster.stop()
    await plant_volume(cluster, status=forged(cluster) if status else None)
    await give_keys(cluster, WRONG)
    if restarted:
        await cluster.start()
    await reason(cluster, {"SourceRefused"})
    await cluster.until(lambda: cluster.condition("Ready")["status"] == "True")
    assert cluster.engine.state.mounts[cluster.status()["mountPath"]].credentials == OWNER


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.threat("forged-volume", "volume-of-another-store")
async def test_a_planted_volume_leads_to_no_bucket_of_that_name_elsewhere(
    cluster: Cluster, restarted: bool
) -> None:
    victim = cluster.status()["mountPath"]
    if restarted:
        await cluster.stop()
    await plant_volume(cluster, options={"region": "eu-west-1"})
    keys = dict(cluster.server.store(SECRETS)["n", "keys"])
    await give_keys(cluster, keys)
    if restarted:
        await cluster.start()

    def leads_to() -> str:
        volume = cluster.server.store(PERSISTENT_VOLUMES).get(("", "tdcs.stranger.stolen"))
        return str(volume["spec"]["csi"]["volumeAttributes"]["path"]) if volume else ""

    await cluster.until(lambda: leads_to() not in {"", victim})
    await cluster.until(lambda: cluster.condition("Ready")["status"] == "True")
