"""A claim that has lost its volume gets it again, and the Dataset is not ready until the two are bound again."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.cluster import QUICK, Cluster
from tests.unit.control.dataset.conftest import ZONES, engine_of

from tdcs.api.dataset import Dataset
from tdcs.decide.job.job_phase import why_not_mounted
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

KEY = ("n", "pictures")
SETTINGS = replace(QUICK, survey_seconds=60.0)


def uid_of(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def bind(cluster: Cluster) -> None:
    """What the volume controller makes of the claim and the volume."""
    claim, volume = claim_of(cluster), volume_of(cluster)
    volume["spec"]["claimRef"]["uid"] = uid_of(claim)
    volume["status"] = {"phase": "Bound"}
    claim["status"] = {"phase": "Bound"}


def lose(cluster: Cluster, **reference: str) -> None:
    """Somebody has changed the volume's claimRef: the claim is Lost for good, and the volume is released."""
    claim, volume = claim_of(cluster), volume_of(cluster)
    volume["spec"]["claimRef"] |= {"uid": "x", **reference}
    volume["status"] = {"phase": "Released"}
    claim["status"] = {"phase": "Lost"}
    cluster.server.on_change(PERSISTENT_VOLUME_CLAIMS, claim, False)


def claim_of(cluster: Cluster) -> dict[str, Any]:
    return cluster.server.store(PERSISTENT_VOLUME_CLAIMS)[KEY]


def volume_of(cluster: Cluster) -> dict[str, Any]:
    (volume,) = cluster.server.store(PERSISTENT_VOLUMES).values()
    return volume


def reserved_for(cluster: Cluster) -> tuple[Any, ...]:
    """Namespace, name and uid of the claim that the volume is for; nothing while there is none."""
    references = [volume["spec"]["claimRef"] for volume in cluster.server.store(PERSISTENT_VOLUMES).values()]
    return tuple(references[0].get(field) for field in ("namespace", "name", "uid")) if references else ()


async def bound(cluster: Cluster) -> None:
    """A Dataset that is ready, and the claim is bound."""
    await cluster.create_cache()
    await cluster.create_keys()
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    await cluster.until(lambda: KEY in cluster.server.store(PERSISTENT_VOLUME_CLAIMS))
    bind(cluster)
    await cluster.quiet()


@pytest.mark.threat("claim-made-lost")
async def test_a_lost_claim_gets_its_volume_again_and_the_dataset_is_ready_when_they_are_bound() -> None:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=SETTINGS) as cluster:
        await bound(cluster)
        claim, volume = uid_of(claim_of(cluster)), uid_of(volume_of(cluster))
        lose(cluster, namespace="team-b")
        await cluster.until(lambda: reserved_for(cluster) == (*KEY, claim))
        assert uid_of(volume_of(cluster)) != volume
        await cluster.until(lambda: cluster.condition("Ready").get("reason") == "ClaimLost")
        await cluster.quiet()
        ready = cluster.condition("Ready")
        assert ready["status"] == "False"
        assert "PersistentVolumeClaim n/pictures" in ready["message"]
        # The data is there all the time, and pods that run use the claim.
        assert cluster.condition("Mounted")["status"] == cluster.condition("Loaded")["status"] == "True"
        assert cluster.status()["state"] == "Pending"
        assert cluster.events("ClaimLost")
        assert uid_of(claim_of(cluster)) == claim
        assert not claim_of(cluster)["metadata"].get("deletionTimestamp")
        # A job that was not admitted yet waits, and says why.
        dataset = Dataset.model_validate(cluster.server.store(DATASETS)[KEY])
        assert dataset.status is not None
        assert dataset.status.claim_name == ""
        assert why_not_mounted(dataset) == f"ClaimLost: {ready['message']}"
        bind(cluster)
        await cluster.annotate("pictures", refresh="1")
        await cluster.until_state("Ready")
        assert reserved_for(cluster) == (*KEY, claim)


@pytest.mark.failure_mode("volume-deleted-by-force")
@pytest.mark.threat("claim-made-lost")
async def test_a_claim_whose_volume_was_deleted_by_force_is_bound_again_by_a_new_operator_too() -> None:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=SETTINGS) as cluster:
        await bound(cluster)
        claim = uid_of(claim_of(cluster))
        await cluster.stop()
        cluster.server.store(PERSISTENT_VOLUMES).clear()
        claim_of(cluster)["status"] = {"phase": "Lost"}
        await cluster.start()
        await cluster.until(lambda: reserved_for(cluster) == (*KEY, claim))
        bind(cluster)
        await cluster.annotate("pictures", refresh="1")
        await cluster.until_state("Ready")
        assert uid_of(claim_of(cluster)) == claim


@pytest.mark.threat("claim-made-lost")
async def test_a_dataset_that_is_deleted_while_its_claim_is_lost_goes_with_both() -> None:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=SETTINGS) as cluster:
        await bound(cluster)
        lose(cluster)
        await cluster.server.delete(DATASETS, name="pictures", namespace="n")
        await cluster.until(lambda: KEY not in cluster.server.store(DATASETS))
        assert not cluster.server.store(PERSISTENT_VOLUME_CLAIMS)
        assert not cluster.server.store(PERSISTENT_VOLUMES)


@pytest.mark.threat("claim-made-lost")
async def test_a_lost_claim_of_the_datasets_name_that_a_user_made_is_left_alone() -> None:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=SETTINGS) as cluster:
        await bound(cluster)
        claims = cluster.server.store(PERSISTENT_VOLUME_CLAIMS)
        first = uid_of(claim_of(cluster))
        claim_of(cluster)["metadata"]["ownerReferences"] = []
        lose(cluster)
        await cluster.until(lambda: cluster.condition("Mounted").get("reason") == "NameTaken")
        await cluster.quiet()
        assert uid_of(claims[KEY]) == first
        assert not claims[KEY]["metadata"].get("deletionTimestamp")
        assert reserved_for(cluster)[2] == "x"
