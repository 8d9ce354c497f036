"""A claim that has lost its volume is made anew, and the Dataset is not ready until the new one is bound."""

from dataclasses import replace
from typing import Any

from tests.unit.controllers.cluster import QUICK, Cluster
from tests.unit.controllers.dataset.conftest import ZONES, engine_of

from tdcs.api.dataset import Dataset
from tdcs.controllers.trainingjob.decision import why_not_mounted
from tdcs.kube.api import Object
from tdcs.kube.resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS

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


async def bound(cluster: Cluster) -> None:
    """A Dataset that is ready, and the claim is bound."""
    await cluster.create_cache()
    await cluster.create_keys()
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    await cluster.until(lambda: KEY in cluster.server.store(PERSISTENT_VOLUME_CLAIMS))
    bind(cluster)
    await cluster.quiet()


async def test_a_lost_claim_is_made_anew_with_its_volume_and_the_dataset_is_ready_when_it_is_bound() -> None:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=SETTINGS) as cluster:
        await bound(cluster)
        claims = cluster.server.store(PERSISTENT_VOLUME_CLAIMS)
        first, volume = uid_of(claim_of(cluster)), uid_of(volume_of(cluster))
        lose(cluster, namespace="team-b")
        await cluster.until(lambda: KEY in claims and uid_of(claim_of(cluster)) != first)
        assert uid_of(volume_of(cluster)) != volume
        reference = volume_of(cluster)["spec"]["claimRef"]
        assert (reference["namespace"], reference["name"], reference.get("uid")) == (*KEY, None)
        await cluster.until(lambda: cluster.condition("Ready").get("reason") == "ClaimLost")
        await cluster.quiet()
        ready = cluster.condition("Ready")
        assert ready["status"] == "False"
        assert "PersistentVolumeClaim n/pictures" in ready["message"]
        # The data is there all the time.
        assert cluster.condition("Mounted")["status"] == cluster.condition("Loaded")["status"] == "True"
        assert cluster.status()["state"] == "Pending"
        assert cluster.events("ClaimLost")
        # A job that was not admitted yet waits, and says why.
        found = Dataset.model_validate(cluster.server.store(DATASETS)[KEY])
        assert found.status is not None
        assert found.status.claim_name == ""
        assert why_not_mounted(found) == f"ClaimLost: {ready['message']}"
        bind(cluster)
        await cluster.until_state("Ready")
        assert cluster.condition("Ready")["status"] == "True"


async def test_a_lost_claim_that_pods_use_stays_until_they_end_and_the_dataset_names_them() -> None:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=SETTINGS) as cluster:
        await bound(cluster)
        claims = cluster.server.store(PERSISTENT_VOLUME_CLAIMS)
        claim_of(cluster)["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "pictures"}}
        pod = {
            "metadata": {"name": "reader", "namespace": "n"},
            "spec": {"nodeName": "a", "containers": [], "volumes": [volume]},
        }
        await cluster.server.create(PODS, obj=pod)
        first = uid_of(claim_of(cluster))
        lose(cluster)
        await cluster.until(lambda: "pod reader" in cluster.condition("Ready").get("message", ""))
        assert cluster.condition("Ready")["reason"] == "ClaimLost"
        assert "they read on" in cluster.condition("Ready")["message"]
        assert claim_of(cluster)["metadata"]["deletionTimestamp"]
        assert uid_of(claim_of(cluster)) == first
        assert volume_of(cluster)["spec"]["claimRef"].get("uid") is None
        assert ("n", "reader") in cluster.server.store(PODS)
        # The last pod has ended.
        gone = claims.pop(KEY)
        cluster.server.on_change(PERSISTENT_VOLUME_CLAIMS, gone, True)
        await cluster.until(lambda: KEY in claims)
        bind(cluster)
        await cluster.until_state("Ready")


async def test_a_claim_of_the_dataset_that_names_another_volume_is_made_anew() -> None:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=SETTINGS) as cluster:
        await bound(cluster)
        first, claims = uid_of(claim_of(cluster)), cluster.server.store(PERSISTENT_VOLUME_CLAIMS)
        claim_of(cluster)["spec"]["volumeName"] = "of-another-driver"
        await cluster.annotate("pictures", refresh="1")
        await cluster.until(lambda: KEY not in claims)
        volume_of(cluster)["status"] = {"phase": "Released"}
        await cluster.until(lambda: KEY in claims and uid_of(claim_of(cluster)) != first)
        assert claim_of(cluster)["spec"]["volumeName"] == "tdcs.n.pictures"


async def test_a_lost_claim_for_which_its_volume_is_reserved_is_left_to_kubernetes() -> None:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=SETTINGS) as cluster:
        await bound(cluster)
        first = uid_of(claim_of(cluster))
        claim_of(cluster)["status"] = {"phase": "Lost"}
        cluster.server.on_change(PERSISTENT_VOLUME_CLAIMS, claim_of(cluster), False)
        await cluster.until(lambda: cluster.condition("Ready").get("reason") == "ClaimLost")
        await cluster.quiet()
        bind(cluster)
        await cluster.annotate("pictures", refresh="1")
        await cluster.until_state("Ready")
        assert uid_of(claim_of(cluster)) == first


async def test_a_lost_claim_that_a_user_made_under_another_name_is_left_alone() -> None:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=SETTINGS) as cluster:
        await bound(cluster)
        own = {"metadata": {"name": "mine", "namespace": "n"}, "spec": {"volumeName": "tdcs.n.pictures"}}
        await cluster.server.create(PERSISTENT_VOLUME_CLAIMS, obj=own)
        claims = cluster.server.store(PERSISTENT_VOLUME_CLAIMS)
        claims["n", "mine"]["status"] = {"phase": "Lost"}
        mine, first = uid_of(claims["n", "mine"]), uid_of(claim_of(cluster))
        lose(cluster)
        await cluster.until(lambda: KEY in claims and uid_of(claim_of(cluster)) != first)
        assert uid_of(claims["n", "mine"]) == mine
